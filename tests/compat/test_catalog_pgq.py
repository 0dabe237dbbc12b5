"""PgQ's catalog and ours side by side: functions, arguments, results, rights, tables and error texts.

PgQ is Debian's `postgresql-15-pgq3`. Both are installed into databases of one private server of its version 15, since
the extension's libraries are built for that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import LiteralString

import psycopg
import pytest

from pgq_py import schema
from pgq_py.embedded import Server
from tests.clusters import SETTINGS, Database
from tests.compat.theirs import installed

pytestmark = [pytest.mark.catalog, pytest.mark.newest]

Sides = tuple[Database, Database]

FUNCTIONS: LiteralString = """
    select proname || '(' || pg_get_function_arguments(oid) || ')', pg_get_function_result(oid)
    from pg_proc where pronamespace = 'pgq'::regnamespace and proname !~ '^_'
"""

RIGHTS: LiteralString = """
    select proname || '(' || pg_get_function_arguments(oid) || ')',
           array(select role from unnest('{nobody_at_all,pgq_reader,pgq_writer,pgq_admin}'::name[]) role
                 where has_function_privilege(role, oid, 'execute'))
    from pg_proc where pronamespace = 'pgq'::regnamespace and proname !~ '^_'
"""

COLUMNS: LiteralString = """
    select attname, format_type(atttypid, atttypmod) from pg_attribute
    where attrelid = ('pgq.' || %s)::regclass and attnum > 0 and not attisdropped order by attnum
"""

# Transaction ids are xid8 and pg_snapshot, which print as PgQ's bigint and txid_snapshot do.
TYPES = {("event_template", "ev_txid"): "xid8", ("tick", "tick_snapshot"): "pg_snapshot"}

PREPARE = (
    "select pgq.create_queue(q) from unnest('{q,used,paused,external,shut}'::text[]) q",
    "select pgq.register_consumer('used', 'c')",
    "select pgq.set_queue_config('paused', 'ticker_paused', 'true')",
    "select pgq.set_queue_config('external', 'external_ticker', 'true')",
    "select pgq.set_queue_config('used', p, '0') from unnest('{ticker_max_lag,ticker_idle_period}'::text[]) p",
    "update pgq.queue set queue_disable_insert = true where queue_name = 'shut'",
)

SAME: tuple[LiteralString, ...] = (
    "select pgq.create_queue('q')",
    "select pgq.create_queue(null)",
    "select pgq.drop_queue('none')",
    "select pgq.drop_queue('used')",
    "select pgq.drop_queue('used', false)",
    "select pgq.set_queue_config(null, 'ticker_max_lag', '1')",
    "select pgq.set_queue_config('q', null, '1')",
    "select pgq.set_queue_config('none', 'ticker_max_lag', '1')",
    "select pgq.set_queue_config('q', 'ticker_max_lag', '1 second')",
    "select pgq.register_consumer('none', 'c')",
    "select pgq.register_consumer('used', 'c')",
    "select pgq.register_consumer_at('used', 'c', 77)",
    "select pgq.register_consumer_at('used', 'c', null)",
    "select pgq.unregister_consumer('none', 'c')",
    "select pgq.unregister_consumer('used', 'stranger')",
    "select pgq.next_batch('used', 'c')",
    "select * from pgq.next_batch_info('used', 'c')",
    "select * from pgq.next_batch_custom('used', 'c', '1 hour', 1, '1 hour')",
    "select pgq.finish_batch(77)",
    "select pgq.finish_batch(null)",
    "select pgq.batch_event_sql(77)",
    "select * from pgq.get_batch_events(77)",
    "select * from pgq.get_batch_info(77)",
    "select pgq.batch_retry(77, 1)",
    "select pgq.event_retry_raw('used', 'stranger', now(), 1, now(), 0, 't', 'd', null, null, null, null)",
    "select pgq.event_retry_raw('used', 'c', now(), 666, now(), 0, 't', 'd', null, null, null, null)",
    "select pgq.insert_event('q', 't', 'd')",
    "select pgq.insert_event('q', 't', 'd', '1', '2', '3', '4')",
    "select pgq.insert_event('none', 't', 'd')",
    "select pgq.insert_event('shut', 't', 'd')",
    "select pgq.insert_event_raw('none', null, null, null, null, 't', 'd', null, null, null, null)",
    "select pgq.insert_event_raw('shut', null, null, null, null, 't', 'd', null, null, null, null)",
    "select pgq.insert_event_raw('q', 500, null, null, null, 't', 'd', null, null, null, null)",
    "select pgq.current_event_table('none')",
    "select pgq.current_event_table('shut')",
    "select pgq.current_event_table('q')",
    "select pgq.ticker('none')",
    "select pgq.ticker('paused')",
    "select pgq.ticker('external')",
    "select pgq.ticker('none', 7, now(), 7)",
    "select pgq.ticker('q', 7, now(), 7)",
    "select pgq.ticker('external', 7, now(), 70)",
    "select pgq.force_tick('none')",
    "select pgq.force_tick('paused')",
    "select pgq.force_tick('external')",
    "select pgq.insert_event('used', 't', 'd', '1', '2', '3', '4')",
    "select pgq.ticker('used')",
    "select pgq.next_batch('used', 'c')",
    "select pgq.get_batch_info(1) is not null",
    "select ev_id, ev_retry, ev_type, ev_data, ev_extra1, ev_extra4 from pgq.get_batch_events(1)",
    "select ev_id, ev_retry, ev_type, ev_data, ev_extra1, ev_extra4 from pgq.get_batch_cursor(1, 'c', 5, 'ev_id = 2')",
    "select pgq.event_retry(1, 99, 0)",
    "select pgq.event_retry(1, 1, 0)",
    "select pgq.event_retry(1, 1, now())",
    "select pgq.batch_retry(1, 0)",
    "select pgq.finish_batch(1)",
    "select pgq.finish_batch(1)",
    "select pgq.maint_operations()",
    "select pgq.unregister_consumer('used', 'c')",
    "select pgq.drop_queue('used')",
    "select pgq.grant_perms('none')",
    "select pgq.grant_perms('q')",
    "select pgq.tune_storage('none')",
    "select pgq.tune_storage('q')",
    "select pgq.tune_storage(null)",
    "select pgq.quote_fqname('a.b.c')",
    "select pgq.quote_fqname('Mixed')",
    "select pgq.quote_fqname('Mixed.Name x')",
    "select pgq.quote_fqname(null)",
    "select pgq.seq_getval('pgq.batch_id_seq')",
    "select pgq.seq_setval('pgq.batch_id_seq', 9)",
    "select pgq.seq_setval('pgq.batch_id_seq', 3)",
    "select pgq.seq_getval(null)",
    "select pgq.seq_getval('none')",
    "select pgq.maint_rotate_tables_step1('none')",
    "select pgq.maint_rotate_tables_step2()",
    "select pgq.maint_retry_events()",
    "select * from pgq.maint_tables_to_vacuum()",
    "select pgq.upgrade_schema()",
    "select * from pgq.get_queue_info('none')",
    "select * from pgq.get_consumer_info('none', 'c')",
    "select * from pgq.find_tick_helper(1, 1, now(), 0, 100, '1 hour')",
    "select * from pgq.find_tick_helper(1, 1, now(), 0, null, null)",
)
"""Calls whose results, or whose error texts, are the same. In this order, on the queues of PREPARE."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    bin_dir = installed()
    if bin_dir is None:
        pytest.skip("PgQ is not to be had: it needs Debian's postgresql-15-pgq3, and root to install it")
    with Server(settings=SETTINGS, bin_dir=bin_dir) as running:
        yield running


@pytest.fixture
def sides(server: Server) -> Iterator[Sides]:
    """Theirs, and ours."""
    yield from both(server)


def both(server: Server) -> Iterator[Sides]:
    """A database with PgQ and one with our schema, new."""
    admin = psycopg.connect(server.dsn(), autocommit=True)
    for name in ("theirs", "ours"):
        admin.execute(f"drop database if exists {name} with (force)".encode())
        admin.execute(f"create database {name} template template0".encode())
    theirs, ours = Database(server, "theirs"), Database(server, "ours")
    theirs.rows("create extension pgq")
    with psycopg.connect(ours.dsn) as conn:
        schema.install(conn)
    admin.execute("drop role if exists nobody_at_all")
    admin.execute("create role nobody_at_all")
    yield theirs, ours
    admin.close()


def test_every_function_with_its_arguments_and_results(sides: Sides) -> None:
    theirs, ours = _by_name(sides, FUNCTIONS)
    assert len(theirs) > 45
    assert {name: ours.get(name) for name in theirs} == theirs


def test_every_right(sides: Sides) -> None:
    """Of PUBLIC and the three roles, members of one another as they are."""
    theirs, ours = _by_name(sides, RIGHTS)
    assert {name: ours.get(name) for name in theirs} == theirs


@pytest.mark.parametrize("table", ["tick", "subscription", "retry_queue", "event_template", "consumer"])
def test_tables_are_readable_as_before(sides: Sides, table: str) -> None:
    theirs, ours = (side.rows(COLUMNS, [table]) for side in sides)
    assert [(name, TYPES.get((table, name), kind)) for name, kind in theirs] == ours


def test_the_version_satisfies_the_daemon(sides: Sides) -> None:
    """pgqd takes a text that begins with a digit of at least 3."""
    theirs, ours = (side.value("select pgq.version()") for side in sides)
    assert (theirs[:3], ours[:3]) == ("3.5", "3.5")


def test_results_and_error_texts(sides: Sides) -> None:
    theirs, ours = ([_answer(side, call) for call in SAME] for side in map(_prepared, sides))
    differing = [f"{call}\n  PgQ {t}\n  we  {o}" for call, t, o in zip(SAME, theirs, ours, strict=True) if t != o]
    assert not differing, "\n".join(differing)


def test_a_value_of_the_wrong_kind_says_which_setting(sides: Sides) -> None:
    """Where PgQ's text is a slip ("%s" comes out as the name and an s), ours is what was meant."""
    _, ours = map(_prepared, sides)
    assert "cannot change parameter" in _answer(ours, "select pgq.set_queue_config('q', 'colour', 'red')")


def _by_name(sides: Sides, query: LiteralString) -> list[dict[str, object]]:
    return [{str(name): value for name, value in side.rows(query)} for side in sides]


def _prepared(side: Database) -> Database:
    with psycopg.connect(side.dsn, autocommit=True) as conn:
        for statement in PREPARE:
            conn.execute(statement)
    return side


def _answer(side: Database, call: LiteralString) -> str:
    """What it returns, or what it says."""
    try:
        return str(side.rows(call))
    except psycopg.Error as exc:
        return f"ERROR: {exc.diag.message_primary}"
