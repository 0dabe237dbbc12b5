"""On demand: producers wake a ticker that has asked for it, and nobody else."""

from __future__ import annotations

from typing import LiteralString

import pytest

from tests.clusters import Database
from tests.engine.support import (
    OLD_SNAPSHOTS,
    QUEUE,
    Conn,
    begin,
    commit,
    create,
    event_ring,
    force_tick,
    refused,
    rows,
    send,
    tick,
    value,
)

ARM = "select pgq.arm_wake(%s)"


def heard(conn: Conn) -> list[tuple[str, str]]:
    return [(n.channel, n.payload) for n in conn.notifies(timeout=0.1)]


@pytest.fixture
def sessions(db: Database) -> tuple[Conn, Conn, str]:
    conn, listener = db.connect(), db.connect()
    create(conn, "c")
    listener.execute("listen pgq_wake")
    return conn, listener, event_ring(conn).removeprefix("event_")


def test_an_armed_ticker_is_woken_by_every_way_to_send(sessions: tuple[Conn, Conn, str]) -> None:
    conn, listener, number = sessions
    send(conn, "nobody has asked")
    assert heard(listener) == []
    value(conn, ARM, 10_000)
    assert 9_000 < value(conn, "select pgq.wake_armed_ms()") <= 10_000
    calls: dict[LiteralString, str] = {
        "select pgq.insert_event(%s, 't', 'x')": number,
        "select pgq.send_batch(%s, 't', array['a', 'b'])": number,
        "select pgq.send(%s, 't', 'x'::text, deliver_in => interval '1 hour')": f"{number} later",
        "select pgq.insert_event_raw(%s, null, null, null, null, 't', 'x', null, null, null, null)": number,
        "select pgq.wake(%s)": number,
    }
    for call, payload in calls.items():
        value(conn, call, QUEUE)
        assert heard(listener) == [("pgq_wake", payload)], call
    value(conn, ARM, 0)
    send(conn, "x")
    assert heard(listener) == []


def test_the_deadline_passes_by_itself(sessions: tuple[Conn, Conn, str]) -> None:
    """A ticker that dies is not woken for ever: sleeping past the deadline is the point here."""
    conn, listener, _ = sessions
    value(conn, ARM, 1)
    rows(conn, "select pg_sleep(0.005)")
    assert value(conn, "select pgq.wake_armed_ms()") == 0
    send(conn, "x")
    assert heard(listener) == []


@pytest.mark.parametrize("level", OLD_SNAPSHOTS)
def test_a_producer_with_an_old_snapshot_sees_the_arming(db: Database, level: str) -> None:
    conn, writer, listener = db.connect(), db.connect(), db.connect()
    create(conn, "c")
    listener.execute("listen pgq_wake")
    begin(writer, level)
    value(conn, ARM, 10_000)
    send(writer, "x")
    commit(writer)
    assert len(heard(listener)) == 1


def test_two_phase_producers_switch_it_off(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    value(conn, ARM, 10_000)
    conn.execute("set pgq.wake = off")
    conn.execute("begin")
    send(conn, "prepared")
    conn.execute("prepare transaction 'wake'")
    conn.execute("commit prepared 'wake'")
    assert rows(conn, "select pgq.queues_due()") == [(QUEUE,)]


def test_a_queue_can_be_created_in_a_prepared_transaction(db: Database) -> None:
    conn = db.connect()
    value(conn, ARM, 10_000)
    conn.execute("begin")
    create(conn, queue="prepared")
    conn.execute("prepare transaction 'create'")
    conn.execute("commit prepared 'create'")
    send(conn, "x", queue="prepared")
    assert tick(conn, "prepared") == 2


def test_every_tick_wakes_the_consumers_of_its_queue(sessions: tuple[Conn, Conn, str]) -> None:
    conn, listener, number = sessions
    channel = value(conn, "select pgq.tick_channel(%s)", QUEUE)
    assert channel == f"pgq_tick_{number}"
    listener.execute(f"listen {channel}".encode())
    send(conn, "x")
    made = tick(conn)
    assert heard(listener) == [(channel, str(made))]
    forced = force_tick(conn)
    assert heard(listener) == [(channel, str(forced))]
    assert heard(listener) == []


def test_marks_move_with_every_event_that_has_an_id(sessions: tuple[Conn, Conn, str]) -> None:
    conn, _, number = sessions
    marks = "select queue_name, queue_id, event_seq from pgq.queue_marks()"
    assert rows(conn, marks) == [(QUEUE, int(number), 0)]
    send(conn, "x", "y")
    assert rows(conn, marks) == [(QUEUE, int(number), 2)]
    value(conn, "select pgq.pause_queue(%s)", QUEUE)
    assert rows(conn, marks) == []


@pytest.mark.parametrize("ms", [-1, 60_001, None])
def test_impossible_deadlines_are_refused(db: Database, ms: int | None) -> None:
    with refused("PQ006"):
        value(db.connect(), ARM, ms)
