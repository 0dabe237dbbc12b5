"""A server with PgQ's own extension, from Debian's packages."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import psycopg
import pytest
from psycopg import sql

from pgq_py.embedded import Server
from tests.clusters import SETTINGS, Database
from tests.compat.debian import BIN_DIR, needs
from tests.engine.support import Conn, value

_numbers = count(1)


@pytest.fixture(scope="session")
def pgq_server() -> Iterator[Server]:
    """PostgreSQL 15 as Debian has it."""
    needs("postgresql-15-pgq3")
    with Server(settings=SETTINGS, bin_dir=BIN_DIR) as server:
        yield server


@pytest.fixture
def pgq_db(pgq_server: Server) -> Iterator[Database]:
    """A database with PgQ's extension."""
    name = sql.Identifier(f"pgq_{next(_numbers)}")
    with psycopg.connect(pgq_server.dsn(), autocommit=True) as admin:
        admin.execute(sql.SQL("create database {}").format(name))
        database = Database(pgq_server, name.as_string().strip('"'))
        database.rows("create extension pgq")
        try:
            yield database
        finally:
            database.close()
            for (gid,) in database.rows("select gid from pg_prepared_xacts where database = current_database()"):
                with psycopg.connect(database.dsn, autocommit=True) as inside:
                    inside.execute(sql.SQL("rollback prepared {}").format(gid))
            admin.execute(sql.SQL("drop database {} with (force)").format(name))


@pytest.fixture
def old(pgq_db: Database) -> Conn:
    """Two queues; `a` reads one of them, `b` both. Every call of ticker() ticks."""
    conn = pgq_db.connect()
    value(conn, "select pgq.create_queue('spare')")
    value(conn, "select pgq.drop_queue('spare')")  # ids are not 1, 2, 3
    for queue in ("one", "two"):
        value(conn, "select pgq.create_queue(%s)", queue)
        value(conn, "select pgq.register_consumer(%s, 'b')", queue)
    value(conn, "select pgq.register_consumer('one', 'a')")
    conn.execute("update pgq.queue set queue_ticker_max_lag = '0', queue_ticker_idle_period = '0'")
    return conn
