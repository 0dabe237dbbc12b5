"""A consumer that was evicted while its runner was running, or before."""

from __future__ import annotations

import logging

import pytest

from pgq_py import ConsumerNotRegistered, Event, Settings
from pgq_py.app import AsyncPgQ, PgQ
from tests.clusters import Database
from tests.waiting import wait_until


def evict(db: Database) -> None:
    """As maintenance does with a consumer that lags too far behind, which takes a minute at least."""
    with db.connect() as conn, conn.transaction():
        conn.execute("alter table pgq.queue drop constraint queue_max_consumer_lag_check")
        conn.execute("update pgq.queue set queue_max_consumer_lag = '0' where queue_name = 'orders'")
        conn.execute("select pgq.force_tick('orders')")
        conn.execute("select pgq.maint_evict_consumers('orders')")
        conn.execute("update pgq.queue set queue_max_consumer_lag = null")
        assert conn.execute("select count(*) from pgq.eviction").fetchone() == (1,)


def test_it_stops_loudly_and_the_others_go_on(pgq: PgQ, db: Database, caplog: pytest.LogCaptureFixture) -> None:
    slow: list[Event] = []
    seen: list[Event] = []
    pgq.create_queue("others")
    pgq.consumer("orders", name="slow")(slow.append)
    pgq.consumer("others", name="quick")(seen.append)
    with pgq.runner() as runner:
        evict(db)
        wait_until(lambda: runner.failures)
        assert isinstance(runner.failures[0], ConsumerNotRegistered)
        assert "It was evicted at" in caplog.text
        assert "this consumer has ended" in caplog.text
        pgq.send("others", 1)
        wait_until(lambda: seen)
    assert pgq.consumers("orders") == []
    assert slow == []


def test_run_raises_when_all_have_ended(pgq: PgQ, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    from pgq_py.consumers._sync.worker import Worker

    pgq.consumer("orders", name="slow")(print)
    original = Worker.run

    def run_evicted(self: Worker) -> None:
        evict(db)
        original(self)

    monkeypatch.setattr(Worker, "run", run_evicted)
    with pytest.raises(ConsumerNotRegistered):
        pgq.run()


@pytest.mark.anyio
async def test_the_async_runner_raises_too(
    quick: Settings, pgq: PgQ, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pgq_py.consumers._async.worker import AsyncWorker

    original = AsyncWorker.run

    async def run_evicted(self: AsyncWorker) -> None:
        evict(db)
        await original(self)

    async def handle(event: Event) -> None: ...

    monkeypatch.setattr(AsyncWorker, "run", run_evicted)
    async with AsyncPgQ(settings=quick) as apgq:
        apgq.consumer("orders", name="slow")(handle)
        with pytest.raises(ConsumerNotRegistered):
            await apgq.run()


def test_it_registers_again_when_told_to(pgq: PgQ, db: Database, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Event] = []
    pgq.consumer("orders", name="slow", on_evicted="register")(seen.append)
    with caplog.at_level(logging.WARNING), pgq.runner() as runner:
        evict(db)
        wait_until(lambda: pgq.consumers("orders"))
        pgq.send("orders", 1)
        wait_until(lambda: seen)
        assert not runner.failures
    assert "It was evicted at" in caplog.text
    assert "were not delivered to it" in caplog.text


def test_one_that_was_unregistered_by_hand_is_registered_again(pgq: PgQ) -> None:
    seen: list[Event] = []
    pgq.consumer("orders", name="slow")(seen.append)
    with pgq.runner():
        pgq.unregister_consumer("orders", "slow")
        wait_until(lambda: pgq.consumers("orders"))
        pgq.send("orders", 1)
        wait_until(lambda: seen)
