"""Handles: what has become of a job, waiting for its result, and cancelling it. Claims are made by plain SQL here."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from pgq_py import JobFailed, JobHandle, JobProgress, KeyTaken, ResultExpired
from pgq_py.app import AsyncPgQ, PgQ
from tests.clusters import Database
from tests.waiting import wait_until


@pytest.fixture
def handle(pgq: PgQ) -> JobHandle:
    @pgq.job("emails", result_retention=timedelta(hours=1))
    def mail(address: str) -> None: ...

    return mail.enqueue("a")


def claim(pgq: PgQ, db: Database) -> tuple[int, int]:
    """Claim one job, by SQL; its claim and token."""
    pgq.force_tick("emails")
    pgq.tick("emails")
    ((claim_id, token),) = db.rows("select claim_id, token from pgq.claim('emails', 'tester', 1)")
    return claim_id, token


def finish(db: Database, claimed: tuple[int, int], job: int, result: str = "42", keep: str = "1 hour") -> None:
    with db.connect(autocommit=False) as conn:
        conn.execute("select pgq.set_result(%s, %s, %s, %s::jsonb, %s::interval)", [*claimed, job, result, keep])
        conn.execute("select pgq.complete(%s, %s)", claimed)


def state(handle: JobHandle) -> str | None:
    status = handle.status()
    return None if status is None else status.state


def test_from_enqueueing_to_the_result(pgq: PgQ, db: Database, handle: JobHandle) -> None:
    assert (state(handle), handle.progress()) == ("pending", JobProgress())
    with pytest.raises(TimeoutError):
        handle.result(timeout=0)
    claimed = claim(pgq, db)
    db.rows("select pgq.progress(%s, %s, %s, 40, 'sending', '{\"n\": 1}')", [*claimed, handle.id])
    assert (state(handle), handle.progress()) == ("running", JobProgress(40, "sending", {"n": 1}))
    with pytest.raises(TimeoutError):
        handle.result(timeout=0.05)
    finish(db, claimed, handle.id)
    assert (state(handle), handle.result(timeout=0), handle.result()) == ("completed", 42, 42)
    assert handle.cancel() == "completed"


def test_waiting_for_a_result(pgq: PgQ, db: Database, handle: JobHandle) -> None:
    claimed = claim(pgq, db)
    got: list[Any] = []
    waiter = threading.Thread(target=lambda: got.append(handle.result(timeout=30)))
    waiter.start()
    listening = (
        "select count(*) from pg_stat_activity where query like 'select state, result%%' or query like 'listen%%'"
    )
    wait_until(lambda: db.value(listening), what="the waiter listening")
    finish(db, claimed, handle.id, '{"sent": true}')
    waiter.join(20)
    assert got == [{"sent": True}]


def test_waiting_for_a_result_in_a_loop(pgq: PgQ, db: Database, handle: JobHandle) -> None:
    async def main() -> Any:
        async with AsyncPgQ(db.dsn) as facade:
            there = facade.job_handle("emails", handle.id)
            waiter = asyncio.create_task(there.result(timeout=30))
            await asyncio.to_thread(lambda: finish(db, claim(pgq, db), handle.id))
            status = await there.status()
            assert status is not None
            assert await there.progress() == JobProgress()
            return await waiter, status.state, await there.cancel()

    assert asyncio.run(main()) == (42, "completed", "completed")


def test_a_job_without_a_result(pgq: PgQ, db: Database, handle: JobHandle) -> None:
    db.rows("select pgq.complete(%s, %s)", claim(pgq, db))
    assert handle.result(timeout=5) is None


def test_a_job_that_failed(pgq: PgQ, db: Database, handle: JobHandle) -> None:
    db.rows("select pgq.fail(%s, %s, %s, 'no such street', null, false)", [*claim(pgq, db), handle.id])
    assert state(handle) == "failed"
    with pytest.raises(JobFailed, match="no such street"):
        handle.result(timeout=5)
    assert pgq.retry_jobs("emails", [handle.id]) == 1
    assert state(handle) == "pending"


def test_a_job_that_was_cancelled(pgq: PgQ, db: Database, handle: JobHandle) -> None:
    assert handle.cancel() == "cancelled"
    assert state(handle) == "cancelled"
    with pytest.raises(JobFailed, match="cancelled"):
        handle.result(timeout=5)


def test_asking_a_running_job_to_stop(pgq: PgQ, db: Database, handle: JobHandle) -> None:
    claim(pgq, db)
    assert handle.cancel() == "cancel_requested"
    status = handle.status()
    assert status is not None
    assert status.cancel_requested


def test_a_result_that_was_kept_for_its_time(pgq: PgQ, db: Database, handle: JobHandle) -> None:
    finish(db, claim(pgq, db), handle.id, keep="0")
    with pytest.raises(ResultExpired):
        handle.result(timeout=5)


def test_a_job_that_never_was(pgq: PgQ) -> None:
    nobody = pgq.job_handle("emails", 2**62)
    assert (nobody.status(), nobody.progress(), nobody.cancel()) == (None, JobProgress(), None)
    with pytest.raises(JobFailed, match="no trace"):
        nobody.result(timeout=5)


def test_a_key_that_was_taken_meanwhile(pgq: PgQ, db: Database) -> None:
    first = pgq.enqueue("emails", "mail", key="k")
    db.rows("select pgq.fail(%s, %s, %s, 'no', null, false)", [*claim(pgq, db), first.id])
    assert pgq.enqueue("emails", "mail", key="k").created
    with pytest.raises(KeyTaken):
        pgq.retry_jobs("emails", [first.id])


def test_handles_are_equal_when_they_mean_the_same(pgq: PgQ, handle: JobHandle) -> None:
    same = pgq.job_handle("emails", handle.id)
    assert {handle, same} == {handle}
    assert same != pgq.job_handle("other", handle.id)
    assert repr(same) == f"JobHandle('emails', {handle.id})"


def test_looking_at_queues_and_schedules(pgq: PgQ, db: Database, handle: JobHandle) -> None:
    assert [job.id for job in pgq.list_jobs("emails", "pending", "mail", 10)] == [handle.id]
    assert pgq.list_jobs("emails", before=handle.id) == []
    assert [(stats.queue_name, stats.pending) for stats in pgq.job_stats()] == [("emails", 1)]
    db.rows("select pgq.heartbeat('host:1:x')")
    assert [(worker.worker, worker.state, worker.jobs) for worker in pgq.workers()] == [("host:1:x", "alive", 0)]
    assert pgq.set_schedule("nightly", "emails", "mail", "0 3 * * *", tz="Europe/Berlin", payload={"address": "a"})
    assert not pgq.set_schedule("nightly", "emails", "mail", "0 4 * * *", tz="Europe/Berlin")
    (schedule,) = pgq.schedules("nightly")
    assert (schedule.cron, schedule.tz, schedule.payload, schedule.enabled) == ("0 4 * * *", "Europe/Berlin", {}, True)
    assert [pgq.drop_schedule("nightly"), pgq.drop_schedule("nightly"), pgq.schedules()] == [True, False, []]
    assert [pgq.declare_priority("emails", number) for number in (200, 200)] == [True, False]
    pgq.set_job_config("emails", "lease", "30 seconds")
    assert [pgq.once("scope", "key") for _ in range(2)] == [True, False]
