"""Statements that call a function which was generated for one queue.

Its name is asked for once per database and queue. The function goes away with its queue: the stale name is then
forgotten, and whoever has the transaction to itself asks again.
"""

from __future__ import annotations

from typing import Any, LiteralString

from psycopg import AsyncConnection
from psycopg.sql import SQL, Identifier

from pgq_py.client._async import calls
from pgq_py.errors import QueueNotFound

__all__ = ["AsyncGenerated", "Stale"]


class Stale(QueueNotFound):
    """The queue's function is gone: the queue was dropped, or dropped and created anew."""


class AsyncGenerated:
    """`function` asks for the name of a queue's function, `templates` are statements with a place for it."""

    def __init__(self, function: LiteralString, *templates: SQL) -> None:
        self._function, self._templates = function, templates
        self._known: dict[tuple[bytes, bytes, bytes, str], tuple[str, ...]] = {}

    async def statements(self, conn: AsyncConnection[Any], queue: str) -> tuple[str, ...]:
        """The templates, filled in for this queue of the connection's database. Raises QueueNotFound."""
        key = _key(conn, queue)
        found = self._known.get(key)
        if found is None:
            name = Identifier(await calls.value(conn, self._function, [queue]))
            found = self._known[key] = tuple(template.format(name).as_string(conn) for template in self._templates)
        return found

    def forget(self, conn: AsyncConnection[Any], queue: str) -> Stale:
        """There is no such function any more. The error to be raised."""
        self._known.pop(_key(conn, queue), None)
        return Stale(f"queue {queue!r} was dropped, or created anew, since it was last sent to")


def _key(conn: AsyncConnection[Any], queue: str) -> tuple[bytes, bytes, bytes, str]:
    return conn.pgconn.host, conn.pgconn.port, conn.pgconn.db, queue
