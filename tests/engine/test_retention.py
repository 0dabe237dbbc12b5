"""Retention: consumed events that are kept for a while, to go back to."""

from __future__ import annotations

from tests.clusters import Database
from tests.engine.support import (
    configure,
    create,
    deliver,
    drain,
    filled_slots,
    refused,
    rotate,
    rotated,
    send,
    tick,
    value,
)


def test_retention_keeps_what_was_consumed_and_seek_goes_back(db: Database) -> None:
    conn = db.connect()
    create(conn, "c", slots=6)
    configure(conn, "retention", "1 hour")
    start = value(conn, "select last_tick from pgq.get_consumer_info('q', 'c')")
    for data in "abc":
        send(conn, data)
        assert deliver(conn) == [data]
        rotated(conn, "switched", "closed")
        assert deliver(conn) == []
    rotated(conn, "waiting")
    assert filled_slots(conn, "event_1") == [0, 1, 2]
    assert value(conn, "select pgq.seek('q', 'c', %s::bigint)", start) == start
    assert drain(conn) == ["a", "b", "c"]
    configure(conn, "retention", "0")
    rotated(conn, "truncated", "truncated", "truncated", "idle")
    with refused("PQ008"):
        value(conn, "select pgq.seek('q', 'c', %s::bigint)", start)


def test_retention_ends(db: Database) -> None:
    """Slots go when the first tick behind them is old enough."""
    conn = db.connect()
    create(conn)
    configure(conn, "retention", "1 microsecond")
    send(conn, "a")
    tick(conn)
    rotated(conn, "switched", "closed")
    tick(conn)
    rotated(conn, "truncated")


def test_a_full_ring_grows_rather_than_losing_retained_events(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    configure(conn, "retention", "1 hour")
    for number in range(6):
        send(conn, str(number))
        assert deliver(conn) == [str(number)]
        rotate(conn)
        rotate(conn)
        deliver(conn)
    assert value(conn, "select pgq.seek('q', 'c', 'earliest')") == 1
    assert drain(conn) == [str(number) for number in range(6)]
