"""Cancelling jobs, stopping workers, and working through a pooler."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time

import pytest

from pgq_py.jobs.context import JobContext
from pgq_py.jobs.worker import Worker
from pgq_py.settings import load_settings
from tests.clusters import Database
from tests.jobs.test_worker_survival import LEASE, completed, workshop
from tests.jobs.working import enqueue, enqueue_many, make_queue, running, spec, state, worker
from tests.pooler import pgbouncer, pooled
from tests.waiting import wait_until

CANCEL = "select outcome from pgq.cancel('jobs', array[%s]::bigint[])"


def test_a_running_coroutine_is_cancelled(db: Database) -> None:
    make_queue(db)
    seen: list[str] = []

    async def job() -> None:
        seen.append("began")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    one = enqueue(db, "job")
    with running(db, spec(job)):
        wait_until(lambda: seen)
        assert db.value(CANCEL, [one]) == "cancel_requested"
        wait_until(lambda: state(db, one) == "cancelled", timeout=15)
        two = enqueue(db, "job")
        wait_until(lambda: seen == ["began", "cancelled", "began"])
        assert db.value(CANCEL, [two]) == "cancel_requested"
        wait_until(lambda: state(db, two) == "cancelled", timeout=15)


def test_a_running_function_is_asked_to_stop(db: Database) -> None:
    make_queue(db)
    began = threading.Event()

    def job(ctx: JobContext) -> None:
        began.set()
        while True:
            ctx.raise_if_cancelled()
            time.sleep(0.001)  # what the job does between two looks

    one = enqueue(db, "job")
    with running(db, spec(job)):
        assert began.wait(30)
        assert db.value(CANCEL, [one]) == "cancel_requested"
        wait_until(lambda: state(db, one) == "cancelled", timeout=15)


def test_cancel_at_the_moment_of_failure(db: Database) -> None:
    """Scenario 33: cancelled, and no retry."""
    make_queue(db)
    began, go = threading.Event(), threading.Event()

    def job() -> None:
        began.set()
        go.wait(30)
        raise RuntimeError("just now")

    one = enqueue(db, "job")
    with running(db, spec(job)):
        assert began.wait(30)
        assert db.value(CANCEL, [one]) == "cancel_requested"
        go.set()
        wait_until(lambda: state(db, one) == "cancelled")
    assert db.value("select count(*) from pgq.delayed_event") == 0


def test_stopping_gives_back_what_has_not_begun_and_ends_what_has(db: Database) -> None:
    make_queue(db)
    began, go = threading.Semaphore(0), threading.Event()

    def job() -> None:
        began.release()
        go.wait(20)

    ids = enqueue_many(db, "job", [{}] * 10)
    with running(db, spec(job), slots=2, prefetch=8) as one:
        for _ in range(2):
            assert began.acquire(timeout=10)
        wait_until(lambda: [state(db, job) for job in ids] == ["running"] * 10)
        one.stop()
        wait_until(lambda: sorted(state(db, job) or "" for job in ids) == ["pending"] * 8 + ["running"] * 2)
        go.set()
    assert sorted(state(db, job) or "" for job in ids) == ["completed"] * 2 + ["pending"] * 8


def test_stopping_twice_gives_everything_back(db: Database) -> None:
    make_queue(db)
    began, go, cancelled = threading.Event(), threading.Event(), list[int]()

    def function() -> None:
        began.set()
        go.wait(20)

    async def coroutine() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    ids = [enqueue(db, "function"), enqueue(db, "coroutine")]
    with running(db, spec(function), spec(coroutine), grace=60) as one:
        assert began.wait(30)
        wait_until(lambda: [state(db, job) for job in ids] == ["running"] * 2)
        one.stop()
        one.stop()
        wait_until(lambda: [state(db, job) for job in ids] == ["pending"] * 2)
    go.set()
    assert cancelled == [1]
    assert db.value("select state from pgq.get_worker_info()") == "stopped"


def test_grace_ends(db: Database) -> None:
    make_queue(db)
    go = threading.Event()

    def job() -> None:
        go.wait(20)

    one = enqueue(db, "job")
    with running(db, spec(job), grace=0.2):
        wait_until(lambda: state(db, one) == "running")
    assert state(db, one) == "pending"
    go.set()


def test_a_worker_that_is_stopped_before_it_starts(db: Database) -> None:
    make_queue(db)

    def job() -> None: ...

    one = worker(db, spec(job))
    one.stop()
    one.run()


@pytest.mark.slow
def test_sigterm_ends_a_worker_in_order(db: Database) -> None:
    make_queue(db)
    db.rows("create table begun ()")
    db.rows("create table gate ()")
    ids = enqueue_many(db, "gated", [{}] * 6)

    def states() -> list[str]:
        return sorted(state(db, job) or "" for job in ids)

    with workshop(db, LEASE, 2, 2) as process:
        wait_until(lambda: db.value("select count(*) from begun") == 2, timeout=30)
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: states() == ["pending"] * 4 + ["running"] * 2)
        db.rows("insert into gate default values")
        assert process.wait(20) == 0
    assert states() == ["completed"] * 2 + ["pending"] * 4


@pytest.mark.slow
def test_two_workers_behind_a_pooler(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    """Scenario 31: they work, and say once that they poll."""
    if pgbouncer() is None:
        pytest.skip("there is no PgBouncer")
    make_queue(db)
    runs: list[int] = []

    def job(n: int) -> None:
        runs.append(n)

    with pooled(db, 4) as dsn, caplog.at_level(logging.WARNING, "pgq_py.jobs"):
        pair = [Worker(load_settings(dsn=dsn), [spec(job)], grace=5) for _ in range(2)]
        threads = [threading.Thread(target=one.run) for one in pair]
        for thread in threads:
            thread.start()
        for start in range(0, 300, 100):
            enqueue_many(db, "job", [{"n": n} for n in range(start, start + 100)])
            wait_until(lambda start=start: completed(db) == start + 100)  # type: ignore[misc]
        for one in pair:
            one.stop()
        for thread in threads:
            thread.join(20)
    assert sorted(runs) == list(range(300))
    assert [record.getMessage() for record in caplog.records if "pooler" in record.getMessage()].__len__() == 2


def test_many_workers_share_the_jobs(db: Database) -> None:
    make_queue(db)
    runs: list[int] = []
    workers: set[int] = set()

    async def job(n: int) -> None:
        runs.append(n)
        workers.add(threading.get_ident())  # a worker's event loop has a thread of its own
        await asyncio.to_thread(wait_until, lambda: len(workers) == 3)

    with running(db, spec(job)), running(db, spec(job)), running(db, spec(job)):
        enqueue_many(db, "job", [{"n": n} for n in range(500)])
        wait_until(lambda: completed(db) == 500, timeout=30)
    assert sorted(runs) == list(range(500))
