"""Find the psycopg connection in what a caller hands over as `conn=`.

An event belongs into the caller's own transaction, and the caller may hold that in other wrappings than ours: a psycopg
connection or cursor, a SQLAlchemy Session or Connection (also their async forms), a Django connection. None of these
libraries is imported; each keeps the driver's connection behind one of a few well-known names, which are followed.

The connection is used as it is: its isolation level, autocommit and row factory stay untouched, and nothing is
committed.
"""

from __future__ import annotations

import inspect
from typing import Any

import psycopg

from pgq_py.errors import InvalidArgument

__all__ = ["borrow", "borrow_async"]

_DEPTH = 5
"""AsyncSession -> AsyncConnection -> the pool's proxy -> SQLAlchemy's adapter -> psycopg is the longest way known."""


def borrow(conn: Any) -> psycopg.Connection[Any]:
    """The sync psycopg connection behind `conn`. Raises InvalidArgument when there is none."""
    found: Any = conn
    for _ in range(_DEPTH):
        if isinstance(found, psycopg.Connection):
            return found
        if isinstance(found, psycopg.AsyncConnection):
            raise InvalidArgument("conn is an async connection", advice="Use AsyncPgQ with async connections.")
        found = _one_step_in(found)
    raise _no_psycopg_in(conn)


async def borrow_async(conn: Any) -> psycopg.AsyncConnection[Any]:
    """The async psycopg connection behind `conn`. Raises InvalidArgument when there is none."""
    found: Any = conn
    for _ in range(_DEPTH):
        if isinstance(found, psycopg.AsyncConnection):
            return found
        if isinstance(found, psycopg.Connection):
            raise InvalidArgument("conn is a sync connection", advice="Use PgQ with sync connections.")
        found = _one_step_in(found)
        if inspect.isawaitable(found):
            found = await found
    raise _no_psycopg_in(conn)


def _one_step_in(wrapping: Any) -> Any:
    """What one layer wraps, or None.

    The order matters: SQLAlchemy's async Connection leads on by a call alone, and its pool's proxy has a `connection`
    as well, which is deprecated. A method is called, an attribute taken.
    """
    for name in ("driver_connection", "get_raw_connection", "connection"):
        inner = getattr(wrapping, name, None)
        if inner is not None:
            return inner() if callable(inner) else inner
    return None


def _no_psycopg_in(conn: object) -> InvalidArgument:
    return InvalidArgument(
        f"conn is a {type(conn).__module__}.{type(conn).__qualname__}, in which there is no psycopg 3 connection",
        advice="Nothing was sent. Pass a psycopg 3 connection or cursor, or a SQLAlchemy session of an engine whose "
        "URL begins with postgresql+psycopg://.",
    )
