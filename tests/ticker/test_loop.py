"""The ticker at work: it ticks what is due, shrugs off what breaks, and stops when told."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from math import inf

import pytest

from pgq_py import ConnectionFailed, SchemaMissing
from pgq_py.app import PgQ
from pgq_py.client.acompat import Stop
from pgq_py.settings import load_settings
from pgq_py.ticker import Ticker, session
from tests.clusters import Database
from tests.engine.support import Conn
from tests.ticker.conftest import running_ticker
from tests.waiting import wait_until

SESSION = "select pid from pg_stat_activity where application_name = %s and pid <> %s"


def ticks(db: Database, queue: str = "orders") -> int:
    return int(db.value("select last_tick_id from pgq.get_queue_info(%s)", [queue]))


def _has_ticked(db: Database, number: int) -> bool:
    return ticks(db) >= number


def wait_for_ticks(ticker: Ticker, count: int, timeout: float = 30) -> None:
    wait_until(lambda: ticker.ticks >= count, timeout, f"tick {count}")
    assert ticker.ticks == count


@contextmanager
def in_threads(over: threading.Event, *targets: Callable[[], None]) -> Iterator[None]:
    """They run until the end of the block, of which they are told."""
    over.clear()
    threads = [threading.Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_it_ticks_when_there_is_something_new_and_not_otherwise(pgq: PgQ, db: Database) -> None:
    with running_ticker(db.dsn, tick_interval=0.01) as ticker:
        before = ticks(db)
        for number in range(3):
            pgq.send("orders", number)
            wait_for_ticks(ticker, number + 1)
        assert ticks(db) == before + 3
    assert ticks(db) == before + 3
    assert [event.json for event in pgq.receive("orders", "mailer")] == [0, 1, 2]


def test_it_leaves_an_event_to_those_who_have_ticked_for_it(
    pgq: PgQ, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And looks once more, for their snapshots may be a moment older than their times."""
    now = 1000.0
    monkeypatch.setattr(session, "monotonic", lambda: now)
    with db.connect() as conn, db.connect() as other:
        own = session.Session(conn, load_settings(dsn=db.dsn), Stop())
        conn.execute("listen pgq_wake")
        own._arm()
        own.beat()
        own._full_at = own._look_at = inf

        def hears() -> bool:
            own.beat()
            return own._tended["orders"].untended_since is not None

        pgq.send("orders", "announced")
        wait_until(hears, what="the announcement")
        other.execute("select pgq.tick_now('orders')")
        other.execute("set pgq.wake = off")
        other.execute("select pgq.send('orders', 't', 'as if the snapshot were older')")
        now += 60
        own.beat()
        assert own.ticks == 0
        now += session.LAST_LOOK
        own.beat()
        assert own.ticks == 1


def rushing(conn: Conn, db: Database, monkeypatch: pytest.MonkeyPatch) -> session.Session:
    """A session in a rush that does not end."""
    own = session.Session(conn, load_settings(dsn=db.dsn), Stop())
    monkeypatch.setattr(own._pace, "decide", lambda _: False)
    own._pace.busy = True
    return own


def test_in_a_rush_it_leaves_a_queue_to_those_who_tick_it(
    pgq: PgQ, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody announces anything then. What they leave it ticks when they have not ticked for a while."""
    now = 1000.0
    monkeypatch.setattr(session, "monotonic", lambda: now)
    with db.connect() as conn, db.connect() as other:
        own = rushing(conn, db, monkeypatch)
        pgq.send("orders", 1)
        other.execute("select pg_sleep(0.02)")
        own.beat()
        assert own.ticks == 1
        monkeypatch.setattr(session, "LENIENCE", 60.0)
        now += 30  # as old as that, at most, is a tick of somebody else
        other.execute("select pgq.send('orders', 't', 'ticked by somebody else')")
        other.execute("select pgq.tick_now('orders')")
        other.execute("select pgq.send('orders', 't', 'not ticked')")
        own.beat()
        assert own.ticks == 1
        other.execute("select pg_sleep(0.02)")
        now += 30
        own.beat()
        assert own.ticks == 1
        monkeypatch.setattr(session, "LENIENCE", 0.01)
        now += 30
        own.beat()
        assert own.ticks == 2


def test_in_a_rush_what_was_released_is_ticked_at_once(pgq: PgQ, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "LENIENCE", 60.0)
    with db.connect() as conn, db.connect() as other:
        own = rushing(conn, db, monkeypatch)
        pgq.send("orders", 1, deliver_in=timedelta(milliseconds=10))
        own._refresh_releases(None)
        other.execute("select pgq.send('orders', 't', 'ticked by somebody else')")
        other.execute("select pgq.tick_now('orders')")
        wait_until(lambda: own._release_at["orders"] < time.monotonic())
        own._release("orders")
        assert own.ticks == 1


def test_several_tickers_and_a_consumer(pgq: PgQ, db: Database) -> None:
    """Scenario 3, briefly: each event once."""
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(running_ticker(db.dsn, tick_interval=0.005))
        for start in range(0, 2000, 100):
            pgq.send_many("orders", range(start, start + 100))
        with pgq.batches("orders", "mailer", wait=2) as batches:
            seen: list[int] = []
            for batch in batches:
                seen += [event.json for event in batch]
                if len(seen) >= 2000:
                    break
    assert seen == list(range(2000))


@pytest.mark.crash
def test_terminated_connections_are_made_anew(pgq: PgQ, db: Database) -> None:
    """Scenario 15: ticker and maintenance are back by themselves."""
    with running_ticker(db.dsn, tick_interval=0.01, maintenance_interval=0.05) as ticker:
        pgq.send("orders", "x")
        wait_for_ticks(ticker, 1)
        for name in ("pgq ticker", "pgq maintenance"):
            ((pid,),) = wait_until(partial(db.rows, SESSION, [name, 0]))
            assert db.rows("select pg_terminate_backend(%s)", [pid])
            wait_until(partial(db.rows, SESSION, [name, pid]), timeout=10)
        pgq.send("orders", "x")
        wait_for_ticks(ticker, 2, timeout=10)


@pytest.mark.crash
def test_the_server_crashes_and_comes_back(private_db: Database) -> None:
    with PgQ(private_db.dsn) as pgq, running_ticker(private_db.dsn, tick_interval=0.01) as ticker:
        pgq.create_queue("orders")
        pgq.send("orders", "x")
        wait_for_ticks(ticker, 1)
        private_db.server.crash()
        private_db.server.start()
        pgq.close()
        pgq.send("orders", "x")
        wait_for_ticks(ticker, 2, timeout=10)


def test_one_broken_queue_stops_no_other_and_is_reported_once(
    pgq: PgQ, db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """Scenario 11: the last tick of one queue claims a snapshot from the future."""
    pgq.create_queue("broken")
    slot = db.value("select tableoid::regclass::text from pgq.tick_ring limit 1")
    damage = f"update {slot} set tick_snapshot = '9000000000:9000000000:' where tick_queue = %s"
    db.rows(damage, [db.value("select queue_id from pgq.queue where queue_name = 'broken'")])
    pgq.send("broken", "x")
    with caplog.at_level(logging.ERROR), running_ticker(db.dsn, tick_interval=0.01) as ticker:
        for number in range(3):
            pgq.send("orders", "x")
            wait_for_ticks(ticker, number + 1)
        session = ticker._session
        assert session is not None
        wait_until(lambda: session._failed_at)
        first = session._failed_at["broken"]
        pgq.send("broken", "x")
        wait_until(lambda: session._failed_at["broken"] > first, what="a second try")
    assert [record.message.partition(":")[0] for record in caplog.records] == ["queue broken"]


def test_a_queue_that_somebody_has_locked_stalls_no_other(pgq: PgQ, db: Database) -> None:
    """An administrator's transaction that is not committed yet: the other queues tick, and that one does afterwards."""
    pgq.create_queue("locked")
    with db.connect(autocommit=False) as admin, running_ticker(db.dsn) as ticker:
        admin.execute("select pgq.set_queue_config('locked', 'rotation_period', '1 hour')")
        pgq.send("locked", "x")
        for number in range(3):
            pgq.send("orders", "x")
            wait_until(partial(_has_ticked, db, 2 + number), 5)
        assert ticks(db, "locked") == 1
        admin.commit()
        wait_until(lambda: ticks(db, "locked") == 2)
        assert ticker.leads


def test_producers_in_each_others_way_are_asked_to_notify_no_more(private_db: Database) -> None:
    """At a rate that one alone has no trouble with: a commit takes 5 ms, and PostgreSQL lets one notify at a time."""
    for statement in (
        "alter system set fsync = on",
        "alter system set commit_siblings = 0",
        "alter system set commit_delay = 5000",
        "select pg_reload_conf()",
    ):
        private_db.rows(statement)
    over = threading.Event()

    def produce() -> None:
        with private_db.connect() as conn:
            while not over.is_set():
                pgq.send("orders", 1, conn=conn)

    with PgQ(private_db.dsn) as pgq, running_ticker(private_db.dsn) as ticker:
        pgq.create_queue("orders")
        wait_until(lambda: ticker._session, what="a session")
        assert ticker._session is not None
        pace = ticker._session._pace
        with in_threads(over, produce):
            wait_until(lambda: len(pace._committing) == pace.LOOKS, what="looks")
            assert not pace.busy
        with in_threads(over, *[produce] * 4):
            wait_until(lambda: private_db.value("select pgq.wake_armed_ms()") == 0, what="no more notifications")
            assert pace._calm < 750
        wait_until(lambda: private_db.value("select pgq.wake_armed_ms()") > 0, what="notifications")


def test_paused_and_dropped_queues_are_left_alone(pgq: PgQ, db: Database, caplog: pytest.LogCaptureFixture) -> None:
    with running_ticker(db.dsn, tick_interval=0.01) as ticker:
        pgq.pause_queue("orders")
        pgq.send("orders", "x")
        pgq.create_queue("other")
        pgq.send("other", "x")
        wait_for_ticks(ticker, 1)
        pgq.drop_queue("other", force=True)
        pgq.resume_queue("orders")
        wait_for_ticks(ticker, 2)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_once(pgq: PgQ, db: Database) -> None:
    pgq.send("orders", "x")
    assert Ticker(load_settings(dsn=db.dsn)).run_once() == 1
    assert Ticker(load_settings(dsn=db.dsn)).run_once() == 0


def test_what_is_wrong_from_the_start_is_raised(empty_db: Database) -> None:
    for dsn, error in [(empty_db.dsn, SchemaMissing), ("host=/nowhere", ConnectionFailed)]:
        for run in (Ticker(load_settings(dsn=dsn)).run, Ticker(load_settings(dsn=dsn)).run_once):
            with pytest.raises(error):
                run()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(pgq: PgQ, db: Database, number: signal.Signals) -> None:
    """Scenario 21."""
    command = [sys.executable, "-W", "error", "-c", "from pgq_py.ticker import Ticker; Ticker().run()"]
    process = subprocess.Popen(command, env={**os.environ, "PGQ_DSN": db.dsn})
    try:
        pgq.send("orders", "x")
        wait_until(lambda: not pgq.queues_due())
        started = time.monotonic()
        process.send_signal(number)
        assert process.wait(5) == 0
        assert time.monotonic() - started < 3  # not the 5 s of its longest sleep, on a machine at work
    finally:
        process.kill()
        process.wait()
