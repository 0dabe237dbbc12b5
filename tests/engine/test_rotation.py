"""Rotation of event rings: what is still needed stays, what is not goes, and only what must wait waits."""

from __future__ import annotations

import pytest

from pgq_py.embedded import Server
from tests.clusters import Database
from tests.engine.support import (
    Conn,
    begin,
    commit,
    configure,
    create,
    deliver,
    drain,
    event_ring,
    filled_slots,
    finish,
    force_tick,
    in_background,
    next_batch,
    phase,
    refused,
    ring_info,
    rollback,
    rotate,
    rotate_until,
    rotated,
    rows,
    send,
    take,
    tick,
    value,
)
from tests.waiting import wait_blocked


def _step1(conn: Conn, queue: str = "q") -> int:
    return int(value(conn, "select pgq.maint_rotate_tables_step1(%s)", queue))


def _operations(conn: Conn) -> list[tuple[str, str | None]]:
    found = rows(conn, "select func_name, func_arg from pgq.maint_operations()")
    return [(str(name), arg) for name, arg in found]


def _maintain(conn: Conn) -> None:
    """What a ticker does: every operation, each in its own transaction, again while it returns 1."""
    for name, arg in _operations(conn):
        assert name in ("pgq.maint_rotate_tables_step1", "pgq.maint_rotate_tables_step2")
        while arg is not None and _step1(conn, arg):
            pass
        if arg is None:
            assert value(conn, "select pgq.maint_rotate_tables_step2()") == 0


# -- who needs a slot -----------------------------------------------------------------------------------------------


def test_the_slowest_consumer_keeps_the_slot(db: Database) -> None:
    conn = db.connect()
    create(conn, "fast", "slow")
    send(conn, "a")
    assert deliver(conn, "fast") == ["a"]
    rotated(conn, "switched", "closed", "waiting")
    tick(conn)
    assert drain(conn, "fast") == []
    rotated(conn, "waiting")
    batch = next_batch(conn, "slow")
    rotated(conn, "waiting")
    finish(conn, batch)
    rotated(conn, "waiting")  # it stands at a tick that late writers could still have added to
    assert drain(conn, "slow") == []
    rotated(conn, "truncated", "idle")


@pytest.mark.concurrency
def test_a_slot_that_is_needed_is_not_even_tried(db: Database) -> None:
    """Each attempt at its lock would stall replay on standbys: whether it is dead is found out before."""
    reader, conn = db.connect(), db.connect()
    create(conn, "c")
    send(conn, "a")
    tick(conn)
    begin(reader)
    value(reader, "select count(*) from pgq.event_1_0")
    rotated(conn, "switched", "closed", "waiting", "waiting")
    assert ring_info(conn, "event_1", "skipped") == 0


def test_without_consumers_the_newest_tick_decides(db: Database) -> None:
    conn = db.connect()
    create(conn)
    send(conn, "a")
    rotated(conn, "switched", "closed", "waiting")
    tick(conn)
    rotated(conn, "truncated", "idle")


def test_a_consumer_that_has_gone_needs_nothing(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    send(conn, "a")
    tick(conn)
    rotated(conn, "switched", "closed")
    tick(conn)
    rotated(conn, "waiting")
    assert value(conn, "select pgq.unregister_consumer('q', 'c')") == 1
    rotated(conn, "truncated")


def test_a_slot_of_aborted_rows_is_truncated(db: Database) -> None:
    """It shows no row and has no greatest id, but it is not empty."""
    conn = db.connect()
    create(conn, "c")
    begin(conn)
    send(conn, *["never"] * 10)
    rollback(conn)
    rotated(conn, "switched", "closed")
    assert tick(conn) is not None
    assert deliver(conn) == []
    assert filled_slots(conn, "event_1") == [0]
    rotated(conn, "truncated", "idle")
    assert filled_slots(conn, "event_1") == []


def test_refused_rows_in_a_slot_ahead_do_not_stop_the_ring(db: Database) -> None:
    """From the first generation on, in which that slot has no generation yet."""
    conn = db.connect()
    create(conn, "c")
    for generation in range(4):
        for number in range(3):
            if number != generation % 3:
                with refused("40001"):
                    conn.execute(f"insert into pgq.event_1_{number} (ev_data) values ('refused')".encode())
        send(conn, "x")
        deliver(conn)
        assert rotate_until(conn, "switched")
        rotated(conn, "closed")
        deliver(conn)
    assert rotate_until(conn, "idle")
    assert filled_slots(conn, "event_1") == []


@pytest.mark.concurrency
def test_an_uncommitted_registration_is_not_overtaken(db: Database) -> None:
    """Its consumer is placed at a tick whose events could be truncated before anybody sees it."""
    new, conn = db.connect(), db.connect()
    create(conn)
    at = force_tick(conn)
    send(conn, "a")
    tick(conn)
    rotated(conn, "switched", "closed")
    tick(conn)
    begin(new)
    assert value(new, "select pgq.register_consumer_at('q', 'c', %s)", at) == 1
    rotated(conn, "busy")
    commit(new)
    rotated(conn, "waiting")
    assert drain(conn) == ["a"]


@pytest.mark.concurrency
def test_a_registration_waits_for_a_truncation_and_is_refused_below_it(db: Database) -> None:
    new, conn, observer = db.connect(), db.connect(), db.connect()
    create(conn)
    at = force_tick(conn)
    send(conn, "a")
    tick(conn)
    rotated(conn, "switched", "closed")
    newest = tick(conn)
    begin(conn)
    rotated(conn, "truncated")
    waiting = in_background(lambda: value(new, "select pgq.register_consumer_at('q', 'c', %s)", at))
    wait_blocked(observer, new.info.backend_pid)
    commit(conn)
    with refused("PQ008", f"tick not found: {at}"):
        waiting.result(30)
    assert value(new, "select pgq.register_consumer_at('q', 'c', %s)", newest) == 1


# -- who is in the way ----------------------------------------------------------------------------------------------


@pytest.mark.concurrency
def test_an_open_select_on_a_slot_is_skipped_counted_named_and_passed(db: Database) -> None:
    reader, conn = db.connect(application_name="report"), db.connect()
    create(conn, "c")
    send(conn, "a")
    deliver(conn)
    rotated(conn, "switched", "closed")
    begin(reader)
    assert value(reader, "select count(*) from pgq.event_1_0") == 1
    deliver(conn)
    rotated(conn, "blocked", "blocked")
    assert ring_info(conn, "event_1", "skipped") == 2
    blockers = rows(
        conn, "select ring, slot, pid, gid, usename, datname, application_name, mode from pgq.ring_blockers()"
    )
    mine = ("postgres", db.name, "report", "AccessShareLock")
    assert blockers == [("event_1", "event_1_0", reader.info.backend_pid, None, *mine)]
    assert value(conn, "select age between '0' and '1 minute' from pgq.ring_blockers()") is True
    for data in "bcd":
        send(conn, data)
        assert deliver(conn) == [data]
    commit(reader)
    rotated(conn, "truncated")
    assert rows(conn, "select * from pgq.ring_blockers()") == []


@pytest.mark.concurrency
def test_a_reader_elsewhere_does_not_block_a_truncation(db: Database) -> None:
    """Reading a batch locks its own slots alone."""
    reader, conn = db.connect(), db.connect()
    create(conn, "c")
    send(conn, "a")
    deliver(conn)
    rotated(conn, "switched", "closed")
    send(conn, "b")
    deliver(conn)
    begin(reader)
    send(conn, "c")
    tick(conn)
    assert take(reader) == ["c"]
    send(conn, "d")
    rotated(conn, "truncated")
    commit(reader)
    assert deliver(conn) == ["d"]


@pytest.mark.concurrency
def test_a_reader_does_not_stop_writers_behind_a_waiting_truncation(db: Database) -> None:
    """Maintenance never queues for a lock: nobody ever waits behind it."""
    reader, conn = db.connect(), db.connect()
    create(conn, "c")
    send(conn, "a")
    deliver(conn)
    begin(reader)
    value(reader, "select count(*) from pgq.event_1")
    conn.execute("set lock_timeout = '2s'")
    for data in "bcd":
        rotate_until(conn, "blocked" if data == "d" else "closed")
        send(conn, data)
        assert deliver(conn) == [data]


# -- when -----------------------------------------------------------------------------------------------------------


def test_an_idle_queue_ends_with_empty_slots(db: Database) -> None:
    """With nothing but a ticker and a polling consumer, and no event after the last one."""
    conn = db.connect()
    create(conn, "c")
    configure(conn, "rotation_period", "0")
    send(conn, "a", "b")
    assert deliver(conn) == ["a", "b"]
    ticks = []
    for _ in range(6):
        _maintain(conn)
        ticks.append(tick(conn))
        assert drain(conn) == []
    assert filled_slots(conn, "event_1") == []
    assert len([t for t in ticks if t]) == 1
    assert _operations(conn) == []


def test_the_rotation_period_decides(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    send(conn, "a")
    deliver(conn)
    assert _operations(conn) == []
    assert _step1(conn) == 0
    assert phase(conn, "event_1") == 7
    configure(conn, "rotation_period", "0")
    assert _operations(conn) == [("pgq.maint_rotate_tables_step1", "q"), ("pgq.maint_rotate_tables_step2", None)]
    assert (_step1(conn), phase(conn, "event_1")) == (0, 8)  # switched
    assert (_step1(conn), phase(conn, "event_1")) == (1, 9)  # closed: call again
    assert _step1(conn) == 0  # waiting for the consumer
    deliver(conn)
    assert _step1(conn) == 1  # truncated
    assert _step1(conn) == 0
    configure(conn, "rotation_period", None)
    send(conn, "b")
    assert (_step1(conn), _operations(conn)) == (0, [])


def test_a_large_slot_is_left_before_its_time(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    value(
        conn,
        "select count(*) from (select pgq.insert_event('q', 't', repeat('x', 1000)) from generate_series(1, 9000)) s",
    )
    assert _operations(conn) == [("pgq.maint_rotate_tables_step1", "q"), ("pgq.maint_rotate_tables_step2", None)]
    _maintain(conn)
    assert phase(conn, "event_1") == 8


def test_an_unknown_queue_is_nothing_to_do(db: Database) -> None:
    conn = db.connect()
    assert _step1(conn, "nosuch") == 0
    assert rows(conn, "select * from pgq.maint_tables_to_vacuum()") == []
    with refused("PQ001"):
        rotate(conn, "nosuch")


def test_extra_maintenance_is_listed(db: Database) -> None:
    conn = db.connect()
    create(conn)
    conn.execute("update pgq.queue set queue_extra_maint = '{a.one,a.two}'")
    assert _operations(conn) == [("a.one", "q"), ("a.two", "q")]


# -- what steps rely on -----------------------------------------------------------------------------------------------


def test_no_step_relies_on_advisory_locks(db: Database) -> None:
    """Anybody may take those, and keep them."""
    conn = db.connect()
    create(conn, "c")
    send(conn, "x")
    begin(conn)
    tick(conn)
    assert next_batch(conn)
    rotate(conn)
    value(conn, "select pgq.register_consumer('q', 'd')")
    value(conn, "select pgq.seek('q', 'd', 'latest')")
    kinds = rows(conn, "select distinct locktype from pg_locks where pid = pg_backend_pid()")
    assert ("advisory",) not in kinds
    assert ("relation",) in kinds
    rollback(conn)


# -- a crash --------------------------------------------------------------------------------------------------------


@pytest.mark.crash
@pytest.mark.newest
def test_every_step_survives_a_crash(private_db: Database, private_server: Server) -> None:
    """Phases are sequences, which a crash makes jump unless they are set absolutely and logged at once."""
    conn = private_db.connect()
    create(conn, "c")
    for number, result in enumerate(["switched", "closed", "truncated"] * 2):
        send(conn, str(number))
        assert deliver(conn) == [str(number)]
        rotate_until(conn, result)
        before = phase(conn, event_ring(conn))
        send(conn, "kept")
        private_db.close()
        private_server.crash()
        private_server.start()
        conn = private_db.connect()
        assert phase(conn, "event_1") == before
        assert deliver(conn) == ["kept"]
