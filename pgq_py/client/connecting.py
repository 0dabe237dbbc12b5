"""How this package's own connections are made: pooled ones for calls, direct ones for whoever holds session state.

A connection is in autocommit mode, so that one call is one transaction and one round trip; a longer transaction is
opened where one is meant. A dead server is noticed within about fifteen seconds even when it says nothing: by
keepalives while nothing is under way, by a time-out for what was sent. A worker on a half-open connection would
otherwise wait for a quarter of an hour.
"""

from __future__ import annotations

import select
from typing import Any
from weakref import WeakSet

from psycopg import AsyncConnection, Connection
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from pgq_py.settings import Settings

__all__ = ["check_alive", "check_alive_async", "connect_kwargs", "is_pooled", "note_backend"]

_KEEPALIVES = {"keepalives_idle": 5, "keepalives_interval": 5, "keepalives_count": 2, "tcp_user_timeout": 15_000}
"""libpq ignores them on a Unix socket, and the last one where the system does not know it."""


def connect_kwargs(settings: Settings, purpose: str = "") -> dict[str, Any]:
    """Keyword arguments of `connect`. The purpose (a word or two) is added to the application name.

    What the DSN itself says takes precedence.
    """
    given = conninfo_to_dict(settings.conninfo)
    defaults = {"connect_timeout": round(settings.connect_timeout), **_KEEPALIVES}
    name = f"{given.get('application_name', settings.application_name)} {purpose}".strip()
    chosen = {key: value for key, value in defaults.items() if key not in given}
    return {"autocommit": True, "application_name": name[:63], **chosen}


def _is_silent(conn: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Whether nothing waits to be read: a server that went away has at least closed the socket."""
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(conn.fileno(), select.POLLIN)
        return not poll.poll(0)
    return not select.select([conn.fileno()], [], [], 0)[0]


def check_alive(conn: Connection[Any]) -> None:
    """The pool's check: a round trip only for a connection that looks suspicious. Raises when it is dead."""
    if not _is_silent(conn):
        ConnectionPool.check_connection(conn)


async def check_alive_async(conn: AsyncConnection[Any]) -> None:
    """The same for the async pool."""
    if not _is_silent(conn):
        await AsyncConnectionPool.check_connection(conn)


def is_pooled(conn: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Whether a pooler sits in between, so that session state must not be relied on. Known after `note_backend`."""
    return conn in _POOLED


def note_backend(conn: Connection[Any] | AsyncConnection[Any], pid: int) -> None:
    """Remember whether the process that serves a connection is the one that greeted it.

    A pooler greets with a process id of its own making, for cancellations have to come back to it.
    """
    if conn.info.backend_pid != pid:
        _POOLED.add(conn)


_POOLED: WeakSet[Connection[Any] | AsyncConnection[Any]] = WeakSet()
