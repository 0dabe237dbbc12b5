"""What the information functions tell: PgQ's columns with PgQ's meaning, and the state of every ring."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, LiteralString

from tests.clusters import Database
from tests.engine.support import (
    Conn,
    column,
    configure,
    create,
    drain,
    finish,
    force_tick,
    next_batch,
    rotated,
    rows,
    send,
    tick,
    value,
)

QUEUE_INFO = [
    "queue_name",
    "queue_ntables",
    "queue_cur_table",
    "queue_rotation_period",
    "queue_switch_time",
    "queue_external_ticker",
    "queue_ticker_paused",
    "queue_ticker_max_count",
    "queue_ticker_max_lag",
    "queue_ticker_idle_period",
    "ticker_lag",
    "ev_per_sec",
    "ev_new",
    "last_tick_id",
]
CONSUMER_INFO = [
    "queue_name",
    "consumer_name",
    "lag",
    "last_seen",
    "last_tick",
    "current_batch",
    "next_tick",
    "pending_events",
]
BATCH_INFO = [
    "queue_name",
    "consumer_name",
    "batch_start",
    "batch_end",
    "prev_tick_id",
    "tick_id",
    "lag",
    "seq_start",
    "seq_end",
]


def _records(conn: Conn, query: LiteralString, *params: Any) -> list[dict[str, Any]]:
    cur = conn.execute(query, params)
    assert cur.description is not None
    names = [item.name for item in cur.description]
    return [dict(zip(names, row, strict=True)) for row in cur.fetchall()]


def test_queue_info(db: Database) -> None:
    conn = db.connect()
    assert rows(conn, "select * from pgq.get_queue_info()") == []
    create(conn, "c", slots=4)
    create(conn, queue="a")
    (info,) = _records(conn, "select * from pgq.get_queue_info('q')")
    assert list(info) == QUEUE_INFO
    told = {name: info[name] for name in QUEUE_INFO[:4] + QUEUE_INFO[5:10]}
    assert told == {
        "queue_name": "q",
        "queue_ntables": 4,
        "queue_cur_table": 0,
        "queue_rotation_period": timedelta(hours=2),
        "queue_external_ticker": False,
        "queue_ticker_paused": False,
        "queue_ticker_max_count": 500,
        "queue_ticker_max_lag": timedelta(seconds=3),
        "queue_ticker_idle_period": timedelta(minutes=1),
    }
    assert (info["ev_new"], info["last_tick_id"], info["ev_per_sec"]) == (0, 1, None)
    send(conn, "1", "2")
    tick(conn)
    send(conn, "3", "4", "5")
    rotated(conn, "switched")
    configure(conn, "ticker_max_count", "7")
    (later,) = _records(conn, "select * from pgq.get_queue_info('q')")
    assert (later["ev_new"], later["last_tick_id"], later["queue_cur_table"]) == (3, 2, 1)
    assert later["ev_per_sec"] > 0
    assert later["queue_switch_time"] > info["queue_switch_time"]
    assert (later["queue_ticker_max_count"], later["ticker_lag"] > timedelta(0)) == (7, True)
    assert column(conn, "select queue_name from pgq.get_queue_info()") == ["a", "q"]
    assert rows(conn, "select * from pgq.get_queue_info('nosuch')") == []


def test_consumer_info(db: Database) -> None:
    conn = db.connect()
    create(conn, "c", "d")
    create(conn, "c", queue="other")
    send(conn, "1", "2")
    tick(conn)
    batch = next_batch(conn)
    send(conn, "3")
    tick(conn)
    found = _records(conn, "select * from pgq.get_consumer_info('q')")
    assert [list(record) for record in found] == [CONSUMER_INFO] * 2
    assert [tuple(record.values())[4:] for record in found] == [(1, batch, 2, 3), (1, None, None, 3)]
    assert all(record["lag"] > record["last_seen"] * 0 for record in found)
    finish(conn, batch)
    (record,) = _records(conn, "select * from pgq.get_consumer_info('q', 'c')")
    assert (record["last_tick"], record["current_batch"], record["pending_events"]) == (2, None, 1)
    everyone = [("other", "c"), ("q", "c"), ("q", "d")]
    assert rows(conn, "select queue_name, consumer_name from pgq.get_consumer_info()") == everyone
    assert rows(conn, "select queue_name from pgq.get_consumer_info(null, 'd')") == [("q",)]
    assert rows(conn, "select * from pgq.get_consumer_info('nosuch')") == []
    assert rows(conn, "select * from pgq.get_consumer_info('q', 'nosuch')") == []


def test_batch_info(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    force_tick(conn)
    send(conn, "1", "2")
    tick(conn)
    batch = next_batch(conn)
    (info,) = _records(conn, "select * from pgq.get_batch_info(%s)", batch)
    assert list(info) == BATCH_INFO
    assert [info[name] for name in ("queue_name", "consumer_name", "prev_tick_id", "tick_id")] == ["q", "c", 1, 3]
    assert (info["seq_start"], info["seq_end"]) == (0, 2)
    times = column(conn, "select tick_time from pgq.tick where tick_id in (1, 3) order by tick_id")
    assert [info["batch_start"], info["batch_end"]] == times
    assert info["lag"] > timedelta(0)
    ids = _records(conn, "select * from pgq.next_batch_info('q', 'c')")
    expected = "batch_id cur_tick_id prev_tick_id cur_tick_time prev_tick_time cur_tick_event_seq prev_tick_event_seq"
    assert (list(ids[0]), ids[0]["batch_id"]) == (expected.split(), batch)


def test_views_look_like_pgqs_tables(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    send(conn, "1")
    tick(conn)
    batch = next_batch(conn)
    (record,) = _records(conn, "select * from pgq.subscription")
    assert list(record) == [
        "sub_id",
        "sub_queue",
        "sub_consumer",
        "sub_last_tick",
        "sub_active",
        "sub_batch",
        "sub_next_tick",
    ]
    assert (record["sub_last_tick"], record["sub_batch"], record["sub_next_tick"]) == (1, batch, 2)
    ticks = _records(conn, "select * from pgq.tick order by tick_id")
    assert list(ticks[0]) == ["tick_queue", "tick_id", "tick_time", "tick_snapshot", "tick_event_seq"]
    assert [(record["tick_id"], record["tick_event_seq"]) for record in ticks] == [(1, 0), (2, 1)]


def test_ring_info(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    query: LiteralString = (
        "select ring, queue_name, generation, closed, slots, bytes > 0, skipped from pgq.ring_info() where ring = %s"
    )
    assert rows(conn, query, "event_1") == [("event_1", "q", 3, True, 3, True, 0)]
    send(conn, "x")
    before = value(conn, "select switched_at from pgq.ring_info() where ring = 'event_1'")
    rotated(conn, "switched")
    assert rows(conn, query, "event_1") == [("event_1", "q", 4, False, 3, True, 0)]
    assert value(conn, "select switched_at from pgq.ring_info() where ring = 'event_1'") > before
    rotated(conn, "closed", "waiting")
    assert rows(conn, query, "event_1")[0][2:4] == (4, True)
    for ring in ("tick_ring", "cursor_ring"):
        assert rows(conn, query, ring) == [(ring, None, 1, True, 3, True, 0)]
    assert drain(conn) == []


def test_version(db: Database) -> None:
    assert db.value("select pgq.version() ~ '^3\\.5\\.'") is True
