"""Roles: each can do its work in sessions of its own, with its own rights, and nothing else."""

from __future__ import annotations

from typing import LiteralString

import psycopg
import pytest
from psycopg import sql

from pgq_py import schema
from tests.clusters import Database
from tests.engine.support import (
    Conn,
    batch_data,
    begin,
    column,
    commit,
    create,
    deliver,
    drain,
    evacuate,
    finish,
    next_batch,
    receive,
    refused,
    rotate_until,
    rows,
    send,
    step,
    tick,
    value,
)

SELECT: LiteralString = "select * from pgq."


def _session(db: Database, member_of: str | None) -> Conn:
    """A session of a login role that is a member of that role and nothing more."""
    role = f"test_{member_of or 'nobody'}"
    conn = db.connect()
    if not value(conn, "select exists (select from pg_roles where rolname = %s)", role):
        conn.execute(sql.SQL("create role {} login").format(sql.Identifier(role)))
        if member_of:
            conn.execute(sql.SQL("grant {} to {}").format(sql.Identifier(member_of), sql.Identifier(role)))
    conn.close()
    return db.connect(user=role)


def _denied(conn: Conn, *statements: LiteralString) -> None:
    for statement in statements:
        with refused("42501"):
            conn.execute(statement)


def test_a_writer_produces_and_nothing_else(db: Database) -> None:
    conn, writer = db.connect(), _session(db, "pgq_writer")
    create(conn, "c")
    producer = sql.Identifier(value(writer, "select pgq.producer_function('q')"))
    send(writer, "1")
    value(writer, "select pgq.insert_event('q', 't', '2', null, null, null, null)")
    value(writer, "select pgq.send('q', '3')")
    value(writer, "select pgq.send_batch('q', 't', '{4}'::text[])")
    value(writer, sql.SQL("select pgq.{}('t', '5', null, null, null, null)").format(producer))
    table = sql.Identifier(*value(writer, "select pgq.current_event_table('q')").split("."))
    with writer.cursor().copy(sql.SQL("copy {} (ev_type, ev_data) from stdin").format(table)) as copy:
        copy.write_row(("t", "6"))
    assert deliver(conn) == ["1", "2", "3", "4", "5", "6"]
    _denied(
        writer,
        "select * from pgq.event_1_0",
        "insert into pgq.event_1_0 (ev_id, ev_data) values (1, 'forged')",
        "insert into pgq.event_1_0 (ev_txid, ev_data) values ('1', 'forged')",
        "insert into pgq.event_1_0 (ev_owner, ev_data) values (1, 'forged')",
        "insert into pgq.event_1 (ev_data) values ('parent')",
        "insert into pgq.tick_ring_1 (tick_queue) values (1)",
        "update pgq.event_1_0 set ev_data = 'x'",
        "truncate pgq.event_1_0",
        "select setval('pgq.event_1_phase', 9)",
        "select nextval('pgq.event_1_phase')",
        "select setval('pgq.event_1_id_seq', 1)",
        "select pgq.insert_event_raw('q', 1, now(), 1, 1, 't', 'd', null, null, null, null)",
        "select pgq.next_batch('q', 'c')",
        "select pgq.register_consumer('q', 'd')",
        "select pgq.finish_batch(1)",
        "select pgq.ticker('q')",
        "select pgq.rotate_queue('q')",
        "select pgq.create_queue('new')",
        "select pgq.set_queue_config('q', 'ticker_paused', 'true')",
    )
    with refused("40001"):
        writer.execute("insert into pgq.event_1_1 (ev_data) values ('closed slot')")


def test_a_reader_consumes_and_nothing_else(db: Database) -> None:
    conn, reader = db.connect(), _session(db, "pgq_reader")
    create(conn)
    assert value(reader, "select pgq.register_consumer('q', 'c')") == 1
    send(conn, "1", "2", "3")
    assert value(reader, "select pgq.poke('q')") == 2
    batch = next_batch(reader)
    assert batch_data(reader, batch) == ["1", "2", "3"]
    direct = reader.execute(value(reader, "select pgq.batch_event_sql(%s)", batch).encode()).fetchall()
    assert [row[5] for row in direct] == ["1", "2", "3"]
    assert column(reader, "select * from pgq.batch_event_tables(%s)", batch) == ["pgq.event_1_0"]
    begin(reader)
    first: LiteralString = "select ev_data from pgq.get_batch_cursor(%s, 'x', 1, 'ev_id > 1')"
    assert column(reader, first, batch) == ["2"]
    assert len(column(reader, "fetch all from x")) == 1
    commit(reader)
    assert receive(reader, n=2)[1] == ["1", "2"]
    assert value(reader, "select pgq.ack('q', 'c', %s)", batch) == 0
    finish(reader, batch)
    assert value(reader, "select pgq.seek('q', 'c', 'earliest')") == 1
    assert drain(reader) == ["1", "2", "3"]
    for information in ("get_queue_info()", "get_consumer_info()", "ring_info()", "tick", "subscription", "event_1"):
        assert rows(reader, SELECT + information)
    _denied(
        reader,
        "select pgq.insert_event('q', 't', 'd')",
        "select pgq.send('q', 'd')",
        "select pgq.current_event_table('q')",
        "insert into pgq.event_1_0 (ev_data) values ('x')",
        "select pgq.ticker('q')",
        "select pgq.rotate_queue('q')",
        "select pgq.maint_rotate_tables_step1('q')",
        "select pgq.create_queue('new')",
        "select pgq.drop_queue('q', true)",
        "select pgq.pause_queue('q')",
        "select pgq._cursor(1)",
        "insert into pgq.cursor_ring_1 (sub_id) values (1)",
        "delete from pgq.registration",
        "update pgq.queue set queue_ticker_paused = true",
        "truncate pgq.event_1_0",
    )
    assert value(reader, "select pgq.unregister_consumer('q', 'c')") == 1


def test_an_admin_does_everything_but_reach_inside(db: Database) -> None:
    admin = _session(db, "pgq_admin")
    create(admin, "c", queue="mine", slots=4)
    assert value(admin, "select pgq.set_queue_config('mine', 'rotation_period', '0')") == 1
    assert [value(admin, "select pgq.pause_queue('mine')"), value(admin, "select pgq.resume_queue('mine')")] == [1, 1]
    send(admin, "1", queue="mine")
    assert value(admin, "select pgq.ticker()") == 1
    assert drain(admin, queue="mine") == ["1"]
    assert rotate_until(admin, "closed", queue="mine")
    for query in ("maint_operations()", "ring_blockers()", "queues_due()", "ring", "migration"):
        rows(admin, SELECT + query)
    assert value(admin, "select pgq.maint_rotate_tables_step2()") == 0
    admin.execute("update pgq.queue set queue_ticker_max_lag = '1 s'")
    _denied(
        admin,
        "select pgq._ring_step('tick_ring')",
        "update pgq.queue set queue_ntables = 5",
        "update pgq.queue set queue_extra_maint = '{public.mine}'",
        "truncate pgq.event_1_0",
        "insert into pgq.tick_ring_1 (tick_queue) values (1)",
        "select setval('pgq.event_1_phase', 99)",
        "drop table pgq.event_1",
    )
    assert value(admin, "select pgq.drop_queue('mine', true)") == 1


def test_anybody_asks_for_information(db: Database) -> None:
    conn, nobody = db.connect(), _session(db, None)
    create(conn, "c")
    assert value(nobody, "select pgq.version()")
    for query in ("get_queue_info()", "get_consumer_info()", "ring_info()"):
        assert rows(nobody, SELECT + query)
    _denied(
        nobody, "select * from pgq.queue", "select pgq.next_batch('q', 'c')", "select pgq.insert_event('q', '', '')"
    )


def test_an_extra_condition_runs_with_the_callers_rights(db: Database) -> None:
    """The schema's owner may do everything; whoever passes SQL in must not run it as the owner."""
    conn, reader = db.connect(), _session(db, "pgq_reader")
    create(conn, "c")
    conn.execute("create table secret (n int)")
    conn.execute("create schema scratch authorization test_pgq_reader")
    send(conn, "x")
    tick(conn)
    batch = next_batch(reader)
    reader.execute("create table scratch.seen (who text)")
    reader.execute(
        "create function scratch.spy() returns boolean language plpgsql as"
        " $$ begin insert into scratch.seen values (current_user); return true; end $$"
    )
    call: LiteralString = "select * from pgq.get_batch_cursor(%s, %s, 1, %s)"
    begin(reader)
    assert len(rows(reader, call, batch, "spied", "scratch.spy()")) == 1
    commit(reader)
    assert column(reader, "select distinct who from scratch.seen") == ["test_pgq_reader"]
    for fragment in (
        "(select count(*) from secret) = 0",
        "true); select pg_read_file('/etc/passwd'); select (1",
        "true) union all select relname::text from pg_class; truncate pgq.event_1_0; --",
        "(select pgq._cursor(1)) is null",
    ):
        begin(reader)
        with pytest.raises(psycopg.Error):
            reader.execute(call, [batch, "attack", fragment])
        reader.execute("rollback")
    assert drain(reader) == ["x"]


def test_temporary_objects_capture_nothing(db: Database) -> None:
    """Not even under the names of catalogs that functions ask, and not with operators in a schema of the caller's."""
    conn, reader = db.connect(), _session(db, "pgq_reader")
    create(conn, "c")
    conn.execute("create schema trap authorization test_pgq_reader")
    names = ("queue", "consumer", "registration", "ring", "tick_ring", "cursor_ring", "tick", "subscription")
    for name in (*names, "pg_locks", "pg_roles", "pg_class", "pg_proc"):
        reader.execute(sql.SQL("create temp table {} (queue_id int, queue_name text)").format(sql.Identifier(name)))
    reader.execute(
        "create function trap.pg_sequence_last_value(regclass) returns bigint language sql as 'select 1000::bigint'"
    )
    reader.execute("set search_path = trap, pg_temp, pgq, pg_catalog")
    send(conn, "x")
    assert value(reader, "select pgq.poke('q')") == 2
    assert drain(reader) == ["x"]
    assert value(reader, "select pgq.register_consumer('q', 'd')") == 1
    assert column(reader, "select queue_name from pgq.get_queue_info()") == ["q"]


def test_the_guard_cannot_be_deceived(db: Database) -> None:
    """It is a trigger, and runs with the writer's rights and search path."""
    conn, writer = db.connect(), _session(db, "pgq_writer")
    create(conn, "c")
    conn.execute("create schema lure authorization test_pgq_writer")
    writer.execute(
        "create function lure.pg_sequence_last_value(regclass) returns bigint language sql as 'select 5::bigint'"
    )
    writer.execute("set search_path = lure, pg_catalog")
    with refused("40001"):
        writer.execute("insert into pgq.event_1_1 (ev_data) values ('x')")
    writer.execute("insert into pgq.event_1_0 (ev_data) values ('y')")
    assert deliver(conn) == ["y"]


def test_the_engine_needs_no_superuser(empty_db: Database) -> None:
    """Installed by the plain owner of a database, everything works: also locks, truncation and who is in the way."""
    owner = f"owner_of_{empty_db.name}"
    conn = empty_db.connect()
    conn.execute(sql.SQL("create role {} login").format(sql.Identifier(owner)))
    conn.execute(sql.SQL("alter database {} owner to {}").format(sql.Identifier(empty_db.name), sql.Identifier(owner)))
    mine = empty_db.connect(user=owner)
    schema.install(mine)
    create(mine, "c")
    for number in range(5):
        send(mine, str(number))
        assert deliver(mine) == [str(number)]
        rotate_until(mine, "closed")
        deliver(mine)
    assert rotate_until(mine, "truncated")
    for ring in ("cursor_ring", "tick_ring"):
        evacuate(mine, ring) if step(mine, ring) == "idle" else [step(mine, ring) for _ in range(2)]
    writer = empty_db.connect(user=owner)
    begin(writer)
    send(writer, "x")
    rotate_until(mine, "switched")
    assert column(mine, "select pid from pgq.ring_blockers()") == [writer.info.backend_pid]
    commit(writer)
    assert deliver(mine) == ["x"]
    mine.execute("drop schema pgq cascade")
    conn.execute(sql.SQL("reassign owned by {} to postgres").format(sql.Identifier(owner)))
    conn.execute(sql.SQL("drop owned by {}").format(sql.Identifier(owner)))
    conn.execute(sql.SQL("drop role {}").format(sql.Identifier(owner)))
