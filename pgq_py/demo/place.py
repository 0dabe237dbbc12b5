"""Where the demo happens: an embedded server of its own, or a database of its own on a server of the user's.

Either is gone at the end, whatever happened in between.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.errors import InsufficientPrivilege
from psycopg.pq import Conninfo
from psycopg.sql import Identifier

from pgq_py import embedded
from pgq_py._binaries import environ
from pgq_py.demo import statements
from pgq_py.errors import PgqError, translate

__all__ = ["Place", "place"]

_OLDEST = 140_000


@dataclass(frozen=True)
class Place:
    """A database without a schema pgq, and the client programs to drive it with."""

    dsn: str
    bin_dir: Path

    def connect(self, purpose: str) -> psycopg.Connection[Any]:
        """A session in autocommit mode; the caller closes it."""
        with translate():
            return psycopg.connect(self.dsn, autocommit=True, application_name=f"pgq demo {purpose}")

    def client_env(self) -> dict[str, str]:
        """The environment in which libpq programs find the database; a password stays out of their arguments.

        The caller's PG* variables still say what the DSN does not.
        """
        options = Conninfo.parse(self.dsn.encode())
        given = {o.envvar.decode(): o.val.decode() for o in options if o.envvar and o.val}
        return {**os.environ, **environ(self.bin_dir), **given}


@contextmanager
def place(dsn: str | None) -> Iterator[Place]:
    """The place for the length of the block: on the server behind the DSN, or on an embedded one."""
    if dsn is not None:
        with _own_database(dsn) as found:
            yield found
        return
    with embedded.server() as server:
        yield Place(server.dsn(), server.bin_dir)


@contextmanager
def _own_database(dsn: str) -> Iterator[Place]:
    name = f"pgq_demo_{secrets.token_hex(4)}"
    with translate(), psycopg.connect(dsn, autocommit=True, application_name="pgq demo") as admin:
        if admin.info.server_version < _OLDEST:
            raise PgqError(
                f"the server is PostgreSQL {admin.info.server_version // 10_000}",
                advice="Nothing was changed. The oldest that pgq-py runs on is 14.",
            )
        _create(admin, name)
    try:
        yield Place(make_conninfo(dsn, dbname=name), embedded.find_binaries())
    finally:
        with psycopg.connect(dsn, autocommit=True, application_name="pgq demo") as admin:
            admin.execute(statements.DROP_DATABASE.format(Identifier(name)))


def _create(admin: psycopg.Connection[Any], name: str) -> None:
    try:
        admin.execute(statements.CREATE_DATABASE.format(Identifier(name)))
    except InsufficientPrivilege as exc:
        raise PgqError(
            "the demo works in a database of its own, and this role may not create one",
            advice="Nothing was changed. `alter role ... createdb`, or run the demo without --dsn.",
            sqlstate=exc.sqlstate,
        ) from exc
