"""Remote tracking: what was marked as done is found again, whatever rotation does in between."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.clusters import Database
from tests.engine.support import Conn, begin, commit, evacuate, refused, rollback, rows, value
from tests.waiting import wait_blocked

RING = "done_ring"


def mark(conn: Conn, batch: int, who: str = "c") -> Any:
    return value(conn, "select pgq_ext.set_batch_done(%s, %s)", who, batch)


def marked(conn: Conn, batch: int, who: str = "c") -> Any:
    return value(conn, "select pgq_ext.is_batch_done(%s, %s)", who, batch)


def mark_event(conn: Conn, batch: int, event: int, who: str = "c") -> Any:
    return value(conn, "select pgq_ext.set_event_done(%s, %s, %s)", who, batch, event)


def events(conn: Conn) -> list[Any]:
    return rows(conn, "select consumer_id, batch_id, event_id from pgq_ext.completed_event order by 1, 2, 3")


def test_the_last_batch_and_tick_of_each_consumer(conn: Conn) -> None:
    assert (marked(conn, 1), mark(conn, 1), marked(conn, 1), mark(conn, 1)) == (False, True, True, False)
    assert (mark(conn, 2), marked(conn, 1), mark(conn, 1), marked(conn, 1)) == (True, False, True, True)
    assert (mark(conn, 0), marked(conn, 1), marked(conn, 1, "other")) == (True, True, False)
    assert value(conn, "select pgq_ext.set_batch_done('c', 'sub', 9)")
    assert value(conn, "select pgq_ext.is_batch_done('c', 'sub', 9)")
    assert rows(conn, "select * from pgq_ext.completed_batch order by 2") == [("c", "", 1), ("c", "sub", 9)]
    assert rows(conn, "select pgq_ext.set_last_tick('c', 7), pgq_ext.set_last_tick('c', 'sub', 8)") == [(1, 1)]
    assert rows(conn, "select * from pgq_ext.completed_tick order by 2") == [("c", "", 7), ("c", "sub", 8)]


def test_events_of_another_batch_are_forgotten(conn: Conn) -> None:
    assert [mark_event(conn, 3, 101), mark_event(conn, 3, 102), mark_event(conn, 3, 101)] == [True, True, False]
    assert mark_event(conn, 4, 101)
    assert events(conn) == [("c", 4, 101)]
    assert rows(conn, "select * from pgq_ext.partial_batch") == [("c", "", 4)]
    assert mark_event(conn, 3, 102)  # as in PgQ: the batch is begun anew
    assert events(conn) == [("c", 3, 102)]


def test_marks_outlive_rotation_and_what_they_replaced_does_not(conn: Conn) -> None:
    for batch in range(1, 20):
        mark(conn, batch)
    value(conn, "select pgq_ext.set_last_tick('c', 7)")
    value(conn, "select pgq_ext.set_last_tick('gone', 7)")
    value(conn, "select pgq_ext.set_last_tick('gone', null)")
    mark_event(conn, 2, 1)
    mark_event(conn, 3, 101)
    for turn in range(4):
        for batch in range(1, 20):  # a slot is worth evacuating when half of it is dead
            mark(conn, 100 * turn + batch, "busy")
        evacuate(conn, RING)
        assert mark_event(conn, 3, 102 + turn)
        assert (marked(conn, 19), marked(conn, 18), mark_event(conn, 3, 101)) == (True, False, False)
        assert value(conn, "select pgq_ext.get_last_tick('c')") == 7
        assert value(conn, "select pgq_ext.get_last_tick('gone')") is None
    assert events(conn) == [("c", 3, number) for number in range(101, 106)]
    assert value(conn, "select count(*) from pgq.done_ring") == 1 + 1 + 1 + 5


def test_a_mark_is_part_of_its_transaction(conn: Conn) -> None:
    begin(conn)
    assert mark(conn, 1)
    rollback(conn)
    assert not marked(conn, 1)


@pytest.mark.concurrency
def test_two_who_mark_the_same_take_turns(db: Database, conn: Conn) -> None:
    mark(conn, 1)
    first, second = db.connect(), db.connect()
    begin(first)
    assert mark(first, 2)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(mark, second, 2)
        assert wait_blocked(conn, second.info.backend_pid) == [first.info.backend_pid]
        commit(first)
        assert other.result() is False


@pytest.mark.concurrency
def test_who_asks_during_an_evacuation_gets_the_answer_after_it(db: Database, conn: Conn) -> None:
    assert [mark(conn, batch) for batch in (3, 2, 1)] == [True] * 3
    assert value(conn, "select pgq._ring_step('done_ring', true)") == "switched"
    assert value(conn, "select pgq._ring_step('done_ring', true)") == "closed"
    moving, asking = db.connect(), db.connect()
    begin(moving)
    assert value(moving, "select pgq._ring_step('done_ring', true)") == "truncated"
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(marked, asking, 1)
        assert wait_blocked(conn, asking.info.backend_pid) == [moving.info.backend_pid]
        commit(moving)
        assert answer.result() is True


def test_what_is_refused(db: Database, conn: Conn) -> None:
    for call in ("select pgq_ext.set_batch_done(null, 1)", "select pgq_ext.set_event_done('c', 1, null)"):
        with refused("PQ006"):
            conn.execute(call.encode())
    begin(conn, "repeatable read")
    with refused("PQ007"):
        marked(conn, 1)
    rollback(conn)
    for role, allowed in (("pgq_writer", True), ("pgq_admin", True), ("pgq_reader", False)):
        call = "select has_function_privilege(%s, 'pgq_ext.set_batch_done(text, bigint)', 'execute')"
        assert value(conn, call, role) is allowed
    assert value(conn, "select pgq_ext.upgrade_schema()") == 0


@pytest.mark.slow
def test_no_dead_row(db: Database, conn: Conn) -> None:
    mark(conn, 1)
    for batch in range(2, 300):
        mark_event(conn, batch, 1)
        mark(conn, batch)
        value(conn, "select pgq_ext.set_last_tick('c', %s)", batch)
    if conn.info.server_version >= 150000:
        conn.execute("select pg_stat_force_next_flush()")
    hot = "select relname from pg_stat_user_tables where schemaname in ('pgq', 'pgq_ext') and n_tup_upd + n_tup_del > 0"
    assert db.rows(hot) == []
