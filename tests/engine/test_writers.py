"""Writers that are late: whatever they hold, wherever they stalled, what commits is delivered; the rest is refused."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql

from tests.clusters import Cluster, Database
from tests.engine.support import (
    OLD_SNAPSHOTS,
    Conn,
    begin,
    commit,
    create,
    deliver,
    drain,
    event_ring,
    filled_slots,
    in_background,
    phase,
    refused,
    ring_info,
    rollback,
    rotate_until,
    rotated,
    rows,
    send,
    tick,
    value,
)
from tests.waiting import wait_blocked

pytestmark = pytest.mark.concurrency


def _copy(conn: Conn, table: str, *data: str) -> None:
    name = sql.Identifier(*table.split("."))
    with conn.cursor().copy(sql.SQL("copy {} (ev_type, ev_data) from stdin").format(name)) as copy:
        for item in data:
            copy.write_row(("t", item))


def _insert_event(conn: Conn) -> None:
    value(conn, "select pgq.insert_event('q', 't', 'late')")


def _insert_event_7(conn: Conn) -> None:
    value(conn, "select pgq.insert_event('q', 't', 'late', '1', '2', '3', '4')")


def _send_batch(conn: Conn) -> None:
    value(conn, "select pgq.send_batch('q', 't', array['late'])")


def _produce(conn: Conn) -> None:
    name = sql.Identifier(value(conn, "select pgq.producer_function('q')"))
    value(conn, sql.SQL("select pgq.{}('t', 'late', null, null, null, null)").format(name))


def _copy_now(conn: Conn) -> None:
    _copy(conn, value(conn, "select pgq.current_event_table('q')"), "late")


WAYS = [_insert_event, _insert_event_7, _send_batch, _produce, _copy_now]


def _generation(conn: Conn, data: str) -> None:
    """A whole turn of the ring: the previous slot is truncated, the current one filled, left and closed."""
    send(conn, data)
    assert deliver(conn) == [data]
    rotate_until(conn, "switched")
    rotate_until(conn, "closed")
    deliver(conn)


@pytest.mark.parametrize("level", OLD_SNAPSHOTS)
def test_a_snapshot_older_than_several_rotations(db: Database, level: str) -> None:
    """Whichever way it writes, and though the ring goes on before it commits."""
    writers, conn = [db.connect() for _ in WAYS], db.connect()
    create(conn, "c")
    for writer in writers:
        begin(writer, level)
    for generation in range(5):
        _generation(conn, str(generation))
    for write, writer in zip(WAYS, writers, strict=True):
        write(writer)
    rotate_until(conn, "switched")
    tick(conn)
    for writer in writers:
        commit(writer)
        assert deliver(conn) == ["late"]
    assert phase(conn, event_ring(conn)) > 12


@pytest.mark.parametrize("level", ["read committed", *OLD_SNAPSHOTS])
def test_an_insert_that_waits_for_the_slot_across_a_rotation(db: Database, level: str) -> None:
    """It chose its slot before the rotation. The slot cannot be closed over it."""
    holder, writer, conn = db.connect(), db.connect(), db.connect()
    create(conn, "c")
    send(conn, "first")
    begin(writer, level)
    begin(holder)
    holder.execute("lock table pgq.event_1_0 in share row exclusive mode")
    waiting = in_background(lambda: send(writer, "late"))
    wait_blocked(conn, writer.info.backend_pid)
    rotated(conn, "switched", "blocked")
    named = rows(conn, "select pid, mode from pgq.ring_blockers()")
    assert named == [(holder.info.backend_pid, "ShareRowExclusiveLock")]
    send(conn, "second")
    tick(conn)
    commit(holder)
    waiting.result(30)
    rotated(conn, "blocked")
    assert drain(conn) == ["first", "second"]
    commit(writer)
    rotated(conn, "closed")
    assert deliver(conn) == ["late"]


def test_an_insert_that_meets_the_closing_of_its_slot_is_refused(db: Database) -> None:
    """It waits for the transaction that closes the slot, and is refused when that is over, committed or not."""
    closer, writer, conn = db.connect(), db.connect(), db.connect()
    create(conn, "c")
    send(conn, "first")
    table = value(writer, "select pgq.current_event_table('q')")
    rotated(conn, "switched")
    begin(closer)
    rotated(closer, "closed")
    waiting = in_background(lambda: _copy(writer, table, "late"))
    wait_blocked(conn, writer.info.backend_pid)
    rollback(closer)
    with refused("40001"):
        waiting.result(30)
    assert deliver(conn) == ["first"]
    _copy(writer, value(writer, "select pgq.current_event_table('q')"), "late")
    assert deliver(conn) == ["late"]


def test_a_stale_copy_target_is_delivered_or_refused(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    stale = value(conn, "select pgq.current_event_table('q')")
    outcomes: list[str] = []
    send(conn, "0")
    for generation in range(1, 10):
        rotate_until(conn, "switched" if generation % 2 else "closed")
        try:
            _copy(conn, stale, "stale")
        except psycopg.errors.SerializationFailure:
            outcomes.append("refused")
        else:
            outcomes.append("delivered")
        send(conn, str(generation))
        assert (deliver(conn).count("stale") == 1) is (outcomes[-1] == "delivered")
    assert outcomes == [
        *("delivered", "refused"),  # previous, then closed
        *("refused", "refused"),
        *("delivered", "delivered"),  # the ring has come round: it is the current one again
        *("delivered", "refused", "refused"),
    ]


def test_rolled_back_writers_do_not_hold_the_slot(db: Database) -> None:
    writer, conn = db.connect(), db.connect()
    create(conn, "c")
    send(conn, "x")
    begin(writer)
    send(writer, "never")
    rotated(conn, "switched", "blocked")
    rollback(writer)
    rotated(conn, "closed")
    assert deliver(conn) == ["x"]


def _prepare(conn: Conn, gid: str, data: str | None) -> None:
    """A prepared transaction; it has written to the queue if there is `data`."""
    begin(conn)
    conn.execute("create table prepared ()") if data is None else send(conn, data)
    conn.execute(sql.SQL("prepare transaction {}").format(gid))


def test_a_prepared_transaction_that_wrote_delays_the_closing(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    gid = f"{db.name} wrote"
    _prepare(conn, gid, "prepared")
    rotated(conn, "switched", "blocked", "blocked")
    assert rows(conn, "select slot, pid, gid, usename, datname, mode, age > '0' from pgq.ring_blockers()") == [
        ("event_1_0", None, gid, "postgres", db.name, "RowExclusiveLock", True)
    ]
    assert ring_info(conn, "event_1", "skipped") == 2
    send(conn, "other")
    assert deliver(conn) == ["other"]
    conn.execute(sql.SQL("commit prepared {}").format(gid))
    rotated(conn, "closed")
    assert deliver(conn) == ["prepared"]
    assert rows(conn, "select * from pgq.ring_blockers()") == []


def test_a_prepared_transaction_that_did_not_write_delays_nothing(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    _prepare(conn, f"{db.name} idle", None)
    _assert_the_ring_turns(conn)


def _assert_the_ring_turns(conn: Conn) -> None:
    """Two whole turns, and an idle queue's slots are empty at the end."""
    for generation in range(6):
        send(conn, str(generation))
        assert deliver(conn) == [str(generation)]
        rotated(conn, "switched", "closed")
        assert deliver(conn) == []
        rotated(conn, "truncated")
    assert filled_slots(conn, event_ring(conn)) == []
    assert ring_info(conn, event_ring(conn), "skipped") == 0


def test_idle_transactions_and_other_queues_delay_nothing(db: Database) -> None:
    """A snapshot that is held, and a transaction that wrote elsewhere, in this queue's database."""
    idle, serial, writer, conn = (db.connect() for _ in range(4))
    create(conn, "c")
    create(conn, queue="other")
    begin(idle, "repeatable read")
    begin(serial, "serializable")
    begin(writer)
    writer.execute("create table elsewhere as select 1")
    send(writer, "x", queue="other")
    _assert_the_ring_turns(conn)
    commit(writer)


def test_a_long_writer_in_another_database_delays_nothing(pg: Cluster, db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    with pg.database() as neighbour:
        writer = neighbour.connect()
        create(writer, "c")
        begin(writer)
        send(writer, "x")
        _assert_the_ring_turns(conn)
        commit(writer)
        assert deliver(writer) == ["x"]


def test_a_writer_in_the_slot_delays_the_closing_alone(db: Database) -> None:
    """Delivery goes on around it, and so does the ring when it ends; status names it."""
    writer, conn = db.connect(application_name="slow writer"), db.connect()
    create(conn, "c")
    begin(writer)
    send(writer, "slow")
    for generation in range(4):
        send(conn, str(generation))
        assert deliver(conn) == [str(generation)]
        rotated(conn, "blocked" if generation else "switched")
    blockers = rows(conn, "select ring, slot, pid, gid, application_name, mode from pgq.ring_blockers()")
    pid = writer.info.backend_pid
    assert blockers == [("event_1", "event_1_0", pid, None, "slow writer", "RowExclusiveLock")]
    assert ring_info(conn, "event_1", "skipped") == 3
    commit(writer)
    rotated(conn, "closed")
    assert deliver(conn) == ["slow"]
    rotated(conn, "truncated", "switched")
    assert deliver(conn) == []


def test_late_writers_in_every_generation(db: Database) -> None:
    """One is inside each slot while the ring leaves it; every window takes what became visible in it, from wherever."""
    late, conn = db.connect(), db.connect()
    create(conn, "c", "stuck", slots=10)
    sent = []
    for generation in range(8):
        begin(late)
        send(late, f"late {generation}")
        send(conn, f"early {generation}")
        assert deliver(conn) == [f"early {generation}"]
        rotated(conn, "switched", "blocked")
        send(conn, f"next {generation}")
        commit(late)
        assert deliver(conn) == [f"late {generation}", f"next {generation}"]
        rotated(conn, "closed")
        sent += [f"late {generation}", f"early {generation}", f"next {generation}"]
    assert sorted(drain(conn, "stuck")) == sorted(sent)
