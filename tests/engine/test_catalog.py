"""The schema, as the system catalogs show it: comments, rights, search paths, triggers, storage options.

A rule that every object has to follow is checked on every object; exceptions are listed here, with their reason.
"""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql

from tests.clusters import Database
from tests.engine.support import Conn, begin, column, create, rollback, rows, send, tick

pytestmark = pytest.mark.catalog

PUBLIC_FUNCTIONS = {
    "version",
    "get_queue_info",
    "get_consumer_info",
    "ring_info",
    "delay_info",
    "get_job_stats",
    "get_lane_info",
    "seq_getval",
    "quote_fqname",
}

# Steps of change triggers and of making them, with the rights of whoever changes or owns the table.
OF_TRIGGERS = "^_(plan_trigger|log_change|row_matters|key_condition|change_(sql|type|wanted)|urlencode|captured_table)$"

# Slots of rings of events have no key: an index less to write for each event. They are not to be published by
# logical replication. Their parents, and the template of those, are empty.
NO_PRIMARY_KEY = r"^((event|delay|job|held)_template|(event|delay|held)_[0-9]+(_[0-9]+)?)$"

ROLES = ("pgq_reader", "pgq_writer", "pgq_admin")


@pytest.fixture
def conn(db: Database) -> Conn:
    """A schema with queues of every kind in it, so that what is generated for a queue is looked at as well."""
    conn = db.connect()
    create(conn, "c")
    create(conn, queue="other", slots=5)
    conn.execute("select pgq.create_job_queue('jobs')")
    send(conn, "x")
    tick(conn)
    return conn


def test_everything_has_a_comment(conn: Conn) -> None:
    functions = "select oid::regprocedure::text from pg_proc where pronamespace = 'pgq'::regnamespace"
    assert column(conn, functions + " and obj_description(oid, 'pg_proc') is null") == []
    assert len(column(conn, functions)) > 50


def test_every_table_view_and_sequence_of_the_schema_has_a_comment(db: Database) -> None:
    """As installed. What belongs to a ring is described at its parent, and sequences of identity at their table."""
    bare = """
        select relname from pg_class c where relnamespace = 'pgq'::regnamespace and relkind in ('r', 'v', 'S')
           and obj_description(oid, 'pg_class') is null
           and not exists (select from pg_depend where objid = c.oid and deptype = 'i' and refobjsubid > 0)
           and not exists (select from pgq.ring
                           where relname ~ ('^' || ring_name || '_([0-9]+|phase|switched|skipped|moved)$'))
    """
    assert column(db.connect(), bare) == []


def test_every_definer_function_has_a_safe_search_path(conn: Conn) -> None:
    """pg_temp last, or a temporary table captures a name."""
    path = "search_path=pg_catalog, pgq, pg_temp"
    unsafe = """
        select oid::regprocedure::text from pg_proc
        where pronamespace = 'pgq'::regnamespace and prosecdef and not coalesce(%s = any (proconfig), false)
    """
    assert column(conn, unsafe, path) == []
    other = "select oid::regprocedure::text from pg_proc, unnest(proconfig) s where pronamespace = 'pgq'::regnamespace"
    assert column(conn, other + " and s ~ '^search_path' and s <> %s", path) == []


def test_an_sql_fragment_is_taken_by_no_definer_function(conn: Conn) -> None:
    found = rows(conn, "select proname, prosecdef from pg_proc where 'i_extra_where' = any (proargnames)")
    assert found == [("get_batch_cursor", False)]


def test_functions_that_read_rings_are_volatile(conn: Conn) -> None:
    """In a STABLE function every statement has the caller's snapshot: it could not look again after a miss."""
    calm = """
        select proname from pg_proc p join pg_language l on l.oid = prolang
        where pronamespace = 'pgq'::regnamespace and provolatile <> 'v'
          and (lanname <> 'sql' or prosrc ~ '(tick|cursor)_ring')
    """
    assert column(conn, calm) == []


def test_public_asks_for_information_and_nothing_else(conn: Conn) -> None:
    executable = """
        select distinct proname from pg_proc
        where pronamespace = 'pgq'::regnamespace
          and (proacl is null or exists (select from aclexplode(proacl) where grantee = 0))
    """
    assert set(column(conn, executable)) == PUBLIC_FUNCTIONS
    readable = """
        select relname from pg_class where relnamespace = 'pgq'::regnamespace
           and exists (select from aclexplode(relacl) where grantee = 0)
        union all
        select attname from pg_attribute join pg_class c on c.oid = attrelid, aclexplode(attacl)
        where relnamespace = 'pgq'::regnamespace and grantee = 0
    """
    assert column(conn, readable) == []
    schema = "select privilege_type from pg_namespace, aclexplode(nspacl) where nspname = 'pgq' and grantee = 0"
    assert column(conn, schema) == ["USAGE"]


def test_internal_functions_are_nobodys(conn: Conn) -> None:
    internal = """
        select oid::regprocedure::text from pg_proc
        where pronamespace = 'pgq'::regnamespace and proname ~ '^_' and has_function_privilege(%s, oid, 'execute')
          and proname !~ %s
    """
    for role in ROLES:
        assert column(conn, internal, role, OF_TRIGGERS) == []


def test_no_role_writes_a_ring_but_through_functions(conn: Conn) -> None:
    """Writers insert the columns of an event that are theirs, for COPY. Nobody moves a phase."""
    for role in ROLES:
        _check_writes(conn, role)


def _check_writes(conn: Conn, role: str) -> None:
    tables = """
        select relname, privilege from pg_class c,
               unnest('{insert,update,delete,truncate,trigger,references}'::text[]) privilege
        where relnamespace = 'pgq'::regnamespace and relkind in ('r', 'v')
          and has_table_privilege(%s, oid, privilege)
    """
    assert rows(conn, tables, role) == []
    columns = """
        select distinct attname from pg_attribute a join pg_class c on c.oid = attrelid
        where relnamespace = 'pgq'::regnamespace and attnum > 0 and relkind = 'r' and relname <> 'queue'
          and (has_column_privilege(%s, attrelid, attnum, 'insert')
               or has_column_privilege(%s, attrelid, attnum, 'update'))
        order by 1
    """
    theirs = ["ev_data", "ev_extra1", "ev_extra2", "ev_extra3", "ev_extra4", "ev_type"]
    assert column(conn, columns, role, role) == ([] if role == "pgq_reader" else theirs)
    sequences = """
        select relname from pg_class where relnamespace = 'pgq'::regnamespace and relkind = 'S'
           and (has_sequence_privilege(%s, oid, 'usage') or has_sequence_privilege(%s, oid, 'update'))
           and relname !~ '^event_[0-9]+_id_seq$'
    """
    assert column(conn, sequences, role, role) == []


def test_every_table_has_a_primary_key_or_is_a_known_exception(conn: Conn) -> None:
    keyless = """
        select relname from pg_class c where relnamespace = 'pgq'::regnamespace and relkind = 'r'
           and not exists (select from pg_index where indrelid = c.oid and indisprimary) and relname !~ %s
    """
    assert column(conn, keyless, NO_PRIMARY_KEY) == []


def test_every_slot_is_guarded_and_left_alone_by_autovacuum(conn: Conn) -> None:
    """But those of the claim ring, which take finishes after they were closed: its functions look for themselves."""
    wrong = """
        select relname from pgq.ring, generate_series(0, ring_slots - 1) nr, pg_class c
        where c.oid = ('pgq.' || ring_name || '_' || nr)::regclass
          and not (coalesce('autovacuum_enabled=off' = any (c.reloptions), false)
                   and (c.reltoastrelid = 0 or (select 'autovacuum_enabled=off' = any (t.reloptions)
                                                from pg_class t where t.oid = c.reltoastrelid))
                   and (ring_kind = 'claim'
                        or exists (select from pg_trigger where tgrelid = c.oid and tgname = 'guard_slot'
                                   and tgenabled = 'A' and tgtype = 4)))
    """
    assert column(conn, wrong) == []
    unguarded = """
        select ring_name from pgq.ring
        where not exists (select from pg_trigger where tgrelid = ('pgq.' || ring_name)::regclass
                          and tgname = 'refuse_insert' and tgenabled = 'A' and tgtype = 6)
    """
    assert column(conn, unguarded) == []


def test_there_are_no_foreign_keys(conn: Conn) -> None:
    """A check of one locks the row that a consumer's or the ticker's lock is on, and makes multixacts of it."""
    foreign = "select conname from pg_constraint where connamespace = 'pgq'::regnamespace and contype = 'f'"
    assert column(conn, foreign) == []


def test_an_ungranted_role_is_denied_everything(db: Database, conn: Conn) -> None:
    """It calls every function and reads every table, view and sequence."""
    begin(conn)
    conn.execute("create role nobody_in_particular")
    conn.execute("set local role nobody_in_particular")
    conn.execute("savepoint s")
    assert set(_callable(conn)) == PUBLIC_FUNCTIONS
    assert _readable(conn) == []
    rollback(conn)


def test_who_switches_scans_off_switches_compiling_off(conn: Conn) -> None:
    """What is switched off and has no alternative costs so much that its plan would be compiled, at each call."""
    query = """
        select oid::regprocedure::text from pg_proc
        where pronamespace = 'pgq'::regnamespace and exists (select from unnest(proconfig) c where c ~ '^enable_')
          and not 'jit=off' = any (proconfig)
    """
    assert column(conn, query) == []


def _callable(conn: Conn) -> list[str]:
    """Names of the functions that the current role gets through to."""
    found = []
    functions = """
        select proname, proargtypes::regtype[]::text[], case prokind when 'p' then 'call' else 'select' end from pg_proc
        where pronamespace = 'pgq'::regnamespace and 'anyelement'::regtype <> all (proargtypes)
    """
    for name, types, verb in rows(conn, functions):
        nothing = [sql.SQL("null::{}").format(sql.SQL(kind)) for kind in types]
        call = sql.SQL("{} pgq.{}({})").format(sql.SQL(verb), sql.Identifier(name), sql.SQL(", ").join(nothing))
        if _allowed(conn, call):
            found.append(name)
    return found


def _readable(conn: Conn) -> list[str]:
    relations = (
        "select relname from pg_class where relnamespace = 'pgq'::regnamespace and relkind in ('r', 'v', 'm', 'S', 'p')"
    )
    select = sql.SQL("select * from {} limit 0")
    return [name for name in column(conn, relations) if _allowed(conn, select.format(sql.Identifier("pgq", name)))]


def _allowed(conn: Conn, statement: sql.Composed) -> bool:
    try:
        conn.execute(statement)
    except psycopg.errors.InsufficientPrivilege:
        return False
    except psycopg.Error:
        return True
    else:
        return True
    finally:
        conn.execute("rollback to s")
