"""What a run leaves behind in the database, read from PostgreSQL's own statistics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any, Final, LiteralString

import psycopg

from pgq_py.bench.targets import connect
from pgq_py.errors import PgqError

__all__ = ["Traces", "buffers", "traces"]

_DEAD = "select relname, n_dead_tup from pg_stat_user_tables where schemaname = 'pgq' order by relname"
_INSERTED = "select sum(n_tup_ins) from pg_stat_user_tables where schemaname = 'pgq'"
_UPDATED = "select sum(n_tup_upd) from pg_stat_user_tables where schemaname = 'pgq'"
_CLEAN = "select (sum(n_dead_tup) = 0)::int from pg_stat_user_tables where schemaname = 'pgq'"

_PG_CLASS = "select n_dead_tup from pg_stat_all_tables where relid = 'pg_class'::regclass"

_PAGES = """
select sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read)
  from pg_statio_user_tables where schemaname = 'pgq'
"""

_DEADLINE: Final = 20.0


@dataclass(frozen=True, slots=True)
class Traces:
    """Dead tuples by table of schema pgq, and the generation of every ring, which counts its switches."""

    dead: dict[str, int]
    dead_in_pg_class: int
    generations: dict[str, int]


def traces(dsn: str, inserted: int) -> Traces:
    """The traces, when the statistics have arrived: once the tables of pgq have had `inserted` rows.

    Sessions report what they did with some delay, at the latest at their end; so end them first.
    """
    with connect(dsn) as conn:
        _await(conn, _INSERTED, inserted)
        tables = conn.execute(_DEAD).fetchall()
        (dead_in_pg_class,) = conn.execute(_PG_CLASS).fetchone() or (0,)
        rings = conn.execute("select ring, generation from pgq.ring_info()").fetchall()
    return Traces(dict(tables), dead_in_pg_class, dict(rings))


def vacuum(dsn: str, updated: int) -> None:
    """Remove the dead tuples of `updated` rows in schema pgq, once the statistics know of them."""
    with connect(dsn) as conn:
        _await(conn, _UPDATED, updated)
        conn.execute("vacuum pgq.queue, pgq.ring")
        _await(conn, _CLEAN, 1)


def _await(conn: psycopg.Connection[Any], query: LiteralString, least: int) -> None:
    deadline = monotonic() + _DEADLINE
    while (conn.execute(query).fetchone() or (0,))[0] < least:
        if monotonic() > deadline:
            raise PgqError("the server's statistics do not arrive", advice="Is track_counts on?")
        sleep(0.02)


def buffers(sessions: Iterable[psycopg.Connection[Any]]) -> int | None:
    """Pages of schema pgq that were looked at so far. None before PostgreSQL 15, whose statistics come too late."""
    pages = None
    for conn in sessions:
        if conn.info.server_version < 150000:
            return None
        conn.execute("select pg_stat_force_next_flush()")
        conn.execute("select")
        pages = conn.execute(_PAGES).fetchone()
    return None if pages is None else int(pages[0])
