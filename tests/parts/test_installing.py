"""Optional parts in the installer: asked for once, kept at every upgrade, gone with the schema."""

from __future__ import annotations

import subprocess

import pytest

from pgq_py import schema
from pgq_py.errors import ForeignSchema, InvalidArgument
from tests.cli.driving import run
from tests.clusters import Database
from tests.engine.support import Conn, column, rows

pytestmark = pytest.mark.newest

DEFINER_PATH = "search_path=pg_catalog, pgq, pg_temp"


def test_parts_come_to_an_installed_schema_and_stay(db: Database) -> None:
    conn = db.connect()
    assert schema.parts(conn) == []
    done = schema.install(conn, parts=["coop"])
    assert [step.title for step in done.steps][-2:] == ["ledger coop", "grants.sql"]
    assert not schema.install(conn)
    assert not schema.install(conn, parts=["coop"])
    assert schema.install(conn, parts=["ext"])
    assert schema.parts(conn) == ["coop", "ext"]
    conn.execute("update pgq.migration set checksum = '' where name in ('coop', 'functions')")
    steps = [step.title for step in schema.upgrade(conn).steps]
    assert {"optional/coop/10_schema.sql", "optional/ext/10_tables.sql"} <= set(steps)
    assert not schema.plan(conn)
    assert schema.uninstall(conn)
    assert schema.parts(conn) == []


def test_unknown_parts_and_foreign_schemas_are_refused(db: Database, empty_db: Database) -> None:
    for database in (db, empty_db):
        conn = database.connect()
        with pytest.raises(InvalidArgument, match="no optional part bus"):
            schema.install(conn, parts=["coop", "bus"])
        conn.execute("create schema pgq_coop")
        with pytest.raises(ForeignSchema, match="pgq_coop"):
            schema.install(conn, parts=["coop", "ext"])
        assert column(conn, "select nspname from pg_namespace where nspname = 'pgq_ext'") == []


def test_the_command_line(empty_db: Database) -> None:
    script = run("install", "--sql", "--with", "coop,ext")
    psql = [str(empty_db.server.tool("psql")), "-Xq", "-v", "ON_ERROR_STOP=1"]
    subprocess.run(
        psql,
        input=script.out,
        env=empty_db.server.client_env(empty_db.name),
        text=True,
        capture_output=True,
        check=True,
    )
    assert run("install", "--with", "coop", "--json", dsn=empty_db.dsn).json["changed"] is False
    assert run("status", "--json", dsn=empty_db.dsn).json["parts"] == ["coop", "ext"]
    assert run("install", "--with", "bus", dsn=empty_db.dsn).status == 1
    dropped = run("uninstall", "--yes", "--json", dsn=empty_db.dsn)
    assert dropped.json["dropped"]
    assert column(empty_db.connect(), "select nspname from pg_namespace where nspname ~ '^pgq'") == []


def test_everything_in_the_parts_is_described_and_safe(conn: Conn) -> None:
    """The rules of the schema pgq, in the schemas of the parts."""
    functions = """
        select p.oid::regprocedure::text, prosecdef, proname ~ '^_', obj_description(p.oid, 'pg_proc') is not null,
               %s = any (coalesce(proconfig, '{}'))
        from pg_proc p where pronamespace in ('pgq_coop'::regnamespace, 'pgq_ext'::regnamespace)
    """
    found = rows(conn, functions, DEFINER_PATH)
    assert len(found) > 20
    for name, definer, _, described, safe in found:
        assert described, name
        assert safe or not definer, name
    public = """
        select distinct proname from pg_proc
        where pronamespace in ('pgq_coop'::regnamespace, 'pgq_ext'::regnamespace)
          and (proacl is null or exists (select from aclexplode(proacl) where grantee = 0))
    """
    assert column(conn, public) == ["version"]
    internal = """
        select p.oid::regprocedure::text, r from pg_proc p, unnest('{pgq_reader,pgq_writer,pgq_admin}'::text[]) r
        where pronamespace in ('pgq_coop'::regnamespace, 'pgq_ext'::regnamespace) and proname ~ '^_'
          and has_function_privilege(r, p.oid, 'execute')
    """
    assert rows(conn, internal) == []
    bare = """
        select relname from pg_class c where relnamespace in ('pgq_coop'::regnamespace, 'pgq_ext'::regnamespace)
           and relkind in ('r', 'v') and obj_description(oid, 'pg_class') is null
    """
    assert column(conn, bare) == []
