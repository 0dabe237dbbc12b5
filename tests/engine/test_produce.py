"""Producing: what comes out is what went in, whatever the name, the type and the way."""

from __future__ import annotations

import json
from typing import Any, LiteralString

import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from tests.clusters import Database
from tests.engine.support import (
    Conn,
    batch_data,
    begin,
    column,
    commit,
    configure,
    create,
    deliver,
    finish,
    in_background,
    next_batch,
    refused,
    rollback,
    rows,
    send,
    tick,
    value,
)
from tests.waiting import wait_blocked

NAMES = [
    "plain",
    "x" * 63,
    "x" * 128,
    "日本語のキュー" * 9,
    "ünï-cödé",
    'it\'s "quoted"',
    "100% %s %I",
    "semi;colon--",
    "back\\slash",
    "a.b.c",
    "$1",
    "event_1",
]

FIELDS: LiteralString = (
    "select ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4 from pgq.get_batch_events(%s)"
)


def _delivered(conn: Conn) -> list[tuple[Any, ...]]:
    """Fields of the next batch."""
    tick(conn)
    batch = next_batch(conn)
    found = rows(conn, FIELDS, batch)
    finish(conn, batch)
    return [tuple(row) for row in found]


# -- what goes in ---------------------------------------------------------------------------------------------------


def test_any_name(db: Database) -> None:
    conn = db.connect()
    for name in NAMES:
        _use(conn, name)


def _use(conn: Conn, name: str) -> None:
    create(conn, name, queue=name)
    send(conn, "one", queue=name)
    assert deliver(conn, name, name) == ["one"]
    assert column(conn, "select queue_name from pgq.get_queue_info()") == [name]
    assert rows(conn, "select queue_name, consumer_name from pgq.get_consumer_info(%s)", name) == [(name, name)]
    assert value(conn, "select pgq.drop_queue(%s, true)", name) == 1


def test_names_that_are_refused(db: Database) -> None:
    conn = db.connect()
    for bad in ("", " ", " padded", "padded ", "a\tb", "a\nb", "a\x01b", "x" * 129, None):
        with refused("PQ006"):
            value(conn, "select pgq.create_queue(%s)", bad)
    assert rows(conn, "select * from pgq.get_queue_info()") == []


NULLS: list[tuple[LiteralString, tuple[str | None, str | None]]] = [
    ("select pgq.insert_event('q', null, null)", (None, None)),
    ("select pgq.insert_event('q', null, 'data', null, null, null, null)", (None, "data")),
    ("select pgq.send('q', null::text)", (None, None)),
    ("select pgq.send('q', 'type', null::jsonb)", ("type", None)),
    ("select pgq.send('q', null, '')", (None, "")),
    ("select pgq.send_batch('q', null, array[null]::text[])", (None, None)),
    ("select pgq.insert_events('q', null, array[null]::text[])", (None, None)),
    ("select pgq.insert_events('q', '{type}', null)", ("type", None)),
]


def test_null_type_and_data(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    for query, expected in NULLS:
        conn.execute(query)
        assert _delivered(conn) == [(*expected, None, None, None, None)]


def test_every_way_to_send(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    producer = sql.Identifier("pgq", value(conn, "select pgq.producer_function('q')"))
    document = {"ключ": [1, None, "\\u0000'\"%"]}
    ids = [
        value(conn, "select pgq.insert_event('q', 't', 'd')"),
        value(conn, "select pgq.insert_event('q', 't', 'd', '1', '2', '3', '4')"),
        value(conn, "select pgq.send('q', 'text')"),
        value(conn, "select pgq.send('q', 't', 'text')"),
        value(conn, "select pgq.send('q', %s)", Jsonb(document)),
        value(conn, "select pgq.send('q', 't', %s)", Jsonb(document)),
        *value(conn, "select pgq.send_batch('q', 't', %s::text[])", ["x", None, "y"]),
        *value(conn, "select pgq.send_batch('q', 't', %s)", [Jsonb(document)]),
        value(conn, sql.SQL("select {}('t', 'd', '1', null, null, '4')").format(producer)),
    ]
    assert ids == sorted(set(ids))
    tick(conn)
    batch = next_batch(conn)
    assert column(conn, "select ev_id from pgq.get_batch_events(%s)", batch) == ids
    found = rows(conn, FIELDS, batch)
    as_json = [(kind, json.loads(data)) for kind, data, *_ in (found[4], found[5], found[9])]
    assert as_json == [(None, document), ("t", document), ("t", document)]
    nothing = (None,) * 4
    assert [found[n] for n in (0, 1, 2, 3, 6, 7, 8, 10)] == [
        ("t", "d", *nothing),
        ("t", "d", "1", "2", "3", "4"),
        (None, "text", *nothing),
        ("t", "text", *nothing),
        ("t", "x", *nothing),
        ("t", None, *nothing),
        ("t", "y", *nothing),
        ("t", "d", "1", None, None, "4"),
    ]


def test_many_events_with_all_their_columns(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    call = "select pgq.insert_events('q', %s::text[], %s::text[], null, '{x,y}', '{}', array[null, null, 'z'])"
    assert value(conn, call, ["a", None, "c"], ["1", "2"]) == 3
    assert value(conn, "select pgq.insert_events('q', null, null)") == 0
    assert _delivered(conn) == [
        ("a", "1", None, "x", None, None),
        (None, "2", None, "y", None, None),
        ("c", None, None, None, None, "z"),
    ]


def test_send_batch_of_nothing(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    for nothing in ("{}", None):
        assert value(conn, "select pgq.send_batch('q', 't', %s::text[])", nothing) == []
    assert tick(conn) is None


def test_send_batch_keeps_its_order(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    data = [str(number * 7919 % 1000) for number in range(1000)]
    ids = value(conn, "select pgq.send_batch('q', 't', %s::text[])", data)
    assert ids == sorted(ids)
    assert deliver(conn) == data


def test_large_data(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    data = "ä" * 5_000_000
    send(conn, data)
    assert deliver(conn) == [data]


def test_copy_into_the_current_table(db: Database) -> None:
    """The columns that are the producer's; id, time and transaction come by themselves."""
    conn = db.connect()
    create(conn, "c")
    begin(conn)
    xid, now = rows(conn, "select pg_current_xact_id()::text::bigint, now()")[0]
    table = sql.Identifier(*value(conn, "select pgq.current_event_table('q')").split("."))
    columns = sql.SQL("ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4")
    with conn.cursor().copy(sql.SQL("copy {} ({}) from stdin").format(table, columns)) as copy:
        copy.write_row(("t", "1", "a", None, None, "d"))
        copy.write_row((None, None, None, None, None, None))
    commit(conn)
    tick(conn)
    batch = next_batch(conn)
    assert rows(conn, "select * from pgq.get_batch_events(%s)", batch) == [
        (1, now, xid, None, "t", "1", "a", None, None, "d"),
        (2, now, xid, None, None, None, None, None, None, None),
    ]


def test_insert_event_raw(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    query: LiteralString = "select pgq.insert_event_raw('q', %s, %s, null, %s, 't', 'd', '1', '2', '3', '4')"
    assert value(conn, query, 77, "2001-02-03", 2) == 77
    assert value(conn, query, None, None, None) == 1
    tick(conn)
    raw: LiteralString = "select ev_id, ev_time = '2001-02-03', ev_retry from pgq.get_batch_events(%s)"
    assert rows(conn, raw, next_batch(conn)) == [(1, False, None), (77, True, 2)]


# -- who may, and when ----------------------------------------------------------------------------------------------


WRITES: list[LiteralString] = [
    "select pgq.insert_event(%s, 't', 'd')",
    "select pgq.insert_event(%s, 't', 'd', null, null, null, null)",
    "select pgq.insert_event_raw(%s, null, null, null, null, 't', 'd', null, null, null, null)",
    "select pgq.send(%s, 'd')",
    "select pgq.send(%s, 't', 'd')",
    "select pgq.send(%s, '1'::jsonb)",
    "select pgq.send(%s, 't', '1'::jsonb)",
    "select pgq.send_batch(%s, 't', '{1}'::text[])",
    "select pgq.insert_events(%s, '{t}', '{1}')",
    "select pgq.send_batch(%s, 't', '{1}'::jsonb[])",
    "select pgq.current_event_table(%s)",
]


def test_unknown_and_disabled_queues(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    for write in WRITES:
        _check_refusals(conn, write)


def _check_refusals(conn: Conn, write: LiteralString) -> None:
    for unknown in ("nosuch", "100%", None):
        with refused("PQ001"):
            conn.execute(write, [unknown])
    configure(conn, "disable_insert", "true")
    with refused("PQ005", "disabled" if "current_event_table" in write else "Insert into queue disallowed"):
        conn.execute(write, ["q"])
    conn.execute("set session_replication_role = replica")  # applies somebody else's events
    conn.execute(write, ["q"])
    conn.execute("reset session_replication_role")
    configure(conn, "disable_insert", "false")
    conn.execute(write, ["q"])
    assert len(deliver(conn)) == (0 if "current_event_table" in write else 2)


def test_the_queues_own_function_is_refused_as_well_when_disabled(db: Database) -> None:
    conn, other = db.connect(), db.connect()
    create(conn, "c")
    call = sql.SQL("select pgq.{}('t', 'd', null, null, null, null)").format(
        sql.Identifier(value(conn, "select pgq.producer_function('q')"))
    )
    value(other, call)
    configure(conn, "disable_insert", "true")
    with refused("PQ005"):
        value(other, call)
    with refused("PQ001"):
        value(conn, "select pgq.producer_function('nosuch')")


@pytest.mark.concurrency
def test_disabling_waits_for_nobody_and_is_part_of_its_transaction(db: Database) -> None:
    admin, conn = db.connect(), db.connect()
    create(conn, "c")
    begin(admin)
    configure(admin, "disable_insert", "true")
    send(conn, "still allowed")
    rollback(admin)
    send(conn, "again")
    assert deliver(conn) == ["still allowed", "again"]


def test_events_of_rolled_back_transactions_never_arrive(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    begin(conn)
    send(conn, "kept 1")
    conn.execute("savepoint s")
    send(conn, "never 1")
    conn.execute("rollback to s")
    send(conn, "kept 2")
    conn.execute("savepoint s2")
    send(conn, "kept 3")
    conn.execute("release s2")
    commit(conn)
    begin(conn)
    send(conn, "never 2")
    rollback(conn)
    tick(conn)
    batch = next_batch(conn)
    assert batch_data(conn, batch) == ["kept 1", "kept 2", "kept 3"]
    xids = column(conn, "select distinct ev_txid from pgq.get_batch_events(%s)", batch)
    assert len(xids) == 1  # the top-level transaction's, also within savepoints


@pytest.mark.concurrency
def test_a_queue_that_is_dropped_while_a_writer_is_inside(db: Database) -> None:
    """Dropping waits for it."""
    writer, admin, conn = db.connect(), db.connect(), db.connect()
    create(conn, "c")
    begin(writer)
    send(writer, "x")
    waiting = in_background(lambda: value(admin, "select pgq.drop_queue('q', true)"))
    assert wait_blocked(conn, admin.info.backend_pid) == [writer.info.backend_pid]
    commit(writer)
    assert waiting.result(30) == 1
    with refused("PQ001"):
        send(writer, "y")
