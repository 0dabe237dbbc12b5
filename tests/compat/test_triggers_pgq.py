"""PgQ's change triggers and ours see the same changes: what they write must be the same to the letter.

The regression suite pins what the triggers do; here they get more: every kind of type, names and values that need
quoting, keys and ignored columns in several places, and arguments that do not fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff
from typing import LiteralString

import psycopg
import pytest

from pgq_py.embedded import Server
from tests.clusters import Database
from tests.compat.test_catalog_pgq import Sides, both, server

__all__ = ["server"]

pytestmark = [pytest.mark.newest]

SETTINGS: tuple[LiteralString, ...] = (
    "set datestyle = 'SQL, DMY'",
    "set intervalstyle = 'iso_8601'",
    "set timezone = 'Asia/Kolkata'",
    "set client_min_messages = warning",
)

TABLES: tuple[LiteralString, ...] = (
    "create type mood as enum ('good', 'it''s \\bad')",
    "create type pair as (a int, b text)",
    "create domain count as int8 check (value >= 0)",
    """create table plain ("Id" int8, name text, "we ird=&" text, gone int, price numeric, seen timestamptz,
                           primary key ("Id"))""",
    "alter table plain drop column gone",
    """create table kinds (id int primary key, i2 int2, i8 int8, n numeric, f4 float4, f8 float8, b bool, t text,
                           c char(5), v varchar(9), y bytea, d date, ts timestamp, tz timestamptz, ti time, iv interval,
                           u uuid, j json, jb jsonb, ia int[], ta text[], ba bool[], r int4range, nr numrange,
                           ip inet, net cidr, m mood, p pair, dom count, bits bit(3), pt point, bx box, mo money,
                           nm name, o oid, ch "char", vec tsvector, x xml)""",
    "create table pairs (a int, b numeric, c text, d text, primary key (d, b))",
    "create table magic (id int primary key, v text, _pgq_ev_type text, _pgq_ev_data text, _pgq_ev_extra3 text)",
    "create table keyless (v text)",
)

ROWS: tuple[LiteralString, ...] = (
    "insert into plain values (1, 'a', null, 1.50, '2024-02-29 12:34:56.789+00')",
    "insert into plain values (2, e'tab\\t nl\\n quote\\' back\\\\ \\u0001 é 😀', 'x=y&z', 'NaN', 'infinity')",
    "update plain set name = 'b' where \"Id\" = 1",
    'update plain set price = 1.5 where "Id" = 1',
    'update plain set name = name where "Id" = 1',
    "update plain set seen = '-infinity' where \"Id\" = 1",
    'update plain set "we ird=&" = \'only this\' where "Id" = 1',
    'update plain set name = null, seen = null where "Id" = 2',
    'update plain set "Id" = 3 where "Id" = 2',
    'delete from plain where "Id" = 2',
    "insert into kinds (id) values (1)",
    """insert into kinds values (2, -3, 9223372036854775807, 1e-30, 1.1, 'infinity', true, '', 'ab', 'cd ', '\\x00ff',
        '0044-03-15 BC', '2024-01-02 03:04:05.678', '1999-12-31 23:59:59+00', '24:00', '1 year 2 days 3.5 seconds',
        'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{"a" :  1}', '{"a" :  1}', '{1,null,3}', '{"a,b","c\\"d",null}',
        '{t,f}', '[1,5)', '[1.5,)', '10.0.0.1', '10.0.0.0/8', 'it''s \\bad', '(1,"x y")', 7, '101', '(1,2)',
        '(1,2),(3,4)', '12.34', 'some name', 77, 'z', 'fat & cat'::text::tsvector, '<a>&amp;</a>')""",
    "update kinds set n = n * 1.0, ia = '{1,null,4}', p = '(,)', c = 'ab   ', bx = '(3,4),(1,2)' where id = 2",
    "update kinds set f8 = 'NaN', j = '{\"a\":1}', pt = '(2,1)', d = 'infinity', ts = '-infinity' where id = 2",
    "delete from kinds",
    "insert into pairs values (1, 1.0, 'c', 'd')",
    "update pairs set b = 1.00 where a = 1",
    "update pairs set c = null where a = 1",
    "update pairs set a = 2, d = 'e' where a = 1",
    "delete from pairs",
    "insert into magic values (1, 'v', 'my type', null, 'x3'), (2, 'v', null, 'my data', null)",
    "update magic set v = 'w'",
    "update magic set _pgq_ev_extra3 = 'changed' where id = 1",
    "delete from magic",
    "insert into keyless values ('x')",
    "update keyless set v = 'y'",
    "delete from keyless",
    "truncate plain, pairs",
)

ARGUMENTS: tuple[LiteralString, ...] = (
    "",
    ", 'backup'",
    ", 'ignore=name'",
    ", 'ignore=name,seen, we ird=&', 'backup'",
    ", 'ignore=Id'",
    ", 'pkey=name'",
    ", 'pkey=v'",
    ", 'pkey=a,c', 'ignore=d'",
    ", 'pkey=d, c'",
    ", 'when=1 = 0'",
    ", 'when=null::bool'",
    ", 'when=7'",
    ", 'ev_type=current_user', 'ev_data=null::text', 'ev_extra2=(select count(*) from pg_am)', 'ev_extra4=true'",
    ", 'deny'",
    ", 'SKIP'",
    ", 'nonsense'",
    ", 'Backup'",
)


@pytest.fixture(scope="module")
def sides(server: Server) -> Iterator[Sides]:
    """Theirs, and ours; every test rolls back."""
    yield from both(server)


@pytest.mark.parametrize("arguments", ARGUMENTS)
@pytest.mark.parametrize("function", ["jsontriga", "logutriga", "sqltriga"])
def test_the_same_events(sides: Sides, function: str, arguments: LiteralString) -> None:
    theirs, ours = (_log(side, function, arguments, "after") for side in sides)
    assert _differing(theirs, ours) == ""


@pytest.mark.parametrize("function", ["jsontriga", "logutriga", "sqltriga"])
def test_the_same_before_the_change(sides: Sides, function: str) -> None:
    """SKIP, and a row that a BEFORE trigger lets pass."""
    for arguments in (", 'SKIP'", ""):
        theirs, ours = (_log(side, function, arguments, "before") for side in sides)
        assert _differing(theirs, ours) == ""
        assert ("insert into keyless values ('x')", "done 1") in ours or arguments


def _differing(theirs: list[tuple[str, ...]], ours: list[tuple[str, ...]]) -> str:
    return "\n".join(unified_diff(list(map(str, theirs)), list(map(str, ours)), "PgQ", "ours", n=0, lineterm=""))


def _log(side: Database, function: str, arguments: str, when: str) -> list[tuple[str, ...]]:
    """Each change's outcome, what is left in the tables, and the events."""
    found: list[tuple[str, ...]] = []
    with psycopg.connect(side.dsn) as conn:
        for statement in (*SETTINGS, *TABLES, "select pgq.create_queue('q')"):
            conn.execute(statement)
        for table in ("plain", "kinds", "pairs", "magic", "keyless"):
            call = f"execute function pgq.{function}('q'{arguments})"
            conn.execute(f"create trigger r {when} insert or update or delete on {table} for each row {call}".encode())
            conn.execute(f"create trigger s {when} truncate on {table} for each statement {call}".encode())
        found += [(change, _outcome(conn, change)) for change in ROWS]
        events = (
            "select ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4 from pgq.event_template order by ev_id"
        )
        found += [tuple(map(str, row)) for row in conn.execute(events.encode())]
        found += [tuple(map(str, row)) for row in conn.execute("select plain::text from plain order by 1")]
        conn.rollback()
    return found


def _outcome(conn: psycopg.Connection[tuple[object, ...]], change: LiteralString) -> str:
    try:
        with conn.transaction():
            return f"done {conn.execute(change).rowcount}"
    except psycopg.Error as exc:
        return f"{exc.diag.message_primary}"
