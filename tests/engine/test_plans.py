"""Hot statements use their indexes whatever the slots look like: empty, small, huge, analyzed at the wrong moment.

Slots have autovacuum off and so no statistics, unless somebody runs ANALYZE over the database, perhaps just after a
slot was truncated; and sessions keep their plans. What counts is the effect: how many rows of the ring tables a call
reads one after the other.
"""

from __future__ import annotations

from typing import LiteralString

import pytest

from tests.clusters import Database
from tests.engine.support import (
    Conn,
    ack,
    begin,
    create,
    deliver,
    next_batch,
    rollback,
    rotate_until,
    rows,
    send,
    send_and_tick,
    step,
    tick,
    value,
)

MODES = ("auto", "force_generic_plan", "force_custom_plan")
ANALYZED = pytest.mark.parametrize("analyzed", [False, True], ids=["", "analyzed"])
ROWS = 10_000

# What consumers and tickers call all the time, and information that a dashboard asks for. Consumer c has batch 1 open.
CALLS: dict[str, LiteralString] = {
    "the open batch": "select pgq.next_batch('q', 'c')",
    "its events, in SQL": "select pgq.batch_event_sql(1)",
    "a part of it": "select * from pgq.receive('q', 'c', 1)",
    "progress in it": "select pgq.ack('q', 'c', 1, 1)",
    "the end of it": "select pgq.finish_batch(1)",
    "whose it is": "select * from pgq.get_batch_info(1)",
    "a new batch": "select pgq.next_batch('q', 'behind')",
    "a merged batch": "select pgq.open_batch('q', 'behind', 1)",
    "a merged batch with its events": "select pgq.open_batch_events('q', 'behind', 1)",
    "a small batch with its events": "select pgq.open_1_7694f4a6('ahead', 10000, 500, true)",
    "a small batch peeked at": "select pgq.open_1_7694f4a6('ahead', 10000, 500, true, true)",
    "a batch that is old enough": "select pgq.next_batch_custom('q', 'behind', '0', 1, null)",
    "nothing": "select pgq.next_batch('q', 'ahead')",
    "a tick": "select pgq.ticker('q')",
    "a poke": "select pgq.poke('q')",
    "a forced tick": "select pgq.tick_now('q')",
    "a look at what is due": "select * from pgq.queues_due()",
    "a seek": "select pgq.seek('q', 'c', 1)",
    "consumers": "select * from pgq.get_consumer_info()",
    "queues": "select * from pgq.get_queue_info()",
}


def _read_in_sequence(conn: Conn) -> dict[str, int]:
    """Rows that sequential scans of this session have read, by slot; counted at once, seen by itself alone."""
    query: LiteralString = (
        "select relname, seq_tup_read from pg_stat_xact_all_tables"
        " where schemaname = 'pgq' and relname ~ '^(event|tick|cursor)_.*[0-9]$'"
    )
    return {str(name): int(count) for name, count in rows(conn, query)}


def _scanned(conn: Conn, call: LiteralString) -> dict[str, int]:
    """Slots of which the call reads more than a handful of rows in sequence. What it changes is rolled back."""
    begin(conn)
    before = _read_in_sequence(conn)
    conn.execute(call)
    after = _read_in_sequence(conn)
    rollback(conn)
    read = {name: count - before.get(name, 0) for name, count in after.items()}
    return {name: count for name, count in read.items() if count > 100}


def _small(conn: Conn) -> None:
    """One queue with three rows in each slot that is in use."""
    create(conn, "c", "behind", "ahead")
    send(conn, "1")
    tick(conn)
    assert next_batch(conn) == 1
    send(conn, "2")
    tick(conn)
    value(conn, "select pgq.seek('q', 'ahead', 'latest')")


def _grow(conn: Conn) -> None:
    """Many moves and ticks, of this queue and of others, and many events; none of it seen by a tick."""
    snapshot = value(conn, "select pg_current_snapshot()::text")
    mine: LiteralString = (
        "insert into pgq.cursor_ring_1 select c.sub_id, c.pos + n, c.last_tick, c.next_tick, c.batch_id, c.acked,"
        " c.handed, c.lo, c.at from generate_series(1, %s) n, pgq.registration r, pgq._cursor(r.sub_id) c"
    )
    conn.execute(mine, [ROWS])
    ticks: LiteralString = (
        "insert into pgq.tick_ring_1 select queue, n, now(), %s, 2, 1, 1, true"
        " from generate_series(10, %s) n, (values (1), (500), (501)) q(queue)"
    )
    conn.execute(ticks, [snapshot, ROWS])
    conn.execute("select pgq.send_batch('q', 't', array_agg(n::text)) from generate_series(1, %s) n", [ROWS])


@pytest.mark.parametrize("mode", MODES)
@ANALYZED
def test_plans_survive_growth(db: Database, mode: str, analyzed: bool) -> None:
    """One session all the time: it has made its plans on three rows, and on statistics that say three rows."""
    conn = db.connect()
    value(conn, "select set_config('plan_cache_mode', %s, false)", mode)
    _small(conn)
    if analyzed:
        conn.execute("analyze")
    for call in CALLS.values():
        for _ in range(7):  # from the sixth on, a generic plan
            _scanned(conn, call)
    _grow(conn)
    assert {name: found for name, call in CALLS.items() if (found := _scanned(conn, call))} == {}


@pytest.mark.parametrize("mode", MODES)
@ANALYZED
def test_plans_on_huge_slots(db: Database, mode: str, analyzed: bool) -> None:
    """A session that meets them huge, with and without statistics."""
    setup, conn = db.connect(), db.connect()
    value(conn, "select set_config('plan_cache_mode', %s, false)", mode)
    _small(setup)
    _grow(setup)
    if analyzed:
        setup.execute("analyze")
    for _ in range(7):
        assert {name: found for name, call in CALLS.items() if (found := _scanned(conn, call))} == {}


@ANALYZED
def test_plans_after_rotation(db: Database, analyzed: bool) -> None:
    """Truncated slots say: no page, no row, and statistics of what was there before."""
    conn = db.connect()
    _small(conn)
    _grow(conn)
    tick(conn)
    for consumer in ("c", "behind", "ahead"):
        value(conn, "select pgq.seek('q', %s, 'latest')", consumer)
    for ring in ("cursor_ring", "tick_ring") * 6:
        step(conn, ring)
    rotate_until(conn, "switched")
    if analyzed:
        conn.execute("analyze")
    send_and_tick(conn, 300)
    value(conn, "select count(pgq.seek('q', 'c', 'latest')) from generate_series(1, 300)")
    for call in CALLS.values():
        if "(1" not in call and "1)" not in call:
            assert _scanned(conn, call) == {}, call


@ANALYZED
def test_a_small_batch_in_a_huge_slot(db: Database, analyzed: bool) -> None:
    """The client plans this statement anew each time; its window is a small part of the slot, by index."""
    conn = db.connect()
    create(conn, "c")
    conn.execute("select pgq.send_batch('q', 't', array_agg(n::text)) from generate_series(1, 50000) n")
    deliver(conn)
    send(conn, "x")
    tick(conn)
    batch = next_batch(conn)
    if analyzed:
        conn.execute("analyze")
    for _ in range(3):
        assert _scanned(conn, "select * from pgq.get_batch_events(2)") == {}
    assert ack(conn, batch) == 1


@ANALYZED
def test_the_need_probe_on_a_huge_slot(db: Database, analyzed: bool) -> None:
    """Nothing new, something new, a late commit among many rows: none of them reads the slot."""
    late, conn = db.connect(), db.connect()
    create(conn, "c")
    begin(late)
    send(late, "late")
    conn.execute("select pgq.send_batch('q', 't', array_agg(n::text)) from generate_series(1, 50000) n")
    deliver(conn)
    if analyzed:
        conn.execute("analyze")
    assert _scanned(conn, CALLS["a look at what is due"]) == {}
    assert tick(conn) is None
    rollback(late)
    begin(late)
    send(late, "later")
    send(conn, "new")
    assert _scanned(conn, CALLS["a look at what is due"]) == {}
    assert deliver(conn) == ["new"]
    late.execute("commit")
    assert _scanned(conn, CALLS["a look at what is due"]) == {}
    assert deliver(conn) == ["later"]
