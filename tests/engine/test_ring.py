"""The ring: its steps in their order, and the guard that makes a writer's choice of slot safe at any time."""

from __future__ import annotations

import pytest
from psycopg import sql

from tests.clusters import Database
from tests.engine.support import (
    Conn,
    batch_data,
    begin,
    column,
    commit,
    create,
    deliver,
    drain,
    evacuate,
    event_ring,
    filled_slots,
    force_tick,
    phase,
    refused,
    ring_info,
    rollback,
    rotate,
    rotate_until,
    rotated,
    send,
    slot,
    step,
    step_until,
    take,
    tick,
    value,
)


def _insert(conn: Conn, table: sql.Identifier, data: str = "direct") -> None:
    conn.execute(sql.SQL("insert into {} (ev_type, ev_data) values ('t', {})").format(table, data))


def _copy(conn: Conn, table: sql.Identifier, data: str = "copied") -> None:
    with conn.cursor().copy(sql.SQL("copy {} (ev_type, ev_data) from stdin").format(table)) as copy:
        copy.write_row(("t", data))


# -- steps ----------------------------------------------------------------------------------------------------------


def test_a_new_ring_is_empty_with_its_previous_slot_closed(db: Database) -> None:
    conn = db.connect()
    create(conn)
    ring = event_ring(conn)
    assert phase(conn, ring) == 7
    assert filled_slots(conn, ring) == []
    rotated(conn, "idle", "idle")
    assert ring_info(conn, ring, "closed") is True
    assert ring_info(conn, ring, "generation") == 3


def test_the_steps_come_in_their_order_and_the_space_comes_back(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    ring = event_ring(conn)
    for generation in range(3, 10):
        send(conn, str(generation))
        assert deliver(conn) == [str(generation)]
        assert phase(conn, ring) == 2 * generation + 1
        rotated(conn, "switched", "closed", "waiting")
        assert filled_slots(conn, ring) == [generation % 3]
        assert deliver(conn) == []
        rotated(conn, "truncated", "idle")
        assert filled_slots(conn, ring) == []


def test_a_ring_does_not_switch_into_a_slot_that_holds_rows(db: Database) -> None:
    """A stuck consumer of a ring of n slots stops it at n generations, and loses nothing."""
    conn = db.connect()
    create(conn, "c", slots=5)
    for generation in range(1, 5):
        send(conn, str(generation))
        rotated(conn, "switched", "closed")
    send(conn, "5", "6")
    rotated(conn, "waiting", "waiting")
    send(conn, "7")
    assert filled_slots(conn, event_ring(conn)) == [0, 1, 2, 3, 4]
    assert deliver(conn) == ["1", "2", "3", "4", "5", "6", "7"]
    rotated(conn, "truncated", "truncated", "truncated", "truncated", "switched", "closed")
    assert deliver(conn) == []
    rotated(conn, "truncated", "idle")


@pytest.mark.concurrency
def test_one_maintainer_at_a_time(db: Database) -> None:
    conn, other = db.connect(), db.connect()
    create(conn)
    send(conn, "x")
    begin(other)
    assert rotate(other) == "switched"
    rotated(conn, "busy")
    rollback(other)
    rotated(conn, "closed")  # a phase outlives the transaction that set it


def test_own_rows_are_not_closed_over(db: Database) -> None:
    """Locks do not conflict with one's own: without a check, the rows would be behind the next tick's `lo`."""
    conn = db.connect()
    create(conn, "c")
    begin(conn)
    send(conn, "mine")
    rotated(conn, "switched", "blocked", "blocked")
    commit(conn)
    force_tick(conn)
    rotated(conn, "closed")
    assert deliver(conn) == ["mine"]


def test_truncate_and_switch_of_one_transaction_roll_back_safely(db: Database) -> None:
    """TRUNCATE is undone by a rollback, a phase is not: the ring must not have switched into the slot."""
    conn = db.connect()
    create(conn, "c")
    ring = event_ring(conn)
    for data in ("1", "2", "3"):
        send(conn, data)
        rotate(conn)
        rotate(conn)
    tick(conn)
    assert phase(conn, ring) == 11
    assert filled_slots(conn, ring) == [0, 1, 2]
    assert drain(conn) == ["1", "2", "3"]
    begin(conn)
    assert [rotate(conn) for _ in range(6)][:3] == ["truncated", "truncated", "idle"]
    rollback(conn)
    assert filled_slots(conn, ring) == [0, 1, 2]
    assert phase(conn, ring) == 11
    send(conn, "4")
    assert deliver(conn) == ["4"]


def test_a_ring_does_not_switch_into_what_it_has_just_truncated(db: Database) -> None:
    """In the same transaction, that is: the slot is empty, but only if that commits."""
    conn = db.connect()
    create(conn, "c")
    for data in ("1", "2"):
        send(conn, data)
        tick(conn)
        rotated(conn, "switched", "closed")
    send(conn, "3")
    tick(conn)
    assert [take(conn), take(conn)] == [["1"], ["2"]]
    begin(conn)
    rotated(conn, "truncated", "waiting", "waiting")
    rollback(conn)
    assert phase(conn, "event_1") == 11
    rotated(conn, "truncated", "switched")


@pytest.mark.parametrize("ring", ["cursor_ring", "tick_ring"])
def test_a_rolled_back_evacuation_changes_nothing(db: Database, ring: str) -> None:
    """Nor may the ring have moved on in that transaction, or old rows would be copied past newer ones."""
    conn = db.connect()
    create(conn, "stuck", "c")
    for data in "0123456789":
        send(conn, data)
        assert deliver(conn) == [data]
    assert step(conn, ring) == "switched"
    send(conn, "a")
    tick(conn)
    begin(conn)
    assert [step(conn, ring) for _ in range(5)][:2] == ["closed", "truncated"]
    rollback(conn)
    step_until(conn, ring, "truncated")
    assert drain(conn) == ["a"]
    send(conn, "b")
    assert deliver(conn) == ["b"]
    assert drain(conn, "stuck") == [*"0123456789ab"]


def test_a_slot_that_vacuum_emptied_is_read_once(db: Database) -> None:
    """VACUUM takes the pages of a slot that holds aborted rows only, and the ring passes it under a stuck consumer:
    then its positions span more generations than there are slots."""
    conn = db.connect()
    create(conn, "c")
    begin(conn)
    send(conn, "aborted")
    rollback(conn)
    rotated(conn, "switched", "closed")
    for data in ("a", "b"):
        send(conn, data)
        tick(conn)
        conn.execute("vacuum pgq.event_1_0")
        rotated(conn, "switched", "closed")
    send(conn, "c")
    tick(conn)
    batch = value(conn, "select batch_id from pgq.open_batch('q', 'c')")
    tables = column(conn, "select * from pgq.batch_event_tables(%s)", batch)
    assert sorted(tables) == ["pgq.event_1_0", "pgq.event_1_1", "pgq.event_1_2"]
    assert batch_data(conn, batch) == ["a", "b", "c"]


# -- the guard ------------------------------------------------------------------------------------------------------


def test_the_guard_takes_the_current_slot_and_the_previous_one_while_it_is_open(db: Database) -> None:
    conn = db.connect()
    create(conn, "c", slots=4)
    ring = event_ring(conn)
    for generation in range(4, 9):
        current, previous = (slot(conn, ring, g, 4) for g in (generation, generation - 1))
        following, far = (slot(conn, ring, g, 4) for g in (generation + 1, generation + 2))
        for table in (previous, following, far):
            for write in (_insert, _copy):
                with refused("40001", "is closed"):
                    write(conn, table)
        _insert(conn, current)
        deliver(conn)
        rotate_until(conn, "switched")
        _insert(conn, current, "late")
        _copy(conn, following, "new")
        with refused("40001"):
            _copy(conn, far)
        rotated(conn, "closed")
        with refused("40001"):
            _insert(conn, current)
        assert sorted(deliver(conn)) == ["late", "new"]


def test_a_refused_insert_leaves_nothing_behind(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    with refused("40001"):
        _copy(conn, slot(conn, event_ring(conn), 4))
    send(conn, "x")
    assert deliver(conn) == ["x"]


def test_the_guard_works_for_a_replica(db: Database) -> None:
    """session_replication_role = replica switches ordinary triggers off."""
    conn = db.connect()
    create(conn, "c")
    conn.execute("set session_replication_role = replica")
    with refused("40001"):
        _insert(conn, slot(conn, event_ring(conn), 4))
    for parent in ("event_1", "event_template", "tick_ring", "cursor_ring"):
        with refused("PQ006", "parent"):
            conn.execute(sql.SQL("insert into {} default values").format(sql.Identifier("pgq", parent)))
    _insert(conn, slot(conn, event_ring(conn), 3))
    assert deliver(conn) == ["direct"]


def test_an_unreadable_phase_refuses(db: Database) -> None:
    """For a role without SELECT on the phase it is NULL on 18, an error before. NULL must not count as true."""
    conn = db.connect()
    create(conn)
    begin(conn)
    conn.execute("create role blind")
    conn.execute("grant insert (ev_type, ev_data) on pgq.event_1_0 to blind")
    conn.execute("grant usage on sequence pgq.event_1_id_seq to blind")
    conn.execute("set local role blind")
    with refused("40001" if conn.info.server_version >= 180000 else "42501"):
        _insert(conn, slot(conn, "event_1", 3))
    rollback(conn)


def test_a_row_for_a_parent_is_refused(db: Database) -> None:
    conn = db.connect()
    create(conn)
    for parent in ("event_1", "event_template", "tick_ring", "cursor_ring"):
        with refused("PQ006", "parent of a ring"):
            conn.execute(sql.SQL("insert into {} default values").format(sql.Identifier("pgq", parent)))


@pytest.mark.concurrency
def test_a_savepoint_that_was_rolled_back_does_not_hold_the_slot(db: Database) -> None:
    """Its lock is gone, so the slot can be closed; what the transaction writes afterwards is delivered or refused."""
    writer, conn = db.connect(), db.connect()
    create(conn, "c")
    send(conn, "first")
    begin(writer)
    stale = slot(conn, "event_1", 3)
    writer.execute("savepoint s")
    _insert(writer, stale, "never")
    rotated(conn, "switched", "blocked")
    writer.execute("rollback to savepoint s")
    rotated(conn, "closed")
    writer.execute("savepoint s")
    with refused("40001"):
        _insert(writer, stale, "refused")
    writer.execute("rollback to savepoint s")
    send(writer, "second")
    commit(writer)
    assert sorted(deliver(conn)) == ["first", "second"]


def test_the_phase_is_seen_and_moved_by_nobody_but_maintenance(db: Database) -> None:
    """A rolled-back close stays closed, and what follows is consistent with it."""
    conn = db.connect()
    create(conn, "c")
    send(conn, "a")
    begin(conn)
    rotated(conn, "switched", "closed")
    rollback(conn)
    assert phase(conn, "event_1") == 9
    with refused("40001"):
        _insert(conn, slot(conn, "event_1", 3))
    send(conn, "b")
    assert deliver(conn) == ["a", "b"]
    evacuate(conn, "cursor_ring")
    assert value(conn, "select count(*) from pgq.subscription") == 1
