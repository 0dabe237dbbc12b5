"""Where a benchmark runs: a server of its own, or a database of its own on a server that it is given."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

from pgq_py import embedded, schema
from pgq_py.bench import machine
from pgq_py.bench.results import Run
from pgq_py.errors import translate

__all__ = ["SETTINGS", "Target", "connect", "scratch_database", "target"]

SETTINGS: Mapping[str, str | int | bool] = {
    # As durable as production has to be, and stated, whatever the defaults are.
    "fsync": True,
    "synchronous_commit": True,
    "full_page_writes": True,
    # A checkpoint in the middle of a short run would hit one of two ways that are to be compared.
    "checkpoint_timeout": "30min",
    "max_wal_size": "8GB",
    "shared_buffers": "256MB",
    "max_connections": 50,
}


@dataclass(frozen=True, slots=True)
class Target:
    """A database with the schema in it and nothing else, for one run. `record` makes the run's circumstances."""

    dsn: str
    private: bool
    record: Callable[[str, dict[str, Any]], Run]


def connect(dsn: str) -> psycopg.Connection[Any]:
    """A session for statements of the benchmark itself: autocommit, READ COMMITTED."""
    with translate():
        conn = psycopg.connect(dsn, autocommit=True, application_name="pgq bench")
    conn.execute("set default_transaction_isolation = 'read committed'")
    return conn


@contextmanager
def target(dsn: str | None) -> Iterator[Target]:
    """A private embedded server, or a new database on the server of `dsn`; either is gone at the end."""
    with _private_server() if dsn is None else scratch_database(dsn) as own:
        with connect(own) as conn:
            schema.install(conn)
            facts = machine.server(conn, private=dsn is None)
        client, started_at, begin = machine.machine(), datetime.now(UTC), perf_counter()

        def record(benchmark: str, parameters: dict[str, Any]) -> Run:
            return Run(benchmark, started_at, round(perf_counter() - begin, 2), parameters, client, facts)

        yield Target(own, dsn is None, record)


@contextmanager
def _private_server() -> Iterator[str]:
    with embedded.server(settings=SETTINGS) as own:
        yield own.dsn()


@contextmanager
def scratch_database(dsn: str) -> Iterator[str]:
    """Needs the right to create databases, and so touches none that is there."""
    name = f"pgq_bench_{secrets.token_hex(4)}"
    with connect(dsn) as conn:
        conn.execute(SQL("create database {}").format(Identifier(name)))
        try:
            yield make_conninfo(dsn, dbname=name)
        finally:
            conn.execute(SQL("drop database {} with (force)").format(Identifier(name)))
