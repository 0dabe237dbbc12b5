"""What handlers get: every event, in order, and again only where that was promised."""

from __future__ import annotations

import asyncio
import operator
import threading
from functools import partial
from typing import Any

import pytest

from pgq_py import Event, Settings
from pgq_py.app import AsyncPgQ, PgQ
from pgq_py.consumers._sync import worker
from pgq_py.settings import load_settings
from tests.clusters import Database
from tests.waiting import wait_until

LISTENS = """
select count(*) from pg_stat_activity
 where datname = current_database() and application_name = 'pgq one' and query ~ 'wake_armed_ms' and state = 'idle'
"""


def numbers(events: list[Event]) -> list[Any]:
    return [event.json for event in events]


def is_drained(pgq: PgQ, consumer: str) -> bool:
    """Everything sent is acknowledged. Asked in this order, for a tick may come in between."""
    if pgq.queues_due():
        return False
    info = pgq.consumer_info("orders", consumer)
    return not info.pending_events and info.current_batch is None


def test_every_event_in_order_to_every_consumer(pgq: PgQ) -> None:
    first: list[Event] = []
    second: list[Event] = []
    pgq.consumer("orders", name="first")(first.append)
    pgq.consumer("orders", name="second")(second.append)
    with pgq.runner():
        for number in range(50):
            pgq.send("orders", number)
        pgq.send_many("orders", range(50, 5000))
        wait_until(lambda: len(first) == len(second) == 5000)
        wait_until(lambda: is_drained(pgq, "first") and is_drained(pgq, "second"))
    assert numbers(first) == numbers(second) == list(range(5000))


def test_batches_are_lists_of_at_most_max_events(pgq: PgQ) -> None:
    calls: list[list[Event]] = []
    pgq.consumer("orders", name="bulk", batch=True, max_events=300)(calls.append)
    with pgq.runner():
        pgq.send_many("orders", range(1000))
        wait_until(lambda: sum(map(len, calls)) == 1000)
    assert [number for call in calls for number in numbers(call)] == list(range(1000))
    assert max(map(len, calls)) == 300


def test_a_failing_handler_is_called_again_with_that_event_alone(pgq: PgQ) -> None:
    seen: list[Any] = []

    @pgq.consumer("orders", name="fragile", on_error="block")
    def fragile(event: Event) -> None:
        seen.append(event.json)
        if event.json == 3 and seen.count(3) < 3:
            raise ZeroDivisionError

    with pgq.runner():
        pgq.send_many("orders", range(6))
        wait_until(lambda: len(seen) == 8)
        wait_until(lambda: is_drained(pgq, "fragile"))
    assert seen == [0, 1, 2, 3, 3, 3, 4, 5]


def test_exactly_once_effects_and_acknowledgement_are_one_transaction(pgq: PgQ, db: Database) -> None:
    db.rows("create table effect (n int)")
    calls: list[Any] = []

    @pgq.consumer("orders", name="mirror", exactly_once=True, max_events=10, on_error="block")
    def mirror(event: Event, tx: Any) -> None:
        calls.append(event.json)
        tx.execute("insert into effect values (%s)", [event.json])
        if event.json == 17 and calls.count(17) < 3:
            raise ZeroDivisionError

    with pgq.runner():
        pgq.send_many("orders", range(35))
        wait_until(lambda: is_drained(pgq, "mirror"))
    assert [row[0] for row in db.rows("select n from effect order by n")] == list(range(35))
    assert calls.count(17) == 3
    assert calls.count(16) == 2, "what came ahead of the failing event is committed without it"


def test_a_failing_statement_in_an_exactly_once_handler(pgq: PgQ, db: Database) -> None:
    db.rows("create table effect (n int check (n <> 1 or current_setting('fixed.it', true) is not null))")

    @pgq.consumer("orders", name="mirror", exactly_once=True, batch=True, on_error="block")
    def mirror(events: list[Event], tx: Any) -> None:
        if failed.is_set():
            tx.execute("set local fixed.it = yes")
        failed.set()
        with tx.cursor() as cursor:
            cursor.executemany("insert into effect values (%s)", [[event.json] for event in events])

    failed = threading.Event()
    with pgq.runner():
        pgq.send_many("orders", range(3))
        wait_until(lambda: is_drained(pgq, "mirror"))
    assert db.rows("select n from effect order by n") == [(0,), (1,), (2,)]


def test_events_sent_by_a_handler_belong_to_its_transaction(pgq: PgQ) -> None:
    results: list[Event] = []

    @pgq.consumer("orders", name="forwarder", exactly_once=True)
    def forward(event: Event, tx: Any) -> None:
        pgq.send("results", event.json * 2, conn=tx)

    pgq.create_queue("results")
    pgq.consumer("results", name="reader")(results.append)
    with pgq.runner():
        pgq.send_many("orders", range(100))
        wait_until(lambda: len(results) == 100)
    assert numbers(results) == [2 * number for number in range(100)]


def test_coroutine_handlers_of_a_sync_facade(pgq: PgQ, db: Database) -> None:
    db.rows("create table effect (n int)")
    seen: list[Event] = []

    @pgq.consumer("orders", name="reader")
    async def read(event: Event) -> None:
        await asyncio.sleep(0)
        seen.append(event)

    @pgq.consumer("orders", name="mirror", exactly_once=True)
    async def mirror(event: Event, tx: Any) -> None:
        await tx.execute("insert into effect values (%s)", [event.json])

    with pgq.runner():
        pgq.send_many("orders", range(100))
        wait_until(lambda: len(seen) == 100 and is_drained(pgq, "mirror"))
    assert numbers(seen) == list(range(100))
    assert db.value("select count(distinct n) = 100 and count(*) = 100 from effect")


def test_handlers_of_an_async_facade(quick: Settings, pgq: PgQ, db: Database) -> None:
    db.rows("create table effect (n int)")
    seen: list[Event] = []
    threads: set[str] = set()
    apgq = AsyncPgQ(settings=quick)

    @apgq.consumer("orders", name="reader")
    async def read(event: Event) -> None:
        seen.append(event)
        threads.add(threading.current_thread().name)

    @apgq.consumer("orders", name="mirror", exactly_once=True)
    def mirror(event: Event, tx: Any) -> None:
        tx.execute("insert into effect values (%s)", [event.json])

    async def main() -> None:
        async with apgq:
            runner = apgq.runner()
            running = asyncio.create_task(runner.run())
            await asyncio.to_thread(wait_until, lambda: len(pgq.consumers()) == 2)
            await apgq.send_many("orders", range(100))
            await asyncio.to_thread(wait_until, lambda: len(seen) == 100 and is_drained(pgq, "mirror"))
            runner.stop()
            async with asyncio.timeout(5):
                await running

    asyncio.run(main())
    assert numbers(seen) == list(range(100))
    assert threads == {"MainThread"}
    assert db.value("select count(distinct n) = 100 and count(*) = 100 from effect")


def test_a_consumer_of_a_large_backlog(pgq: PgQ) -> None:
    """Scenario 13 in small: one window, larger than `max_events` and than a fetch."""
    seen: list[Event] = []
    pgq.register_consumer("orders", "late")
    pgq.send_many("orders", range(20_000))
    pgq.consumer("orders", name="late", max_events=100)(seen.append)
    with pgq.runner():
        wait_until(lambda: is_drained(pgq, "late"))
    assert numbers(seen) == list(range(20_000))


def test_failures_in_the_middle_of_a_large_batch(pgq: PgQ, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are said while the server makes the next answer: there are three. Each event is acknowledged by itself."""
    monkeypatch.setattr("pgq_py.consumers._sync.worker.PROGRESS_INTERVAL", 0.0)
    seen: list[Event] = []

    def handle(event: Event) -> None:
        if event.json % 500 == 321:
            event.dead("as planned")
        seen.append(event)

    pgq.register_consumer("orders", "late")
    pgq.send_many("orders", range(5_000))
    pgq.consumer("orders", name="late")(handle)
    with pgq.runner():
        wait_until(lambda: is_drained(pgq, "late"))
    assert numbers(seen) == [number for number in range(5_000) if number % 500 != 321]
    assert len(pgq.dead_letters("orders", "late")) == 10


def test_progress_within_a_batch_is_recorded(pgq: PgQ, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "PROGRESS_INTERVAL", 0.0)
    seen: list[Any] = []

    @pgq.consumer("orders", name="mailer")
    def mail(event: Event) -> None:
        seen.append(event.json)
        if event.json == 5 and seen.count(5) == 1:
            db.rows("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pgq mailer'")

    with pgq.runner():
        pgq.send_many("orders", range(10))
        wait_until(lambda: is_drained(pgq, "mailer"))
    assert seen == [0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("exactly_once", [False, True])
def test_who_hears_of_an_event_ticks_on_the_way_to_it(db: Database, exactly_once: bool) -> None:
    """Nobody else ticks here, and by itself it would wait for an hour."""
    seen: list[Any] = []
    with PgQ(settings=load_settings(dsn=db.dsn, self_tick_after=3600)) as pgq:
        pgq.create_queue("orders")

        @pgq.consumer("orders", name="one", exactly_once=exactly_once)
        def one(event: Event, tx: Any = None) -> None:
            seen.append(event.json)

        db.rows("select pgq.arm_wake(60000)")
        with pgq.runner():
            wait_until(lambda: db.value(LISTENS))
            for number in range(20):
                pgq.send("orders", number)
                wait_until(partial(operator.eq, seen, list(range(number + 1))))


def test_of_two_consumers_that_hear_of_events_both_get_all(db: Database) -> None:
    first: list[Event] = []
    second: list[Event] = []
    with PgQ(settings=load_settings(dsn=db.dsn, self_tick_after=0.3)) as pgq:
        pgq.create_queue("orders")
        pgq.consumer("orders", name="first")(first.append)
        pgq.consumer("orders", name="second")(second.append)
        db.rows("select pgq.arm_wake(60000)")
        with pgq.runner():
            for number in range(200):
                pgq.send("orders", number)
            wait_until(lambda: len(first) == len(second) == 200)
    assert numbers(first) == numbers(second) == list(range(200))
