"""Applications and consumers behind PgBouncer in transaction mode, the ticker beside it.

Three sessions are shared by all, and nothing is reset in between: state of a session would reach somebody else's.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from pgq_py import Event, RetryPolicy, Settings
from pgq_py.app import PgQ
from pgq_py.settings import load_settings
from pgq_py.ticker import Ticker
from tests.clusters import Database
from tests.consumers.draining import is_drained
from tests.pooler import pgbouncer, pooled
from tests.waiting import wait_until

SESSIONS = 3

LEFT_BEHIND = """
    select (select count(*) from pg_prepared_statements) + (select count(*) from pg_cursors)
         + (select count(*) from pg_listening_channels())
         + (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid())
         + (select count(*) from pg_settings where source = 'session' and name <> 'application_name')
"""

pytestmark = [pytest.mark.newest, pytest.mark.slow]


@pytest.fixture
def behind(pgq: PgQ, db: Database) -> Iterator[Settings]:
    """Settings that lead through the pooler, and so patient that nobody ticks but the ticker."""
    if pgbouncer() is None:
        pytest.skip("PgBouncer is neither installed nor can be")
    with pooled(db, SESSIONS) as dsn:
        yield load_settings(dsn=dsn, self_tick_after=3600, poll_interval=0.01)
        assert left_behind(dsn) == 0


def left_behind(dsn: str) -> int:
    """What is left in all of the pooler's sessions, each held by a transaction meanwhile."""
    total = 0
    with ExitStack() as stack:
        for _ in range(SESSIONS):
            conn = stack.enter_context(psycopg.connect(dsn, prepare_threshold=None))
            row = conn.execute(LEFT_BEHIND).fetchone()
            total += row[0] if row else 0
    return total


@contextmanager
def ticking(settings: Settings) -> Iterator[None]:
    """The ticker, on a direct connection."""
    ticker = Ticker(settings)
    thread = threading.Thread(target=ticker.run)
    thread.start()
    try:
        yield
    finally:
        ticker.stop()
        thread.join()


def test_sending(pgq: PgQ, behind: Settings) -> None:
    with PgQ(settings=behind) as client:
        pgq.register_consumer("orders", "reader")
        for number in range(20):
            client.send("orders", number)
        assert client.send_many("orders", range(20, 1000), chunk_size=100) == 980
        with client.transaction() as tx, client.transaction() as other:
            client.send("orders", 1000, conn=tx)
            client.send("orders", 1001, conn=other)
        with client.pipeline() as pipeline:
            for number in range(1002, 1010):
                pipeline.send("orders", number)
        client.send("orders", 1010, deliver_in=timedelta(0))
        client.release("orders")
        client.force_tick("orders")
        seen = []
        while events := client.receive("orders", "reader", 300):
            seen += [event.json for event in events]
            client.ack("orders", "reader", events.batch_id)  # type: ignore[arg-type]
    assert sorted(seen) == list(range(1011))


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_consumer_with_a_large_window_and_failures(
    pgq: PgQ, quick: Settings, behind: Settings, db: Database, *, exactly_once: bool, caplog: pytest.LogCaptureFixture
) -> None:
    db.rows("create table effect (n int)")
    policy = RetryPolicy(max_retries=1, kind="fixed", base=timedelta(0), jitter=0)
    handed: list[int] = []
    pgq.register_consumer("orders", "mirror")
    pgq.send_many("orders", range(1000))
    with caplog.at_level(logging.WARNING), PgQ(settings=behind) as client, ticking(quick):

        @client.consumer("orders", name="mirror", exactly_once=exactly_once, max_events=100, retries=policy)
        def mirror(event: Event, *tx: Any) -> None:
            handed.append(event.json)
            if event.json in {17, 555}:
                raise ZeroDivisionError
            if tx:
                tx[0].execute("insert into effect values (%s)", [event.json])

        with client.runner():
            wait_until(lambda: is_drained(pgq, "mirror"), timeout=30)
    assert [letter.ev_data for letter in pgq.dead_letters()] == ["17", "555"]
    assert set(handed) == set(range(1000))
    if exactly_once:
        passed = [number for number in range(1000) if number not in {17, 555}]
        assert [row[0] for row in db.rows("select n from effect order by n")] == passed
    assert caplog.text.count("a pooler is in between") == 1


def test_two_workers_of_one_name_do_nothing_twice(pgq: PgQ, quick: Settings, behind: Settings, db: Database) -> None:
    """There is no ownership behind a pooler; the transactions themselves take turns."""
    db.rows("create table effect (n int, worker int)")
    with PgQ(settings=behind) as first, PgQ(settings=behind) as second, ticking(quick):
        for number, worker in enumerate((first, second)):

            @worker.consumer("orders", name="mirror", exactly_once=True, max_events=20, retries=0)
            def mirror(event: Event, tx: Any, number: int = number) -> None:
                if event.json % 500 == 499:
                    raise ZeroDivisionError
                tx.execute("insert into effect values (%s, %s)", [event.json, number])

        with first.runner(), second.runner():
            for start in range(0, 2000, 50):
                first.send_many("orders", range(start, start + 50))
            wait_until(lambda: is_drained(pgq, "mirror"), timeout=30)
    passed = [number for number in range(2000) if number % 500 != 499]
    assert [row[0] for row in db.rows("select n from effect order by n")] == passed
    assert [letter.ev_data for letter in pgq.dead_letters()] == ["499", "999", "1499", "1999"]
    assert db.value("select count(distinct worker) from effect") == 2
