"""Ticks: when one is needed, what it promises, and who may make one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clusters import Database
from tests.engine.support import (
    Conn,
    begin,
    column,
    commit,
    configure,
    create,
    deliver,
    drain,
    force_tick,
    in_background,
    refused,
    rollback,
    rotated,
    send,
    tick,
    value,
)
from tests.waiting import wait_blocked


def _due(conn: Conn) -> list[str]:
    return column(conn, "select * from pgq.queues_due() order by 1")


def _poke(conn: Conn, queue: str = "q") -> Any:
    return value(conn, "select pgq.poke(%s)", queue)


# -- on demand ------------------------------------------------------------------------------------------------------


def test_a_tick_is_made_for_a_new_event_and_for_nothing_else(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    assert (_due(conn), tick(conn), _poke(conn)) == ([], None, None)
    send(conn, "first")
    assert (_due(conn), tick(conn)) == (["q"], 2)
    assert (_due(conn), tick(conn), _poke(conn)) == ([], None, None)
    send(conn, "second")
    assert (_poke(conn), _poke(conn)) == (3, None)
    assert drain(conn) == ["first", "second"]


def test_a_rolled_back_event_needs_no_tick(db: Database) -> None:
    conn = db.connect()
    create(conn)
    begin(conn)
    send(conn, "never")
    rollback(conn)
    assert (_due(conn), tick(conn)) == ([], None)


@pytest.mark.concurrency
def test_a_late_commit_needs_a_tick_of_its_own(db: Database) -> None:
    """No further event comes, and the event sequence has not moved since the last tick."""
    writer, conn = db.connect(), db.connect()
    create(conn, "c")
    begin(writer)
    send(writer, "late")
    send(conn, "early")
    assert deliver(conn) == ["early"]
    assert (_due(conn), tick(conn)) == ([], None)
    commit(writer)
    assert _due(conn) == ["q"]
    assert deliver(conn) == ["late"]


@pytest.mark.concurrency
def test_a_late_commit_is_found_in_a_slot_that_the_ring_has_left(db: Database) -> None:
    writer, conn = db.connect(), db.connect()
    create(conn, "c")
    begin(writer)
    send(writer, "late")
    send(conn, "early")
    tick(conn)
    rotated(conn, "switched")
    force_tick(conn)
    assert drain(conn) == ["early"]
    commit(writer)
    rotated(conn, "closed")
    assert deliver(conn) == ["late"]


@pytest.mark.concurrency
def test_a_bulk_load_in_progress_is_neither_counted_nor_read(db: Database) -> None:
    """The probe must find a small event behind 20,000 invisible ones, without visiting them."""
    loader, conn = db.connect(), db.connect()
    create(conn, "c")
    begin(loader)
    with loader.cursor().copy("copy pgq.event_1_0 (ev_type, ev_data) from stdin") as copy:
        for number in range(20_000):
            copy.write_row(("bulk", str(number)))
    assert (_due(conn), tick(conn)) == ([], None)
    assert _blocks_of_a_probe(conn) < 100
    send(conn, "small")
    assert _due(conn) == ["q"]
    assert _blocks_of_a_probe(conn) < 100
    assert deliver(conn) == ["small"]
    assert tick(conn) is None
    commit(loader)
    assert tick(conn) is not None
    assert len(drain(conn)) == 20_000


def _blocks_of_a_probe(conn: Conn) -> int:
    """Blocks of the event slots and their indexes that one look at the queue touches."""
    query = "explain (analyze, buffers, format json) select * from pgq.queues_due()"
    plan = value(conn, query)[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


# -- PgQ's settings -------------------------------------------------------------------------------------------------


def test_ticker_max_count(db: Database) -> None:
    conn = db.connect()
    create(conn)
    configure(conn, "ticker_max_count", "3")
    configure(conn, "ticker_max_lag", "1 day")
    send(conn, "1", "2")
    assert tick(conn) is None
    send(conn, "3")
    assert tick(conn) == 2


def test_ticker_max_lag(db: Database) -> None:
    conn = db.connect()
    create(conn)
    configure(conn, "ticker_max_lag", "0")
    assert tick(conn) is None
    send(conn, "1")
    assert tick(conn) == 2
    configure(conn, "ticker_max_lag", "1 day")
    send(conn, "2")
    assert tick(conn) is None


def test_ticker_idle_period(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    configure(conn, "ticker_idle_period", "0")
    assert [tick(conn), tick(conn)] == [2, 3]
    configure(conn, "ticker_idle_period", "1 day")
    assert tick(conn) is None
    assert deliver(conn) == []


# -- what a tick promises -------------------------------------------------------------------------------------------


def test_an_event_sent_after_the_tick_of_its_own_transaction(db: Database) -> None:
    """A snapshot leaves its own transaction out; stored like that, the second event would count as seen."""
    conn, other = db.connect(), db.connect()
    create(conn, "c")
    begin(conn)
    send(conn, "before")
    send(other, "other")  # completes, so that the transaction's own id is below the snapshot's xmax
    assert force_tick(conn) == 2
    send(conn, "after")
    commit(conn)
    assert drain(conn) == ["other"]
    assert deliver(conn) == ["before", "after"]


@pytest.mark.concurrency
def test_a_tick_among_other_transactions_of_every_age(db: Database) -> None:
    """The ticking transaction's id lies between others, running, committed and rolled back."""
    older, ticker, younger, conn = (db.connect() for _ in range(4))
    create(conn, "c")
    for session, data in ((older, "older"), (ticker, "mine"), (younger, "younger")):
        begin(session)
        send(session, data)
    send(conn, "done")
    force_tick(ticker)
    send(ticker, "mine too")
    commit(younger)
    commit(ticker)
    assert drain(conn) == ["done"]
    assert sorted(deliver(conn)) == ["mine", "mine too", "younger"]
    commit(older)
    assert deliver(conn) == ["older"]


def test_tick_times_never_go_back(db: Database) -> None:
    conn = db.connect()
    create(conn)
    configure(conn, "external_ticker", "true")
    assert value(conn, "select pgq.ticker('q', 5, '2999-01-01', 100)") == 5
    assert value(conn, "select pgq.ticker('q', 6, '1999-01-01', 50)") == 6
    configure(conn, "external_ticker", "false")
    assert force_tick(conn) == 7
    assert column(conn, "select distinct extract(year from tick_time)::int from pgq.tick where tick_id > 1") == [2999]
    assert column(conn, "select tick_event_seq from pgq.tick where tick_id > 1 order by tick_id") == [100, 100, 100]


@pytest.mark.concurrency
def test_several_tickers_make_one_tick(db: Database) -> None:
    """The loser waits for the queue's lock, looks again, and finds nothing to do."""
    first, second, observer = db.connect(), db.connect(), db.connect()
    create(observer, "c")
    send(observer, "x")
    begin(first)
    assert tick(first) == 2
    assert _poke(second) is None  # does not wait
    waiting = in_background(lambda: tick(second))
    wait_blocked(observer, second.info.backend_pid)
    commit(first)
    assert waiting.result(30) is None
    assert drain(observer) == ["x"]


@pytest.mark.concurrency
def test_a_tick_that_was_rolled_back_takes_nothing_with_it(db: Database) -> None:
    first, second, observer = db.connect(), db.connect(), db.connect()
    create(observer, "c")
    send(observer, "x")
    begin(first)
    tick(first)
    waiting = in_background(lambda: tick(second))
    wait_blocked(observer, second.info.backend_pid)
    rollback(first)
    assert waiting.result(30) == 2
    assert drain(observer) == ["x"]


# -- who may --------------------------------------------------------------------------------------------------------


def test_a_paused_queue_keeps_its_events(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    create(conn, queue="other")
    send(conn, "waiting")
    tick(conn)
    assert [value(conn, "select pgq.pause_queue('q')") for _ in range(2)] == [1, 0]
    send(conn, "held")
    with refused("PQ004", "paused"):
        tick(conn)
    assert (_poke(conn), _due(conn), value(conn, "select pgq.ticker()")) == (None, [], 0)
    assert force_tick(conn) == 2
    assert drain(conn) == ["waiting"]
    assert value(conn, "select queue_ticker_paused from pgq.get_queue_info('q')") is True
    assert [value(conn, "select pgq.resume_queue('q')") for _ in range(2)] == [1, 0]
    assert deliver(conn) == ["held"]


@pytest.mark.concurrency
def test_a_ticker_that_waited_sees_the_pause(db: Database) -> None:
    admin, ticker, forcer, conn = (db.connect() for _ in range(4))
    create(conn, "c")
    send(conn, "x")
    begin(admin)
    value(admin, "select pgq.pause_queue('q')")
    waiting = [in_background(lambda: tick(ticker)), in_background(lambda: force_tick(forcer))]
    for session in (ticker, forcer):
        wait_blocked(conn, session.info.backend_pid)
    commit(admin)
    assert [future.result(30) for future in waiting] == [None, 1]
    assert drain(conn) == []


def test_an_external_ticker_has_its_queue_for_itself(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    with refused("PQ001", "queue not found or ticker disabled: q"):
        value(conn, "select pgq.ticker('q', 10, now(), 1)")
    configure(conn, "external_ticker", "true")
    send(conn, "a")
    with refused("PQ011", "external tick source"):
        tick(conn)
    assert (_poke(conn), _due(conn), value(conn, "select pgq.ticker()"), force_tick(conn)) == (None, [], 0, 1)
    assert value(conn, "select pgq.ticker('q', 10, '2020-01-01', 500)") == 10
    assert drain(conn) == ["a"]
    assert send(conn, "b") == [501]
    for bad in (10, 9, -1, None):
        with refused("PQ006", "not greater than the last one, 10"):
            value(conn, "select pgq.ticker('q', %s, now(), 600)", bad)
    for bad_time in ("infinity", "-infinity"):
        with refused("PQ006", f"cannot be {bad_time}"):
            value(conn, "select pgq.ticker('q', 11, %s, 600)", bad_time)
    assert send(conn, "c") == [502]
    assert value(conn, "select pgq.ticker('q', 11, null, null)") == 11
    assert drain(conn) == ["b", "c"]
