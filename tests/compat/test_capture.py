"""pgq.capture: what an envelope says, and that a row made of it is the row it was made of."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, LiteralString

import psycopg
import pytest

from pgq_py import InvalidArgument, PgQ, QueueNotFound
from tests.clusters import Database
from tests.compat.applying import apply
from tests.engine.support import refused

KINDS: LiteralString = """
    create type mood as enum ('good', 'bad');
    create type pair as (a int, b text, c numeric);
    create domain positive as numeric check (value > 0);
    create table kinds (
        id int primary key, n numeric, n2 numeric(30,10), f4 float4, f8 float8, i8 int8, b bool, t text, c char(5),
        y bytea, d date, ts timestamp, tz timestamptz, ti time, tt timetz, iv interval, u uuid, j json, jb jsonb,
        ia int[], na numeric[], ya bytea[], ta text[], tza timestamptz[], r int4range, nr numrange, tr tstzrange,
        mr nummultirange, ip inet, net cidr, m mood, p pair, pa pair[], dom positive, bits bit(3), pt point,
        "Odd ""name" text)
"""

ROWS: tuple[LiteralString, ...] = (
    "insert into kinds (id) values (1)",
    """insert into kinds values (2, 1.50, 12345678901.0000000001, 1.1, 0.1, 9223372036854775807, true,
        e'a\\n"b"\\\\ é 😀',
        'ab', '\\x00ff10', '2024-02-29', '2024-01-02 03:04:05.678901', '2024-01-02 03:04:05.678901+05:30', '24:00',
        '12:00+02', '1 year 2 days 3.5 seconds', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{"a" :  1.50}', '{"a": 1.50}',
        '{{1,null},{3,4}}', '{1.50,NaN}', '{"\\\\x00ff",NULL}', '{"a,b","c\\"d",null,NULL,"null"}',
        '{"2024-01-02 03:04:05+00",infinity}', '[1,5)', '(1.50,)',
        '["2024-01-02 03:04:05+00",infinity)', '{[1.5,2),[3,)}',
        '10.0.0.1', '10.0.0.0/8', 'bad', '(1,"x y",1.50)', array[row(1,'a,b',null)::pair, null], 7.10, '101', '(1.5,2)',
        'odd')""",
    "insert into kinds (id, n, f4, f8) values (3, 'NaN', 'NaN', 'NaN')",
    "insert into kinds (id, f4, f8, d, ts, tz, r, ia) values"
    " (4, 'infinity', '-infinity', 'infinity', '-infinity', 'infinity', 'empty', '{}')",
    "insert into kinds (id, n, f8, f4, i8) values"
    " (5, 1e-30, 1.7976931348623157e308, 1.17549435e-38, -9223372036854775808)",
    "insert into kinds (id, n, f8) values (6, repeat('9', 200)::numeric, 5e-324)",
    "insert into kinds (id, tz) values (7, '0044-03-15 00:00:00 BC'), (8, '294276-12-31 23:59:59.999999+00')",
    "update kinds set n = n * 3, t = null, ia = '{9}' where id = 2",
    "update kinds set id = 20 where id = 2",
    "update kinds set t = t where id = 3",
    "delete from kinds where id = 7",
)

AWKWARD: tuple[LiteralString, ...] = (
    "set datestyle = 'SQL, DMY'",
    "set timezone = 'Asia/Kolkata'",
    "set intervalstyle = 'sql_standard'",
    "set bytea_output = 'escape'",
    "set extra_float_digits = -5",
)


def _envelopes(conn: psycopg.Connection[Any]) -> list[str]:
    return [str(row[0]) for row in conn.execute("select ev_data from pgq.event_template order by ev_id")]


def _changes(conn: psycopg.Connection[Any]) -> list[dict[str, Any]]:
    return [json.loads(text, parse_float=Decimal) for text in _envelopes(conn)]


def test_the_envelope(db: Database) -> None:
    conn = db.connect(autocommit=False)
    conn.execute("create table accounts (id int primary key, balance numeric)")
    conn.execute("select pgq.create_queue('q'), pgq.add_capture('q', 'accounts')")
    conn.execute("insert into accounts values (1, 10.50)")
    conn.execute("update accounts set balance = balance - 1")
    conn.execute("update accounts set id = 2")
    conn.execute("delete from accounts")
    conn.execute("truncate accounts")
    ((txid, at),) = conn.execute("select pg_current_xact_id()::text, now()").fetchall()
    one, less, moved = {"id": 1, "balance": Decimal("10.50")}, {"id": 1, "balance": Decimal("9.50")}, {"id": 2}
    expected = [
        ("INSERT", {"id": 1}, None, one),
        ("UPDATE", {"id": 1}, one, less),
        ("UPDATE", {"id": 1}, less, less | moved),
        ("DELETE", {"id": 2}, less | moved, None),
        ("TRUNCATE", None, None, None),
    ]
    changes = _changes(conn)
    assert [(c["op"], c["key"], c["before"], c["after"]) for c in changes] == expected
    assert {c["txid"] for c in changes} == {txid}
    assert {c["table"] for c in changes} == {"public.accounts"}
    ((same,),) = conn.execute(
        "select bool_and(a::timestamptz = %s) from unnest(%s::text[]) a", [at, [c["at"] for c in changes]]
    )
    assert same is True
    fields = conn.execute("select distinct ev_type, ev_extra1, ev_extra2 from pgq.event_template order by 1").fetchall()
    assert fields == [(op, "public.accounts", None) for op in ("DELETE", "INSERT", "TRUNCATE", "UPDATE")]


def test_types_stay_exact(db: Database) -> None:
    """Whatever the writer's settings, a second table that the envelopes are applied to is the first, to the bit."""
    writer, reader = db.connect(), db.connect()
    writer.execute(KINDS)
    writer.execute("create schema copy; create table copy.kinds (like public.kinds including all)")
    writer.execute("select pgq.create_queue('q'), pgq.add_capture('q', 'public.kinds')")
    for statement in (*AWKWARD, *ROWS):
        writer.execute(statement)
    for envelope in _envelopes(reader):
        apply(reader, envelope.replace('"public.kinds"', '"copy.kinds"'))
    bits = "select array(select record_send(k) from {} k order by id)"
    left, right = (reader.execute(bits.format(t).encode()).fetchone() for t in ("public.kinds", "copy.kinds"))
    assert left == right
    assert len(_changes(reader)) == 12


def test_ignored_columns_and_another_key(db: Database) -> None:
    conn = db.connect()
    conn.execute("create table people (id int primary key, email text, password text, seen int, likes json)")
    conn.execute("select pgq.create_queue('q'), pgq.add_capture('q', 'people', '{email}', '{password,seen,likes}')")
    conn.execute("insert into people values (1, 'a@b.c', 'secret', 1)")
    conn.execute("update people set seen = 2, password = 'x', likes = '[]'")
    conn.execute("update people set id = id")
    conn.execute("update people set id = 2, seen = 3")
    assert [(c["op"], c["key"], c["after"]) for c in _changes(conn)] == [
        ("INSERT", {"email": "a@b.c"}, {"id": 1, "email": "a@b.c"}),
        ("UPDATE", {"email": "a@b.c"}, {"id": 1, "email": "a@b.c"}),
        ("UPDATE", {"email": "a@b.c"}, {"id": 2, "email": "a@b.c"}),
    ]
    assert "secret" not in "".join(_envelopes(conn))


def test_what_is_refused(db: Database) -> None:
    conn = db.connect()
    conn.execute("create table keyless (v text); create table t (id int primary key)")
    conn.execute("select pgq.create_queue('q')")
    for call in (
        "('q', 'keyless')",
        "('q', 'nowhere')",
        "('q', 't', '{}')",
        "('q', 't', '{missing}')",
        "('q', 't', '{id}', '{id}')",
    ):
        with refused("PQ006"):
            conn.execute(f"select pgq.add_capture{call}".encode())
    with refused("PQ001"):
        conn.execute("select pgq.add_capture('none', 't')")
    conn.execute("create trigger bad after insert on t for each row execute function pgq.capture('q', 'when=true')")
    with refused("PQ006", "when=true"):
        conn.execute("insert into t values (1)")
    assert conn.execute("select count(*) from t").fetchone() == (0,)


def test_the_right_to_produce_is_needed_and_enough(db: Database) -> None:
    conn = db.connect(autocommit=False)
    conn.execute("create role shop_app; create table t (id int primary key); grant insert on t to shop_app")
    conn.execute("select pgq.create_queue('q'), pgq.add_capture('q', 't')")
    conn.execute("set local role shop_app")
    conn.execute("savepoint s")
    with refused("42501"):
        conn.execute("insert into t values (1)")
    conn.execute("rollback to s; reset role; select pgq.grant_produce('q', 'shop_app'); set local role shop_app")
    conn.execute("insert into t values (1)")
    conn.execute("reset role")
    assert len(_changes(conn)) == 1
    conn.rollback()


def test_session_replication_role(db: Database) -> None:
    """A replica's triggers rest, unless they are switched on for it; the role local means silence."""
    conn = db.connect()
    conn.execute("create table t (id int primary key)")
    conn.execute("select pgq.create_queue('q'), pgq.add_capture('q', 't')")
    for role in ("local", "replica", "origin"):
        conn.execute(f"set session_replication_role = {role}".encode())
        conn.execute("insert into t select coalesce(max(id), 0) + 1 from t")
    assert [c["key"]["id"] for c in _changes(conn)] == [3]


def test_from_python(db: Database) -> None:
    conn = db.connect()
    conn.execute('create table "Odd, name" (a int, b int, primary key (b, a)); create table t (id int primary key)')
    with PgQ(db.dsn) as pgq:
        pgq.create_queue("q")
        assert pgq.captures() == []
        assert pgq.add_capture("q", "t") is True
        assert pgq.add_capture("q", "t", key=["id"]) is False
        assert pgq.add_capture("q", 'public."Odd, name"', ignore=["a"], key=["b"]) is True
        assert [(c.table_name, c.key_columns, c.ignored_columns, c.enabled) for c in pgq.captures("q")] == [
            ('public."Odd, name"', ["b"], ["a"], True),
            ("public.t", ["id"], [], True),
        ]
        assert pgq.captures("other") == []
        conn.execute("insert into t values (1)")
        assert pgq.drop_capture("t") is True
        assert pgq.drop_capture("t") is False
        conn.execute("insert into t values (2)")
        with pytest.raises(QueueNotFound):
            pgq.add_capture("none", "t")
        with pytest.raises(InvalidArgument, match="no such table"):
            pgq.drop_capture("nowhere")
    assert len(_changes(conn)) == 1
