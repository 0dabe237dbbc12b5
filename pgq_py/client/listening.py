"""Hearing of notifications on a connection that also runs statements, without giving it away to a generator.

A notification arrives with whatever the connection reads: while a statement runs, psycopg passes it to a handler;
between statements it has to be fetched from libpq, which does not block. Both end in one list. To wait, watch the
connection's socket.

Anybody may notify any channel, so channel and payload are hints: they are compared with what is expected, never used
as anything else.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from psycopg import AsyncConnection, Connection, Notify

from pgq_py.errors import translate

__all__ = ["Notices"]

Notice: TypeAlias = tuple[str, str]


class Notices:
    """What a connection has heard from others; `take()` it."""

    def __init__(self, conn: Connection[Any] | AsyncConnection[Any]) -> None:
        self._conn = conn
        self._own_pid = conn.info.backend_pid
        self._heard: list[Notice] = []
        conn.add_notify_handler(self._hear)

    @property
    def any(self) -> bool:
        """Something came with the answer to a statement, and waits to be taken."""
        return bool(self._heard)

    def take(self) -> list[Notice]:
        """Channel and payload of all that arrived since the last call. Raises ConnectionFailed for a dead connection.

        Must not be called while the connection runs a statement.
        """
        libpq = self._conn.pgconn
        with translate():
            libpq.consume_input()
            while (notice := libpq.notifies()) is not None:
                if notice.be_pid != self._own_pid:
                    self._heard.append((notice.relname.decode(), notice.extra.decode()))
        heard, self._heard = self._heard, []
        return heard

    def _hear(self, notice: Notify) -> None:
        if notice.pid != self._own_pid:
            self._heard.append((notice.channel, notice.payload))
