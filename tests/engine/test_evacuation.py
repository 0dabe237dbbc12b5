"""The cursor and tick rings: few rows of many are alive, and they are carried along, once each, without a gap.

TRUNCATE is not MVCC: a reader whose snapshot is older sees neither the row nor its copy. It must look again, and never
take a miss for an answer.
"""

from __future__ import annotations

from collections import Counter
from typing import LiteralString

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
    create,
    deliver,
    drain,
    evacuate,
    filled_slots,
    finish,
    force_tick,
    in_background,
    next_batch,
    phase,
    receive,
    refused,
    ring_info,
    rollback,
    rotate_until,
    rotated,
    rows,
    send,
    send_and_tick,
    step,
    step_until,
    stepped,
    take,
    tick,
    value,
    waits_for_a_cursor,
)
from tests.waiting import wait_blocked

RINGS = ("cursor_ring", "tick_ring")


def _turn(conn: Conn, times: int = 1) -> Counter[tuple[str, str]]:
    """Turn both rings by about one slot; which steps were done in which ring."""
    return Counter((ring, step(conn, ring)) for _ in range(3 * times) for ring in RINGS)


def _keep_busy(conn: Conn, consumer: str = "busy") -> None:
    """Moves of another consumer, so that the rings have something to evacuate for.

    Enough of them for the ticks too, of which one is kept for each minute.
    """
    for number in range(10):
        send(conn, f"busy {number}")
        tick(conn)
        assert take(conn, consumer)


def _count(conn: Conn, table: str) -> int:
    return int(value(conn, sql.SQL("select count(*) from {}").format(sql.Identifier("pgq", table))))


# -- nothing is lost ------------------------------------------------------------------------------------------------


def test_stuck_consumers_lose_nothing(db: Database) -> None:
    """At the start, inside a batch, and between two, through twenty evacuations of both rings."""
    conn = db.connect()
    create(conn, "never read", "inside", "between", "busy")
    create(conn, "idle", queue="idle")
    sent = [str(number) for number in range(20)]
    send(conn, *sent)
    tick(conn)
    send(conn, "next")
    tick(conn)
    batch, data = receive(conn, "inside", 5)
    assert value(conn, "select pgq.ack('q', 'inside', %s)", batch) == 0
    assert (data, take(conn, "between")) == (sent[:5], sent)
    before = rows(conn, "select * from pgq.subscription where sub_consumer <> 4 order by 1")
    done: Counter[tuple[str, str]] = Counter()
    for _ in range(20):
        _keep_busy(conn)
        done += _turn(conn)
        assert rows(conn, "select * from pgq.subscription where sub_consumer <> 4 order by 1") == before
    assert min(done[ring, "truncated"] for ring in RINGS) >= 5
    busy = [f"busy {number}" for number in range(10)] * 20
    assert drain(conn, "never read") == [*sent, "next", *busy]
    assert receive(conn, "inside", 100) == (batch, sent[5:])
    finish(conn, batch or 0)
    assert drain(conn, "inside") == ["next", *busy]
    assert drain(conn, "between") == ["next", *busy]
    send(conn, "x", queue="idle")
    assert deliver(conn, "idle", "idle") == ["x"]


def test_a_row_is_copied_a_bounded_number_of_times(db: Database) -> None:
    """A slot is evacuated when at least half of it is dead, or as much has been written since: copies are paid for."""
    conn = db.connect()
    create(conn, "busy", *[f"idle {number}" for number in range(50)])
    written = copied = 0
    for _ in range(300):
        value(conn, "select pgq.seek('q', 'busy', 'latest')")
        written += 1
        current = phase(conn, "cursor_ring") // 2 % 3
        before = _count(conn, f"cursor_ring_{current}")
        if step(conn, "cursor_ring") == "truncated":
            copied += _count(conn, f"cursor_ring_{current}") - before
    assert 0 < copied < 2 * written
    assert _count(conn, "cursor_ring") < 200
    assert value(conn, "select count(*) from pgq.subscription") == 51


def test_a_stuck_consumer_does_not_keep_every_tick(db: Database) -> None:
    """5,000 ticks behind it: the ring keeps those that are needed, and a few to seek by."""
    conn = db.connect()
    create(conn, "stuck", "busy")
    kept = []
    for _ in range(10):
        send_and_tick(conn, 500)
        value(conn, "select pgq.seek('q', 'busy', 'latest')")
        _turn(conn)
        kept.append(_count(conn, "tick_ring"))
    assert max(kept) < 1200
    _turn(conn, 3)
    assert _count(conn, "tick_ring") < 600
    batch = value(conn, "select batch_id from pgq.open_batch('q', 'stuck', 1000000)")
    assert len(batch_data(conn, batch)) == 5000


def test_dropped_queues_leave_nothing(db: Database) -> None:
    conn = db.connect()
    for turn in range(3):
        create(conn, "c", "d")
        send(conn, "x", "y")
        tick(conn)
        assert take(conn) == ["x", "y"]
        next_batch(conn, "d")
        assert value(conn, "select pgq.drop_queue('q', %s)", True) == 1
        assert value(conn, "select count(*) from pgq.tick") == 0
        assert value(conn, "select count(*) from pgq.subscription") == 0
        if turn == 1:
            evacuate(conn, "tick_ring")
    _turn(conn, 2)
    assert (_count(conn, "cursor_ring"), _count(conn, "tick_ring")) == (0, 0)
    tables = column(conn, "select relname from pg_class where relname ~ '^event_[0-9]' or relname ~ '^produce_'")
    assert tables == []
    assert column(conn, "select proname from pg_proc where proname ~ '^produce_[0-9]'") == []


def test_unregistered_consumers_leave_nothing(db: Database) -> None:
    conn = db.connect()
    create(conn, "busy")
    for turn in range(10):
        value(conn, "select pgq.register_consumer('q', %s)", f"c{turn}")
        value(conn, "select pgq.unregister_consumer('q', %s)", f"c{turn}")
    _keep_busy(conn)
    _turn(conn)
    assert column(conn, "select distinct sub_id from pgq.cursor_ring order by 1") == [-1, 1]


@pytest.mark.parametrize("ring", RINGS)
@pytest.mark.concurrency
def test_what_is_written_during_an_evacuation(db: Database, ring: str) -> None:
    """Its copies are older than what others write meanwhile into the same slot, and stay behind it."""
    mover, conn = db.connect(), db.connect()
    create(conn, "busy", "stuck")
    _keep_busy(conn)
    stepped(conn, ring, "switched", "closed")
    begin(mover)
    stepped(mover, ring, "truncated")
    send(conn, "a", "b")
    newest = in_background(lambda: force_tick(conn))
    if ring == "tick_ring":
        wait_blocked(db.connect(), conn.info.backend_pid)
    else:
        newest.result(30)
    commit(mover)
    send(conn, "c")
    assert force_tick(conn) == newest.result(30) + 1
    assert drain(conn, "busy") == ["a", "b", "c"]
    assert len(drain(conn, "stuck")) == 13


@pytest.mark.concurrency
@pytest.mark.parametrize("ring", RINGS)
def test_what_is_not_committed_is_not_left_behind(db: Database, ring: str) -> None:
    """A registration, or a new queue with its first tick, in a slot that the ring is about to leave."""
    new, conn = db.connect(), db.connect()
    create(conn, "busy")
    _keep_busy(conn)
    begin(new)
    create(new, "c", queue="new")
    stepped(conn, ring, "switched", "blocked")
    _keep_busy(conn)
    commit(new)
    stepped(conn, ring, "closed", "truncated")
    send(conn, "x", queue="new")
    assert deliver(conn, queue="new") == ["x"]


# -- a miss is not an answer ----------------------------------------------------------------------------------------


READERS = {
    "cursor_ring": {
        "next_batch": "select pgq.next_batch('q', 'stuck')",
        "receive": "select batch_id from pgq.receive('q', 'stuck', 1)",
        "finish_batch": "select pgq.finish_batch(%(batch)s)",
        "ack": "select pgq.ack('q', 'stuck', %(batch)s)",
        "batch_event_sql": "select pgq.batch_event_sql(%(batch)s)",
        "get_batch_info": "select tick_id from pgq.get_batch_info(%(batch)s)",
        "get_consumer_info": "select current_batch from pgq.get_consumer_info('q', 'stuck')",
        "seek": "select pgq.seek('q', 'stuck', %(newest)s::bigint)",
        "register_consumer_at": "select pgq.register_consumer_at('q', 'new', %(newest)s)",
    },
    "tick_ring": {
        "next_batch": "select pgq.next_batch('q', 'stuck')",
        "ticker": "select pgq.ticker('q')",
        "force_tick": "select pgq.force_tick('q')",
        "batch_event_sql": "select pgq.batch_event_sql(%(batch)s)",
        "finish_batch": "select pgq.finish_batch(%(batch)s)",
        "seek": "select pgq.seek('q', 'stuck', %(newest)s::bigint)",
        "register_consumer": "select pgq.register_consumer('q', 'new')",
        "get_queue_info": "select last_tick_id from pgq.get_queue_info('q')",
        "get_batch_info": "select tick_id from pgq.get_batch_info(%(batch)s)",
    },
}


@pytest.mark.concurrency
@pytest.mark.parametrize("ring", RINGS)
def test_a_reader_that_waits_for_an_evacuation_looks_again(db: Database, ring: str) -> None:
    """Its statement began before the row was moved, and goes on when both places look empty to it."""
    mover, session, conn = db.connect(), db.connect(), db.connect()
    for reader, query in READERS[ring].items():
        create(conn, "stuck", "busy")
        send(conn, "first")
        tick(conn)
        batch = next_batch(conn, "stuck")
        drain(conn, "busy")
        send(conn, "second")
        _fill_for(conn, ring)
        names = {"batch": batch, "newest": value(conn, "select max(tick_id) from pgq.tick")}
        begin(session)  # what it would find now
        expected = session.execute(query.encode(), names).fetchall()
        rollback(session)
        _start_evacuation(conn, mover, ring)
        waiting = in_background(lambda: session.execute(query.encode(), names).fetchall())  # noqa: B023
        wait_blocked(conn, session.info.backend_pid)
        commit(mover)
        found = waiting.result(30)
        assert (reader, [type(row[0]) for row in found]) == (reader, [type(row[0]) for row in expected])
        assert found == expected or reader == "batch_event_sql"
        assert value(conn, "select pgq.drop_queue('q', true)") == 1


GONE: dict[str, tuple[LiteralString, object]] = {
    "next_batch": ("select pgq.next_batch('q', 'gone')", "PQ002"),
    "open_batch": ("select pgq.open_batch('q', 'gone')", "PQ002"),
    "open_batch_events": ("select pgq.open_batch_events('q', 'gone')", "PQ002"),
    "receive": ("select * from pgq.receive('q', 'gone')", "PQ002"),
    "get_consumer_info": ("select consumer_name from pgq.get_consumer_info()", [("stays",)]),
}


@pytest.mark.concurrency
@pytest.mark.parametrize("call", GONE)
def test_a_reader_that_waits_while_its_consumer_goes(db: Database, call: str) -> None:
    """It has found the registration; then that is removed, and its cursor with it: a consumer less, not a fault."""
    query, expected = GONE[call]
    mover, session, conn = db.connect(), db.connect(), db.connect()
    create(conn, "gone", "stays")
    send(conn, "first")
    tick(conn)
    _fill_for(conn, "cursor_ring", "stays")
    waiting = waits_for_a_cursor(session, query, conn, mover)
    assert value(mover, "select pgq.unregister_consumer('q', 'gone')") == 1
    stepped(mover, "cursor_ring", "truncated")
    commit(mover)
    if isinstance(expected, str):
        with refused(expected):
            waiting.result(30)
    else:
        assert waiting.result(30) == expected


@pytest.mark.concurrency
def test_a_reader_whose_batch_is_finished_while_it_waits(db: Database) -> None:
    """The ticks of its batch have gone when it looks for them: it is to be called again, nothing is wrong."""
    mover, session, conn = db.connect(), db.connect(), db.connect()
    create(conn, "c")
    for _ in range(2):
        _fill_for(conn, "tick_ring")
    send(conn, "first")
    force_tick(conn)
    batch = next_batch(conn)
    step_until(conn, "tick_ring", "switched")
    stepped(conn, "tick_ring", "closed")
    query: LiteralString = "select pgq.batch_event_sql(1)"
    value(session, query)
    send(conn, "second")
    force_tick(conn)
    begin(mover)
    mover.execute("lock table pgq.tick_ring in access exclusive mode")
    waiting = in_background(lambda: value(session, query))
    wait_blocked(conn, session.info.backend_pid)
    finish(mover, batch)
    value(mover, "select pgq.seek('q', 'c', 'latest')")
    # of one minute, whenever they were made: the first of each minute is kept to seek by
    mover.execute("update pgq.tick_ring set tick_time = '2000-01-01'")
    stepped(mover, "tick_ring", "truncated")
    commit(mover)
    with refused("40001", "was left at this moment"):
        waiting.result(30)
    with refused("PQ003"):
        value(session, query)


@pytest.mark.parametrize("level", OLD_SNAPSHOTS)
@pytest.mark.parametrize("ring", RINGS)
def test_a_snapshot_from_before_an_evacuation_is_to_be_renewed(db: Database, ring: str, level: str) -> None:
    """It shows neither the row nor its copy, however often it is looked at."""
    old, conn = db.connect(), db.connect()
    create(conn, "busy", "stuck")
    _keep_busy(conn)
    begin(old, level)
    evacuate(conn, ring)
    query: LiteralString = (
        "select last_tick from pgq.get_consumer_info('q', 'stuck')"
        if ring == "cursor_ring"
        else "select last_tick_id from pgq.get_queue_info('q')"
    )
    with refused("40001", "moved after the snapshot"):
        value(old, query)
    rollback(old)
    begin(old, level)
    assert value(old, query) == value(conn, query)


def _start_evacuation(conn: Conn, mover: Conn, ring: str) -> None:
    """Up to the moment before the commit of the step that moves the rows."""
    step_until(conn, ring, "switched")
    stepped(conn, ring, "closed")
    begin(mover)
    stepped(mover, ring, "truncated")


def _fill_for(conn: Conn, ring: str, busy: str = "busy") -> None:
    """Dead rows, so that the slot is worth evacuating; no tick for the event that waits."""
    if ring == "cursor_ring":
        for _ in range(6):
            value(conn, "select pgq.seek('q', %s, 'latest')", busy)
    else:
        for _ in range(4):
            value(conn, "select pgq.create_queue('other')")
            value(conn, "select pgq.force_tick('other')")
            value(conn, "select pgq.force_tick('other')")
            value(conn, "select pgq.drop_queue('other')")


# -- who is in the way ----------------------------------------------------------------------------------------------


@pytest.mark.concurrency
@pytest.mark.parametrize("ring", RINGS)
def test_consumers_in_long_transactions_do_not_starve_an_evacuation(db: Database, ring: str) -> None:
    """Three work all the time, each in a transaction from taking to finishing; there is never a moment without one."""
    workers = [db.connect() for _ in range(3)]
    conn = db.connect()
    names = ["a", "b", "c"]
    create(conn, *names)
    for session in workers:
        begin(session)
    results = []
    for turn in range(30):
        send(conn, str(turn))
        tick(conn)
        which = turn % 3
        take(workers[which], names[which])
        commit(workers[which])
        begin(workers[which])
        take(workers[which], names[which])
        results.append(step(conn, ring))
    for session in workers:
        commit(session)
    assert results.count("truncated") >= 2, results


@pytest.mark.concurrency
def test_a_long_look_at_the_ticks_is_counted_and_passed(db: Database) -> None:
    reader, conn = db.connect(application_name="dashboard"), db.connect()
    create(conn, "busy")
    _keep_busy(conn)
    begin(reader)
    value(reader, "select count(*) from pgq.tick")
    stepped(conn, "tick_ring", "switched", "closed", "blocked")
    assert ring_info(conn, "tick_ring", "skipped") == 1
    blockers = rows(conn, "select ring, slot, pid, application_name from pgq.ring_blockers() order by 2")
    assert ("tick_ring", "tick_ring_1", reader.info.backend_pid, "dashboard") in blockers
    for _ in range(3):
        _keep_busy(conn)
        stepped(conn, "tick_ring", "blocked")
    commit(reader)
    stepped(conn, "tick_ring", "truncated")
    _keep_busy(conn)


def test_the_global_rings_are_stepped_together(db: Database) -> None:
    conn = db.connect()
    create(conn, "busy")
    _keep_busy(conn)
    for ring in RINGS:
        stepped(conn, ring, "switched")
    operation = ("pgq.maint_rotate_tables_step2", None)
    assert operation in rows(conn, "select * from pgq.maint_operations()")
    for _ in range(3):
        assert value(conn, "select pgq.maint_rotate_tables_step2()") == 0
    assert [filled_slots(conn, ring) for ring in RINGS] == [[2], [2]]
    assert operation not in rows(conn, "select * from pgq.maint_operations()")


def test_a_small_ring_is_left_alone(db: Database) -> None:
    """A TRUNCATE costs dead rows in pg_class: hardly used rings do not move, however old."""
    conn = db.connect()
    create(conn, "busy")
    _keep_busy(conn)
    conn.execute("update pgq.ring set ring_period = '0' where ring_queue is null")
    assert rows(conn, "select * from pgq.maint_operations()") == []
    rotate_until(conn, "switched")
    rotated(conn, "closed")
