"""Where peers are measured: a private server, or the one of `--dsn`, and on it a database for each peer.

All of them come over TCP, for some cannot use a Unix socket, and all shall have the same way to go.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL, Identifier

from pgq_py import embedded
from pgq_py.bench import machine
from pgq_py.bench.targets import SETTINGS

__all__ = ["DEBIAN", "Ground", "connect", "ground", "url"]

DEBIAN: Final = Path("/usr/lib/postgresql/15/bin")
"""The one server for which PgQ's C code is packaged."""

OWN_SETTINGS: Final[Mapping[str, str | int | bool]] = {
    **SETTINGS,
    "max_connections": 200,
    "autovacuum_naptime": "5s",
    "track_io_timing": True,
    "max_prepared_transactions": 0,
}
"""As every benchmark has them, but autovacuum looks every five seconds: a run of minutes stands for hours."""


@dataclass(frozen=True, slots=True)
class Ground:
    """A server. `database` makes a new one there and gives its URL."""

    admin: str
    server: embedded.Server | None
    facts: machine.Server

    @property
    def major(self) -> str:
        return str(self.facts.version_num // 10000)

    def database(self, name: str) -> str:
        """A new, empty database, dropped with the ground."""
        full = f"bench_{name.replace('-', '_').replace(':', '_').replace('.', '_').lower()}_{secrets.token_hex(3)}"
        with connect(self.admin) as conn:
            conn.execute(SQL("create database {} template template0").format(Identifier(full[:60])))
        return url(self.admin, full[:60])

    def drop(self, dsn: str) -> None:
        with connect(self.admin) as conn:
            name = str(conninfo_to_dict(dsn)["dbname"])
            conn.execute(SQL("drop database if exists {} with (force)").format(Identifier(name)))


def connect(dsn: str) -> psycopg.Connection[Any]:
    """A session of the harness itself."""
    return psycopg.connect(dsn, autocommit=True, application_name="bench harness")


def url(dsn: str, dbname: str) -> str:
    """The same server as a URL, which is what all peers understand."""
    parts = conninfo_to_dict(dsn)
    user, password = quote(str(parts.get("user", "postgres"))), quote(str(parts.get("password") or ""), safe="")
    credentials = f"{user}:{password}" if password else user
    host = quote(str(parts.get("host") or "127.0.0.1"), safe="")
    return f"postgresql://{credentials}@{host}:{parts.get('port', 5432)}/{dbname}"


@contextmanager
def ground(
    dsn: str | None = None, bin_dir: Path | None = None, settings: Mapping[str, str | int | bool] | None = None
) -> Iterator[Ground]:
    """A private server from `bin_dir` (default: the embedded one), with further settings; or that of `dsn`."""
    if dsn is not None:
        with _on(dsn, None) as place:
            yield place
        return
    chosen = {**OWN_SETTINGS, **(settings or {})}
    with embedded.server(settings=chosen, tcp=True, bin_dir=bin_dir) as server, _on(server.dsn(), server) as place:
        yield place


@contextmanager
def _on(admin: str, server: embedded.Server | None) -> Iterator[Ground]:
    with connect(admin) as conn:
        before = _databases(conn)
        place = Ground(admin, server, machine.server(conn, private=server is not None))
    yield place
    if server is None:
        with connect(admin) as conn:
            for name in _databases(conn) - before:
                if name.startswith("bench_"):
                    conn.execute(SQL("drop database if exists {} with (force)").format(Identifier(name)))


def _databases(conn: psycopg.Connection[Any]) -> set[str]:
    return {name for (name,) in conn.execute("select datname from pg_database").fetchall()}
