"""Workers that are killed, cut off, declared dead, or blocked; jobs that kill them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from pgq_py.jobs.context import JobContext
from pgq_py.jobs.worker import leasing
from tests.clusters import Database
from tests.engine.support import BEGIN
from tests.jobs.working import enqueue, enqueue_many, make_queue, running, spec, state, status
from tests.waiting import wait_until

LEASE = 2
"""Seconds: short, and yet more than a busy machine keeps a thread waiting."""

CONNECTIONS = (
    "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name ~ "
    "'pgq (claiming|finishing|lease)'"
)


@contextmanager
def workshop(db: Database, *options: int) -> Iterator[subprocess.Popen[bytes]]:
    """The worker of tests/jobs/workshop.py as a process."""
    command = [sys.executable, "-W", "error", "-m", "tests.jobs.workshop", *map(str, options)]
    environment = {**os.environ, "PGQ_DSN": db.dsn}
    process = subprocess.Popen(command, cwd=Path(__file__).parents[2], env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def completed(db: Database) -> int:
    value: int = db.value("select completed from pgq.get_job_stats('jobs')")
    return value


@pytest.mark.crash
@pytest.mark.slow
def test_killed_workers_lose_and_repeat_nothing(db: Database) -> None:
    make_queue(db)
    db.rows("create table effect (n int)")
    enqueue_many(db, "effect", [{"n": n} for n in range(400)])
    for part in (100, 250):
        with workshop(db, LEASE, 4, 20):
            wait_until(lambda part=part: db.value("select count(*) from effect") >= part, timeout=30)  # type: ignore[misc]
    with workshop(db, LEASE, 4):
        wait_until(lambda: completed(db) == 400, timeout=60)
    assert db.rows("select n from effect order by n") == [(n,) for n in range(400)]


@pytest.mark.crash
@pytest.mark.slow
def test_a_job_that_kills_its_workers_takes_no_neighbours_along(db: Database) -> None:
    """Scenario 32: it is lost, lost again when it runs alone, and then a dead letter."""
    make_queue(db, max_losses=1)
    fine = enqueue_many(db, "fine", [{}] * 5)
    poison = enqueue(db, "poison")
    fine += enqueue_many(db, "fine", [{}] * 5)
    for _ in range(2):
        with workshop(db, LEASE, 20) as process:
            process.wait(60)
    with workshop(db, LEASE, 20):
        wait_until(lambda: state(db, poison) == "failed", timeout=60)
        wait_until(lambda: completed(db) == 10, timeout=30)
    assert (status(db, poison)["losses"], status(db, poison)["attempt"]) == (2, 1)
    assert "its worker died with it" in status(db, poison)["error"]


@pytest.mark.crash
@pytest.mark.slow
def test_an_outage_longer_than_the_lease_loses_no_claim(private_db: Database) -> None:
    db = private_db
    make_queue(db)
    go, runs = threading.Event(), list[int]()

    def job(n: int) -> None:
        runs.append(n)
        go.wait(30)

    ids = enqueue_many(db, "job", [{"n": n} for n in range(4)])
    with running(db, spec(job), lease=LEASE, slots=4) as worker:
        wait_until(lambda: len(runs) == 4)
        name = worker.worker
        db.rows("create table flushed ()")  # claims are committed asynchronously: a crash may take the newest along
        db.server.crash()
        time.sleep(LEASE * 1.3)  # the outage: nothing happens, and for longer than the lease
        db.server.start()
        go.set()
        wait_until(lambda: [state(db, one) for one in ids] == ["completed"] * 4, timeout=30)
        assert worker.worker == name
    assert sorted(runs) == [0, 1, 2, 3]


@pytest.mark.crash
def test_cut_connections_lose_and_repeat_nothing(db: Database) -> None:
    make_queue(db)
    runs: Counter[int] = Counter()

    def job(n: int) -> None:
        runs[n] += 1
        time.sleep(0.002)  # what the job does: the others are claimed, run and finished while connections are cut

    with running(db, spec(job), slots=4, prefetch=4, lease=LEASE):
        for start in range(0, 500, 100):
            enqueue_many(db, "job", [{"n": n} for n in range(start, start + 100)])
            wait_until(lambda start=start: len(runs) > start + 10, timeout=30)  # type: ignore[misc]
            db.rows(CONNECTIONS)
        wait_until(lambda: completed(db) == 500, timeout=30)
    assert runs == Counter(range(500))


def test_a_claim_whose_answer_was_lost_is_released(db: Database) -> None:
    make_queue(db)
    runs: list[int] = []

    def job(n: int) -> None:
        runs.append(n)

    with running(db, spec(job), lease=1) as worker:
        wait_until(lambda: worker.worker)
        with psycopg.connect(db.dsn) as conn:
            conn.execute("select pgq.enqueue('jobs', 'job', '{\"n\": 1}')")
            conn.commit()
            wait_until(lambda: runs or conn.execute("select pgq.poke('jobs')").fetchone())
        job_id = enqueue(db, "job", n=2)
        claim = db.rows("select * from pgq.claim('jobs', %s, 10)", [worker.worker])
        wait_until(lambda: state(db, job_id) == "completed")
        wait_until(lambda: sorted(runs) == [1, 2])
    assert claim is not None


def test_a_lost_connection_makes_a_worker_doubt_that_it_knows_its_claims(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim in its name, from a queue that it does not serve, stands for one whose answer got lost."""
    monkeypatch.setattr(leasing, "EVERY", 1_000_000)
    make_queue(db)
    db.rows("select pgq.create_job_queue('other')")
    db.rows("select pgq.enqueue('other', 'job')")
    beats = "select count(*) from pgq.beat_ring where worker <> ''"

    def job() -> None:
        pass

    def is_running() -> bool:
        return bool(db.value("select running = 1 from pgq.get_job_stats('other')"))

    with running(db, spec(job), lease=1) as worker:
        wait_until(lambda: worker.worker)
        wait_until(lambda: db.value(beats) > 1)
        wait_until(lambda: db.rows("select * from pgq.claim('other', %s, 10)", [worker.worker])[0][0] is not None)
        seen = db.value(beats)
        wait_until(lambda: db.value(beats) > seen + 4)
        assert is_running()
        db.rows(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name ~ 'pgq claiming'"
            " and datname = current_database()"
        )
        wait_until(lambda: not is_running())


@pytest.mark.parametrize("level", BEGIN)
def test_a_zombie_completes_nothing(db: Database, level: str) -> None:
    """Scenario 22: its worker is declared dead while it writes; the job runs anew, and only that run counts."""
    make_queue(db)
    db.rows("create table effect (run int)")
    began, go, runs = threading.Event(), threading.Event(), list[int]()

    def job(ctx: JobContext) -> None:
        runs.append(len(runs))
        run = runs[-1]
        ctx.connection.execute(BEGIN[level].replace("begin", "set transaction"))
        ctx.connection.execute("insert into effect values (%s)", [run])
        if run == 0:
            began.set()
            go.wait(20)

    job_id = enqueue(db, "job")
    with running(db, spec(job, transactional=True), lease=1) as worker:
        assert began.wait(30)
        name = worker.worker
        db.value("select pgq.end_worker(%s)", [name])
        wait_until(lambda: state(db, job_id) == "completed")
        assert worker.worker != name
        go.set()
        enqueue(db, "job")
        wait_until(lambda: completed(db) == 2)
        wait_until(lambda: db.value("select count(*) from pg_stat_activity where state ~ 'in transaction'") == 0)
    assert db.rows("select run from effect order by run") == [(1,), (2,)]


def test_a_transaction_that_loses_is_run_again(db: Database) -> None:
    make_queue(db)
    db.rows("create table account (balance int)")
    db.rows("insert into account values (0)")
    read: list[int] = []

    def deposit(ctx: JobContext) -> None:
        ctx.connection.execute("set transaction isolation level repeatable read")
        (balance,) = ctx.connection.execute("select balance from account").fetchone()
        read.append(balance)
        wait_until(lambda: len(read) > 1)  # the first two have read the same, so one of them loses
        ctx.connection.execute("update account set balance = %s", [balance + 1])

    ids = enqueue_many(db, "deposit", [{}] * 30)
    with running(db, spec(deposit, transactional=True), slots=2):
        wait_until(lambda: completed(db) == len(ids), timeout=30)
    assert db.value("select balance from account") == 30
    assert len(read) > 30


def test_a_transaction_that_fails_leaves_nothing(db: Database) -> None:
    make_queue(db)
    db.rows("create table effect (n int)")

    async def job(ctx: JobContext, n: int) -> None:
        await ctx.connection.execute("insert into effect values (%s)", [n])
        if n % 2:
            raise ValueError(n)

    ids = enqueue_many(db, "job", [{"n": n} for n in range(10)])
    with running(db, spec(job, transactional=True, retries=0), slots=5):
        wait_until(lambda: "running" not in (states := [state(db, one) for one in ids]) and "pending" not in states)
    assert [state(db, one) for one in ids] == ["completed", "failed"] * 5
    assert db.rows("select n from effect order by n") == [(n,) for n in range(0, 10, 2)]


@pytest.mark.slow
def test_a_blocked_event_loop_costs_no_lease(db: Database) -> None:
    make_queue(db)
    runs: list[int] = []

    async def rude() -> None:
        runs.append(1)
        time.sleep(LEASE * 1.5)  # the event loop is blocked: nothing happens, and for longer than the lease

    def other() -> None: ...

    job = enqueue(db, "rude")
    with running(db, spec(rude), lease=LEASE):
        wait_until(lambda: runs)
        with running(db, spec(rude), spec(other), lease=LEASE):
            wait_until(lambda: state(db, job) == "completed")
    assert runs == [1]


def lost_jobs(db: Database, kind: str, n: int) -> list[int]:
    """Jobs that have lost a worker, which wait to run alone."""
    ids = enqueue_many(db, kind, [{}] * n)
    with psycopg.connect(db.dsn, autocommit=True) as conn:
        conn.execute("select pgq.heartbeat('dead', null, '1 second')")
        wait_until(lambda: conn.execute("select claim_id from pgq.claim('jobs', 'dead', 1000)").fetchone() != (None,))

        def recovered() -> bool:
            row = conn.execute("select pgq.recover()").fetchone()
            return row is not None and row[0] == n

        wait_until(recovered)
    return ids


@pytest.mark.slow
def test_neither_lost_jobs_nor_others_starve(db: Database) -> None:
    """A worker that always has something in hand rests for a lost job; many lost jobs take turns with others."""
    make_queue(db)
    stop, order = threading.Event(), list[str]()

    def lost() -> None:
        order.append("lost")

    def busy() -> None:
        order.append("busy")
        if not stop.is_set():
            enqueue(db, "busy")
        time.sleep(0.02)  # what the job does: the worker has one in hand nearly always

    ids = lost_jobs(db, "lost", 20)
    for _ in range(8):
        enqueue(db, "busy")
    with running(db, spec(lost), spec(busy), slots=2):
        wait_until(lambda: [state(db, job) for job in ids] == ["completed"] * 20, timeout=90)
        stop.set()
    first, last = order.index("lost"), len(order) - order[::-1].index("lost")
    assert "busy" in order[first:last]
