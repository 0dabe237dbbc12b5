"""Workers that are killed, cut off, doubled or asked to stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from operator import contains
from pathlib import Path
from typing import Any

import pytest

from pgq_py import Event, Settings
from pgq_py.app import PgQ
from pgq_py.settings import load_settings
from tests.clusters import Database
from tests.consumers.test_delivery import is_drained
from tests.waiting import wait_until

TERMINATE = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pgq mirror'"


def mirrored(pgq: PgQ, delay: float = 0.0) -> list[Any]:
    """Declare the exactly-once consumer `mirror` on a facade; returns the calls that it gets."""
    calls: list[Any] = []

    @pgq.consumer("orders", name="mirror", exactly_once=True, max_events=20)
    def mirror(event: Event, tx: Any) -> None:
        calls.append(event.json)
        threading.Event().wait(delay)
        tx.execute("insert into effect values (%s)", [event.json])

    return calls


@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_ring_that_rotates_at_that_moment_costs_no_session(
    pgq: PgQ, db: Database, caplog: pytest.LogCaptureFixture, *, exactly_once: bool
) -> None:
    """Each third row of a cursor is refused, as by a slot that has just been closed."""
    db.rows("create sequence nth")
    db.rows(
        "create function public.refuse() returns trigger language plpgsql as $$ begin"
        " if nextval('public.nth') % 3 = 0 then"
        " raise exception 'closed' using errcode = '40001'; end if; return new; end $$"
    )
    for slot in range(3):
        db.rows(
            f"create trigger refuse before insert on pgq.cursor_ring_{slot}"
            " for each row when (new.sub_id > 0) execute function public.refuse()"
        )
    got: list[Any] = []

    @pgq.consumer("orders", name="mirror", exactly_once=exactly_once)
    def mirror(event: Event, *tx: Any) -> None:
        got.append(event.json)

    with pgq.runner():
        for number in range(5):
            pgq.send("orders", number)
            wait_until(lambda: number in got)  # noqa: B023
        wait_until(lambda: is_drained(pgq, "mirror"))
    assert sorted(set(got)) == list(range(5))
    assert [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


@pytest.mark.concurrency
def test_two_workers_under_one_name(quick: Settings, pgq: PgQ, db: Database) -> None:
    """Scenarios 5 and 15: one owner, one standby, which takes over at once when the owner's session ends."""
    db.rows("create table effect (n int)")
    twins = [PgQ(settings=quick), PgQ(settings=quick)]
    calls = [mirrored(twin, delay=0.001) for twin in twins]
    with twins[0].runner() as first:
        pgq.send("orders", 0)
        wait_until(lambda: calls[0])
        with twins[1].runner():
            pgq.send_many("orders", range(1, 2000))
            wait_until(lambda: len(calls[0]) > 100)
            assert calls[1] == []
            first.stop()
            assert first.join(5)
            wait_until(lambda: calls[1], timeout=15)
            wait_until(lambda: is_drained(pgq, "mirror"))
    assert [row[0] for row in db.rows("select n from effect order by n")] == list(range(2000))


@pytest.mark.concurrency
def test_two_owners_take_turns(quick: Settings, pgq: PgQ, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly-once rests on row locks, not on the ownership: here both workers believe that they own."""
    from pgq_py.client._sync.subscription import Subscription

    monkeypatch.setattr(Subscription, "own", lambda _: True)
    db.rows("create table effect (n int)")
    twins = [PgQ(settings=quick), PgQ(settings=quick)]
    calls = [mirrored(twin) for twin in twins]
    with twins[0].runner(), twins[1].runner():
        for start in range(0, 3000, 100):
            pgq.send_many("orders", range(start, start + 100))
        wait_until(lambda: is_drained(pgq, "mirror"), timeout=30)
    assert all(calls)
    assert [row[0] for row in db.rows("select n from effect order by n")] == list(range(3000))


@pytest.mark.crash
def test_a_terminated_connection_is_made_anew(pgq: PgQ, db: Database) -> None:
    """Scenario 15: back within two seconds, nothing lost, nothing twice."""
    db.rows("create table effect (n int)")
    calls = mirrored(pgq, delay=0.001)
    with pgq.runner():
        for start in range(0, 300, 100):
            pgq.send_many("orders", range(start, start + 100))
            wait_until(partial(contains, calls, start))
            assert db.rows(TERMINATE)
            wait_until(partial(contains, calls, start + 99), timeout=2)
        wait_until(lambda: is_drained(pgq, "mirror"))
        assert db.rows(TERMINATE), "also while it waits"
        pgq.send("orders", 300)
        wait_until(lambda: 300 in calls, timeout=2)
    assert [row[0] for row in db.rows("select n from effect order by n")] == list(range(301))


@pytest.mark.crash
@pytest.mark.parametrize("exactly_once", [True, False])
def test_the_server_crashes_and_comes_back(private_db: Database, exactly_once: bool) -> None:
    with PgQ(settings=load_settings(dsn=private_db.dsn, poll_interval=0.01, self_tick_after=0.02)) as pgq:
        pgq.create_queue("orders")
        private_db.rows("create table effect (n int)")
        calls: list[Any] = []
        if exactly_once:
            calls = mirrored(pgq, delay=0.001)
        else:
            pgq.consumer("orders", name="mirror")(lambda event: calls.append(event.json))
        with pgq.runner():
            pgq.send_many("orders", range(200))
            wait_until(lambda: len(calls) > 50)
            private_db.server.crash()
            private_db.server.start()
            started = time.monotonic()
            pgq.close()
            pgq.send("orders", 200)
            wait_until(lambda: 200 in calls)
            assert time.monotonic() - started < 3
            wait_until(lambda: is_drained(pgq, "mirror"))
    assert sorted(set(calls)) == list(range(201))
    if exactly_once:
        assert private_db.rows("select n from effect order by n") == [(number,) for number in range(201)]


@contextmanager
def shop(db: Database) -> Iterator[subprocess.Popen[bytes]]:
    """The application of tests/consumers/shop.py as a process."""
    command = [sys.executable, "-W", "error", "-m", "tests.consumers.shop"]
    environment = {**os.environ, "PGQ_DSN": db.dsn, "PGQ_SELF_TICK_AFTER": "0.02"}
    process = subprocess.Popen(command, cwd=Path(__file__).parents[2], env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def effects(pgq: PgQ, db: Database) -> Database:
    pgq.create_queue("slow")
    pgq.register_consumer("orders", "mirror")
    pgq.register_consumer("slow", "sleeper")
    db.rows("create table effect (what text, ev_id bigint)")
    return db


@pytest.mark.crash
@pytest.mark.slow
def test_a_killed_process_repeats_no_effect(pgq: PgQ, effects: Database) -> None:
    pgq.send_many("orders", range(10_000))
    for least in (1000, 3000, 6000):
        with shop(effects) as process:
            wait_until(partial(effects.value, "select count(*) >= %s from effect", [least]))
            process.send_signal(signal.SIGKILL)
    with shop(effects):
        wait_until(lambda: is_drained(pgq, "mirror"), timeout=30)
    assert effects.rows("select ev_id from effect order by ev_id") == [(number,) for number in range(1, 10_001)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait_at_once(effects: Database, number: signal.Signals) -> None:
    """Scenario 21."""
    with shop(effects) as process:
        wait_until(
            lambda: effects.value("select count(*) from pg_stat_activity where application_name like 'pgq %'") >= 2
        )
        started = time.monotonic()
        process.send_signal(number)
        assert process.wait(5) == 0
        assert time.monotonic() - started < 1


def test_a_signal_lets_the_handler_finish(pgq: PgQ, effects: Database) -> None:
    """Scenario 21: not the batch, the handler."""
    pgq.send_many("slow", range(10))
    with shop(effects) as process:
        wait_until(lambda: effects.value("select count(*) from effect where what = 'begun'") == 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 0
    assert effects.rows("select what, ev_id from effect order by ctid") == [("begun", 1), ("done", 1)]
    with pgq.batches("slow", "sleeper", wait=0) as batches:
        assert [event.id for batch in batches for event in batch] == list(range(2, 11))


def test_stop_while_waiting_and_while_handling(pgq: PgQ) -> None:
    begun, go_on = threading.Event(), threading.Event()
    seen: list[Event] = []

    @pgq.consumer("orders", name="mailer")
    def mail(event: Event) -> None:
        begun.set()
        go_on.wait(30)
        seen.append(event)

    runner = pgq.runner()
    runner.start()
    pgq.send_many("orders", range(10))
    assert begun.wait(30)
    runner.stop()
    assert not runner.join(0.05)
    go_on.set()
    assert runner.join(2)
    assert len(seen) == 1
    with pgq.batches("orders", "mailer", wait=0) as batches:
        assert [event.json for batch in batches for event in batch] == list(range(1, 10))
    with pgq.runner() as waiting:
        started = time.monotonic()
        waiting.stop()
        assert waiting.join(2)
        assert time.monotonic() - started < 0.5
