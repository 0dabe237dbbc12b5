"""Batches: what lies between two ticks, all of it, once, in the order of ids; and how windows are chosen and merged."""

from __future__ import annotations

from typing import Any, LiteralString

import pytest
from psycopg import sql

from tests.clusters import Database
from tests.engine.support import (
    OLD_SNAPSHOTS,
    Conn,
    batch_data,
    begin,
    column,
    commit,
    configure,
    create,
    deliver,
    drain,
    finish,
    force_tick,
    in_background,
    next_batch,
    receive,
    refused,
    rollback,
    rotate_until,
    rotated,
    rows,
    send,
    send_and_tick,
    take,
    tick,
    value,
)
from tests.waiting import wait_blocked

INFO: LiteralString = "select batch_id, prev_tick_id, cur_tick_id, prev_tick_event_seq, cur_tick_event_seq"


def _open(conn: Conn, most: int, consumer: str = "c") -> tuple[Any, list[str]]:
    batch = value(conn, "select batch_id from pgq.open_batch('q', %s, %s)", consumer, most)
    return batch, (batch_data(conn, batch) if batch else [])


def _custom(conn: Conn, lag: str | None = None, count: int | None = None, interval: str | None = None) -> Any:
    query: LiteralString = "select prev_tick_id, cur_tick_id from pgq.next_batch_custom('q', 'c', %s, %s, %s)"
    return rows(conn, query, lag, count, interval)[0]


# -- the window -----------------------------------------------------------------------------------------------------


def test_every_column_arrives(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    begin(conn)
    xid, now = rows(conn, "select pg_current_xact_id()::text::bigint, now()")[0]
    event = value(conn, "select pgq.insert_event('q', 'type', 'data', '1', '2', '3', '4')")
    commit(conn)
    tick(conn)
    batch = next_batch(conn)
    expected = (event, now, xid, None, "type", "data", "1", "2", "3", "4")
    assert rows(conn, "select * from pgq.get_batch_events(%s)", batch) == [expected]
    text = value(conn, "select pgq.batch_event_sql(%s)", batch)
    (direct,) = conn.execute(text.encode()).fetchall()
    assert (*direct[:2], int(direct[2]), *direct[3:]) == expected
    begin(conn)
    assert rows(conn, "select * from pgq.get_batch_cursor(%s, 'all', 10)", batch) == [expected]
    commit(conn)
    assert rows(conn, "select batch_id, ev_id, ev_data from pgq.receive('q', 'c')") == [(batch, event, "data")]


def test_a_batch_is_in_the_order_of_ids(db: Database) -> None:
    """In the order of transactions, an update that waited for another's row lock would be mirrored before it."""
    first, second, conn = db.connect(), db.connect(), db.connect()
    create(conn, "c")
    begin(first)
    rows(first, "select pg_current_xact_id()")
    begin(second)
    ids = send(second, "1")
    ids += send(first, "2")
    ids += send(second, "3")
    commit(first)
    commit(second)
    ids += send(conn, "4")
    rotate_until(conn, "switched")
    ids += send(conn, "5")
    tick(conn)
    batch = next_batch(conn)
    assert column(conn, "select ev_id from pgq.get_batch_events(%s)", batch) == ids == sorted(ids)
    begin(conn)
    value(conn, "select count(*) from pgq.get_batch_cursor(%s, 'all', 2)", batch)
    assert column(conn, 'fetch all from "all"') == ids[2:]
    commit(conn)
    assert receive(conn)[1] == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("level", OLD_SNAPSHOTS)
def test_reading_needs_a_fresh_snapshot(db: Database, level: str) -> None:
    reader, conn = db.connect(), db.connect()
    create(conn, "c")
    begin(reader, level)
    send(conn, "x")
    tick(conn)
    batch = next_batch(conn)
    calls: list[LiteralString] = [
        "select pgq.batch_event_sql(%s)",
        "select pgq.batch_event_tables(%s)",
        "select * from pgq.get_batch_events(%s)",
        "select * from pgq.get_batch_cursor(%s, 'x', 1)",
    ]
    reader.execute("savepoint s")
    for call in calls:
        with refused("PQ007"):
            reader.execute(call, [batch])
        reader.execute("rollback to s")
    rollback(reader)
    assert drain(conn) == ["x"]


def test_a_window_is_bounded_by_its_ticks(db: Database) -> None:
    """Whatever came since, in whichever slot, is for later."""
    conn = db.connect()
    create(conn, "c")
    send(conn, "a")
    tick(conn)
    batch = next_batch(conn)
    send(conn, "b")
    rotated(conn, "switched")
    send(conn, "c")
    tick(conn)
    assert batch_data(conn, batch) == ["a"]
    assert column(conn, "select * from pgq.batch_event_tables(%s)", batch) == ["pgq.event_1_0"]
    assert next_batch(conn) == batch
    finish(conn, batch)
    assert drain(conn) == ["b", "c"]


def test_a_long_transaction_elsewhere_does_not_widen_the_scan(db: Database) -> None:
    old, conn = db.connect(), db.connect()
    create(conn, "c")
    begin(old)
    rows(old, "select pg_current_xact_id()")
    value(conn, "select cardinality(pgq.send_batch('q', 't', array_agg(g::text))) from generate_series(1, 5000) g")
    tick(conn)
    assert len(take(conn) or []) == 5000
    send(conn, "next")
    tick(conn)
    text = value(conn, "select pgq.batch_event_sql(%s)", next_batch(conn))
    plan = conn.execute(f"explain (analyze, buffers, format json) {text}".encode()).fetchall()[0][0][0]["Plan"]
    assert plan["Actual Rows"] == 1
    assert plan["Shared Hit Blocks"] < 20


def test_an_event_of_another_registration_is_left_out(db: Database) -> None:
    conn = db.connect()
    create(conn, "c", "d")
    owner = value(
        conn, "select sub_id from pgq.registration join pgq.consumer on co_id = sub_consumer where co_name = 'd'"
    )
    value(conn, "select pgq.insert_event_raw('q', null, null, %s, 1, 't', 'for d', null, null, null, null)", owner)
    send(conn, "for all")
    tick(conn)
    assert drain(conn) == ["for all"]
    assert drain(conn, "d") == ["for d", "for all"]


# -- taking and finishing -------------------------------------------------------------------------------------------


def test_nothing_waiting(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    assert next_batch(conn) is None
    assert _open(conn, 10) == (None, [])
    assert receive(conn) == (None, [])
    assert value(conn, "select count(*) from pgq.cursor_ring where sub_id > 0") == 1  # a poll writes nothing


def test_an_open_batch_comes_again_until_it_is_finished(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    send(conn, "a")
    tick(conn)
    batch = next_batch(conn)
    send(conn, "b")
    tick(conn)
    assert (next_batch(conn), batch_data(conn, batch)) == (batch, ["a"])
    assert _open(conn, 1000) == (batch, ["a"])
    finish(conn, batch)
    assert value(conn, "select pgq.finish_batch(%s)", batch) == 0
    assert value(conn, "select pgq.finish_batch(null)") == 0
    assert drain(conn) == ["b"]


def test_a_finish_that_was_rolled_back_redelivers(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    send(conn, "a")
    tick(conn)
    begin(conn)
    assert take(conn) == ["a"]
    rollback(conn)
    assert take(conn) == ["a"]
    assert take(conn) is None


def test_finished_and_unknown_batches(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    send(conn, "a")
    tick(conn)
    batch = next_batch(conn)
    finish(conn, batch)
    for gone in (batch, batch + 1, -1, None):
        for call in ("select pgq.batch_event_sql(%s)", "select * from pgq.get_batch_events(%s)"):
            with refused("PQ003", "batch not found"):
                conn.execute(call.encode(), [gone])
        assert rows(conn, "select * from pgq.get_batch_info(%s)", gone) == [(None,) * 9]


@pytest.mark.concurrency
def test_two_workers_of_one_name_take_turns(db: Database) -> None:
    """Each in one transaction from taking to finishing: the second waits, and gets what comes next."""
    first, second, conn = db.connect(), db.connect(), db.connect()
    create(conn, "c")
    for data in "ab":
        send(conn, data)
        tick(conn)
    begin(first)
    assert take(first) == ["a"]
    waiting = in_background(lambda: take(second))
    assert wait_blocked(conn, second.info.backend_pid) == [first.info.backend_pid]
    commit(first)
    assert waiting.result(30) == ["b"]


@pytest.mark.concurrency
def test_a_registration_replaced_meanwhile_is_locked_too(db: Database) -> None:
    """A worker that waited for one that was removed goes on with the new one, and holds it as firmly."""
    admin, first, second, conn = (db.connect() for _ in range(4))
    create(conn, "c")
    send(conn, "old")
    tick(conn)
    begin(admin)
    value(admin, "select pgq.unregister_consumer('q', 'c')")
    value(admin, "select pgq.register_consumer_at('q', 'c', 1)")
    begin(first)
    waiting = in_background(lambda: next_batch(first))
    wait_blocked(conn, first.info.backend_pid)
    commit(admin)
    batch = waiting.result(30)
    follower = in_background(lambda: take(second))
    assert wait_blocked(conn, second.info.backend_pid) == [first.info.backend_pid]
    finish(first, batch)
    commit(first)
    assert follower.result(30) is None


# -- merging windows ------------------------------------------------------------------------------------------------


def test_empty_windows_are_one_batch_with_the_next_events(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    for _ in range(4):
        force_tick(conn)
    send(conn, "a")
    tick(conn)
    send(conn, "b")
    tick(conn)
    assert rows(conn, INFO + " from pgq.next_batch_info('q', 'c')")[0][1:] == (1, 6, 0, 1)
    assert [take(conn), take(conn), take(conn)] == [["a"], ["b"], None]
    force_tick(conn)
    assert [take(conn), take(conn)] == [[], None]  # an empty batch, for it lets go of an old slot


@pytest.mark.newest
@pytest.mark.slow
def test_a_consumer_that_was_away_for_ten_thousand_ticks(db: Database) -> None:
    """Stopped while an event came with each of 10,000 ticks: it catches up in a few batches."""
    conn = db.connect()
    create(conn, "c", "one")
    send_and_tick(conn, 10_000)
    sizes = []
    while (opened := _open(conn, 4000))[0]:
        sizes.append(len(opened[1]))
        finish(conn, opened[0])
    assert sizes == [4000, 4000, 2000]
    batch, data = _open(conn, 2_000_000_000, "one")
    assert data == [str(number) for number in range(1, 10_001)]
    assert value(conn, "select tick_id - prev_tick_id from pgq.get_batch_info(%s)", batch) == 10_000


def test_open_batch_merges_windows_up_to_a_number_of_events(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    for size in (3, 3, 10, 1, 1, 1):
        send(conn, *["x"] * size)
        tick(conn)
    found = []
    while (opened := _open(conn, 6))[0]:
        found.append(len(opened[1]))
        finish(conn, opened[0])
    assert found == [6, 10, 3]  # a window is never cut
    for bad in (0, -1, None):
        with refused("PQ006", "must be positive"):
            value(conn, "select batch_id from pgq.open_batch('q', 'c', %s)", bad)


def test_open_batch_tells_how_far_it_is_acknowledged(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    ids = send(conn, "a", "b", "c")
    tick(conn)
    query: LiteralString = "select batch_id, acked_ev_id from pgq.open_batch('q', 'c')"
    ((batch, acked),) = rows(conn, query)
    assert acked is None
    assert value(conn, "select pgq.ack('q', 'c', %s, %s)", batch, ids[1]) == 0
    assert rows(conn, query) == [(batch, ids[1])]
    assert batch_data(conn, batch) == ["c"]


def test_next_batch_custom_by_count_and_interval(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    configure(conn, "external_ticker", "true")
    for number in range(2, 7):
        send(conn, "x", "x")
        value(
            conn, "select pgq.ticker('q', %s, '3000-01-01'::timestamptz + %s * interval '1 minute', 0)", number, number
        )
    assert _custom(conn, count=11) == (None, None)
    assert _custom(conn, interval="2000 years") == (None, None)
    assert _custom(conn, count=5) == (1, 4)
    finish(conn, next_batch(conn))
    assert _custom(conn, count=100, interval="2 minutes") == (4, 6)
    finish(conn, next_batch(conn))
    assert _custom(conn) == (None, None)


def test_next_batch_custom_by_age(db: Database) -> None:
    """min_lag chooses a tick that is old enough."""
    conn = db.connect()
    create(conn, "c")
    configure(conn, "external_ticker", "true")
    for number, age in ((2, "2 hours"), (3, "1 hour"), (4, "1 minute")):
        send(conn, str(number))
        conn.execute(
            "insert into pgq.tick_ring_1 select 1, %s, now() - %s::interval, pg_current_snapshot(), %s, 3, 3, true",
            [number, age, number - 1],
        )
    assert _custom(conn, lag="1 day") == (None, None)
    assert _custom(conn, lag="30 minutes") == (1, 2)
    finish(conn, next_batch(conn))
    assert _custom(conn, lag="30 minutes") == (2, 3)
    finish(conn, next_batch(conn))
    assert _custom(conn, lag="30 minutes") == (None, None)
    assert drain(conn) == ["4"]


# -- cursors --------------------------------------------------------------------------------------------------------


def test_get_batch_cursor_streams_a_batch(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    send(conn, *map(str, range(10)))
    tick(conn)
    batch = next_batch(conn)
    first: LiteralString = "select ev_data from pgq.get_batch_cursor(%s, %s, %s)"
    begin(conn)
    assert column(conn, first, batch, 'my "cursor"', 3) == ["0", "1", "2"]
    fetched = column(conn, sql.SQL("fetch all from {}").format(sql.Identifier('my "cursor"')))
    assert len(fetched) == 7
    assert column(conn, first, batch, "none", 0) == []
    assert len(column(conn, "fetch 20 from none")) == 10
    filtered: LiteralString = "select ev_data from pgq.get_batch_cursor(%s, 'odd', 100, %s)"
    assert column(conn, filtered, batch, "ev_data::int % 2 = 1") == ["1", "3", "5", "7", "9"]
    for nothing in ((None, "x", 1), (batch, None, 1), (batch, "x", None)):
        assert column(conn, first, *nothing) == []
    commit(conn)
    assert deliver(conn) == list(map(str, range(10)))
