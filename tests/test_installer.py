"""Installer: everything or nothing, once however many try, as an ordinary role, never over somebody else's schema."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import psycopg
import pytest
from psycopg import sql

from pgq_py import schema
from pgq_py.errors import ForeignSchema, PgqError, SchemaMissing, SchemaOutdated
from tests.clusters import Cluster, Database

LEDGER = """
create schema pgq;
comment on schema pgq is 'pgq-py: tiny';
create table pgq.migration (version int primary key, name text not null, checksum text not null,
    applied_at timestamptz not null default now(), applied_by text not null default current_user);
create table pgq.queue (queue_id int primary key, queue_name text not null);
"""

GRANTS = """
do $$
declare r name;
begin
    for r in select rolname from pg_roles where rolname in ('pgq_reader', 'pgq_writer', 'pgq_admin') loop
        execute format('grant execute on function pgq.one() to %I', r);
    end loop;
end $$;
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tiny schema in the layout of the real one, to change at will."""
    for folder in ("migrations", "functions", "post"):
        (tmp_path / folder).mkdir()
    (tmp_path / "migrations" / "0001_schema.sql").write_text(LEDGER)
    (tmp_path / "migrations" / "0002_more.sql").write_text("create table pgq.more (n int);\n")
    _function(tmp_path, 1)
    (tmp_path / "post" / "call.sql").write_text("do $$ begin perform pgq.one(); end $$;\n")
    (tmp_path / "grants.sql").write_text(GRANTS)
    return tmp_path


def _function(root: Path, result: int) -> None:
    text = f"create or replace function pgq.one() returns int language sql as $$ select {result} /* 100% */ $$;\n"
    (root / "functions" / "one.sql").write_text(text)


def _ledger(db: Database) -> dict[int, str]:
    return dict(db.rows("select version, name from pgq.migration order by version"))


def _routines(db: Database) -> list[tuple[Any, ...]]:
    return db.rows(
        "select oid::regprocedure::text, prosrc, proacl::text from pg_proc"
        " where pronamespace = 'pgq'::regnamespace order by 1"
    )


def test_install_check_and_a_second_time(empty_db: Database) -> None:
    conn = empty_db.connect()
    with pytest.raises(SchemaMissing):
        schema.check(conn)
    done = schema.install(conn)
    assert done.steps
    schema.check(conn)
    assert not schema.plan(conn)
    assert not schema.install(conn)
    assert not schema.upgrade(conn)
    assert min(_ledger(empty_db)) == 0
    assert schema.uninstall(conn)
    assert not schema.uninstall(conn)
    assert empty_db.value("select to_regnamespace('pgq') is null")


@pytest.mark.concurrency
@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
def test_ten_first_installs_at_the_same_time_all_succeed(empty_db: Database, isolation: str) -> None:
    barrier = Barrier(10)
    level = isolation.replace(" ", "\\ ")

    def one(_: int) -> schema.Plan:
        with psycopg.connect(empty_db.dsn, options=f"-c default_transaction_isolation={level}") as conn:
            barrier.wait(30)
            return schema.install(conn)

    with ThreadPoolExecutor(10) as pool:
        plans = list(pool.map(one, range(10)))
    assert sum(map(bool, plans)) == 1
    with psycopg.connect(empty_db.dsn) as conn:
        assert not schema.plan(conn)


def test_a_plain_owner_without_roles(private_cluster: Cluster) -> None:
    """Neither superuser nor CREATEROLE: a notice says what was left out, and an upgrade later hands out the grants."""
    with private_cluster.database(installed=False) as db:
        admin = db.connect()
        admin.execute("create role app login")
        admin.execute(sql.SQL("alter database {} owner to app").format(sql.Identifier(db.name)))
        conn = db.connect(user="app")
        notices: list[str] = []
        schema.install(conn, notify=notices.append)
        schema.check(conn)
        assert db.value("select count(*) from pg_roles where rolname like 'pgq\\_%'") == 0
        assert any("pgq_reader" in notice for notice in notices)
        assert not schema.plan(conn)

        admin.execute("create role pgq_reader; create role pgq_writer; create role pgq_admin")
        assert [step.title for step in schema.upgrade(conn).steps] == ["grants.sql"]
        assert db.value("select has_function_privilege('pgq_writer', 'pgq.send(text, text)', 'execute')")
        assert not schema.plan(conn)


@pytest.mark.newest
def test_no_right_to_create_a_schema(empty_db: Database) -> None:
    empty_db.rows("do $$ begin create role stranger login; exception when duplicate_object then null; end $$")
    with pytest.raises(PgqError) as caught:
        schema.install(empty_db.connect(user="stranger"))
    assert caught.value.sqlstate == "42501"
    assert f'grant create on database "{empty_db.name}" to "stranger"' in caught.value.advice


@pytest.mark.newest
@pytest.mark.parametrize(
    "creation",
    [
        "create schema pgq",
        "create schema pgq; create table pgq.queue (queue_id int)",
        "create schema pgq; comment on schema pgq is 'pgq-py'",
        "create schema pgq; create table pgq.migration (version int)",
        "create schema pgq; comment on schema pgq is 'pgq-py'; create table pgq.migration (version int);"
        "alter extension plpgsql add schema pgq",
    ],
)
def test_a_foreign_schema_is_not_touched(empty_db: Database, creation: str) -> None:
    conn = empty_db.connect()
    conn.execute(creation.encode())
    before = empty_db.rows("select oid, relname from pg_class where relnamespace = 'pgq'::regnamespace")
    calls: list[Callable[[psycopg.Connection[Any]], object]] = [
        schema.install,
        schema.upgrade,
        schema.uninstall,
        schema.plan,
        schema.check,
    ]
    for call in calls:
        with pytest.raises(ForeignSchema):
            call(conn)
    assert empty_db.rows("select oid, relname from pg_class where relnamespace = 'pgq'::regnamespace") == before


@pytest.mark.newest
class TestUpgrade:
    """With the tiny schema."""

    def test_a_new_migration_is_applied_once(self, empty_db: Database, root: Path) -> None:
        conn = empty_db.connect()
        schema.install(conn, root=root)
        (root / "migrations" / "0003_third.sql").write_text("create table pgq.third (n int);")
        with pytest.raises(SchemaOutdated, match="lacks migration 0003"):
            schema.check(conn, root=root)
        done = schema.upgrade(conn, root=root)
        assert done.steps[0].title == "migration 0003 third"
        assert _ledger(empty_db) == {0: "functions", 1: "schema", 2: "more", 3: "third"}
        schema.check(conn, root=root)

    def test_a_changed_function_is_replaced(self, empty_db: Database, root: Path) -> None:
        conn = empty_db.connect()
        schema.install(conn, root=root)
        _function(root, 2)
        schema.check(conn, root=root)  # a fleet is upgraded one process at a time
        done = schema.upgrade(conn, root=root)
        assert done.steps[0].title == "functions/one.sql"
        assert empty_db.value("select pgq.one()") == 2

    def test_a_changed_migration_is_refused(self, empty_db: Database, root: Path) -> None:
        conn = empty_db.connect()
        schema.install(conn, root=root)
        (root / "migrations" / "0002_more.sql").write_text("create table pgq.more (n bigint);\n")
        for call in (schema.install, schema.upgrade, schema.plan, schema.check):
            with pytest.raises(SchemaOutdated, match=r"0002 \(more\) is not the one"):
                call(conn, root=root)

    def test_line_endings_are_not_a_change(self, empty_db: Database, root: Path) -> None:
        conn = empty_db.connect()
        schema.install(conn, root=root)
        for path in root.rglob("*.sql"):
            path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
        assert not schema.plan(conn, root=root)

    def test_a_newer_database_is_refused(self, empty_db: Database, root: Path) -> None:
        conn = empty_db.connect()
        schema.install(conn, root=root)
        (root / "migrations" / "0002_more.sql").unlink()
        with pytest.raises(SchemaOutdated, match="newer than this package") as caught:
            schema.check(conn, root=root)
        assert "pip install --upgrade" in caught.value.advice

    def test_a_failing_migration_leaves_nothing(self, empty_db: Database, root: Path) -> None:
        conn = empty_db.connect()
        (root / "migrations" / "0003_third.sql").write_text("create table pgq.third (n int); select 1/0;")
        with pytest.raises(psycopg.errors.DivisionByZero):
            schema.install(conn, root=root)
        assert empty_db.value("select to_regnamespace('pgq') is null")

    def test_upgrade_wants_a_schema(self, empty_db: Database, root: Path) -> None:
        with pytest.raises(SchemaMissing) as caught:
            schema.upgrade(empty_db.connect(), root=root)
        assert "pgq install" in caught.value.advice

    def test_a_plan_changes_nothing(self, empty_db: Database, root: Path) -> None:
        todo = schema.plan(empty_db.connect(), root=root)
        assert [step.title for step in todo.steps] == [
            "migration 0001 schema",
            "migration 0002 more",
            "functions/one.sql",
            "post/call.sql",
            "grants.sql",
            "ledger functions",
        ]
        assert empty_db.value("select to_regnamespace('pgq') is null")

    @pytest.mark.parametrize("name", ["0004_gap.sql", "3_short.sql", "0003-dash.sql", "0001_twice.sql"])
    def test_misnumbered_migrations_are_refused(self, root: Path, name: str) -> None:
        (root / "migrations" / name).touch()
        with pytest.raises(ValueError, match="migration"):
            schema.script(root=root)

    def test_the_caller_s_transaction_decides(self, empty_db: Database, root: Path) -> None:
        conn = empty_db.connect(autocommit=False)
        conn.execute("select 1")
        schema.install(conn, root=root)
        conn.rollback()
        assert empty_db.value("select to_regnamespace('pgq') is null")


def _psql(db: Database, script: str) -> None:
    command = [str(db.server.tool("psql")), "-Xq", "-v", "ON_ERROR_STOP=1"]
    env = db.server.client_env(db.name)
    done = subprocess.run(command, input=script, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_printed_script_does_what_install_does(db: Database, empty_db: Database) -> None:
    _psql(empty_db, schema.script())
    with psycopg.connect(empty_db.dsn) as conn:
        schema.check(conn)
        assert not schema.plan(conn)
    assert _routines(empty_db) == _routines(db)


@pytest.mark.newest
def test_the_printed_upgrade_does_what_upgrade_does(empty_db: Database, root: Path) -> None:
    conn = empty_db.connect()
    schema.install(conn, root=root)
    (root / "migrations" / "0003_third.sql").write_text("create table pgq.third (n int)\n;")
    _function(root, 3)
    _psql(empty_db, schema.plan(conn, root=root).script())
    assert not schema.plan(conn, root=root)
    assert empty_db.value("select pgq.one()") == 3


@pytest.mark.newest
class TestUninstall:
    def test_sent_events_are_not_dropped_unasked(self, db: Database) -> None:
        conn = db.connect()
        conn.execute("select pgq.create_queue('orders'), pgq.create_queue('idle')")
        conn.execute("select pgq.send('orders', 'x'::text)")
        with pytest.raises(PgqError, match=r"unread events: orders\n"):
            schema.uninstall(conn)
        assert schema.uninstall(conn, force=True)
        assert not schema.uninstall(conn)

    def test_it_refuses_while_queues_may_hold_events(self, empty_db: Database, root: Path) -> None:
        conn = empty_db.connect()
        schema.install(conn, root=root)
        conn.execute("insert into pgq.queue values (1, 'orders'), (2, 'idle')")
        conn.execute("create table pgq.event_1_0 (n int); create table pgq.event_2_0 (n int)")
        conn.execute("insert into pgq.event_1_0 values (1)")
        with pytest.raises(PgqError, match=r"unread events: orders\n") as caught:
            schema.uninstall(conn)
        assert "--yes" in caught.value.advice
        assert schema.uninstall(conn, force=True)
        assert empty_db.value("select to_regnamespace('pgq') is null")

    def test_it_refuses_while_others_depend_on_it(self, empty_db: Database, root: Path) -> None:
        conn = empty_db.connect()
        schema.install(conn, root=root)
        conn.execute("create view mine as select * from pgq.queue; create view other as select pgq.one()")
        with pytest.raises(PgqError, match=r"view public\.mine, view public\.other"):
            schema.uninstall(conn)
        assert schema.uninstall(conn, force=True)


@pytest.mark.newest
@pytest.mark.anyio
async def test_check_on_an_asynchronous_connection(empty_db: Database, root: Path) -> None:
    async with await psycopg.AsyncConnection.connect(empty_db.dsn, autocommit=True) as conn:
        with pytest.raises(SchemaMissing):
            await schema.acheck(conn, root=root)
        schema.install(empty_db.connect(), root=root)
        await schema.acheck(conn, root=root)
        (root / "migrations" / "0003_third.sql").write_text("select 1;")
        with pytest.raises(SchemaOutdated):
            await schema.acheck(conn, root=root)


@pytest.mark.newest
def test_a_role_without_rights_learns_that_the_schema_is_there(empty_db: Database, root: Path) -> None:
    (root / "grants.sql").unlink()
    schema.install(empty_db.connect(), root=root)
    empty_db.rows("do $$ begin create role stranger login; exception when duplicate_object then null; end $$")
    schema.check(empty_db.connect(user="stranger"), root=root)
