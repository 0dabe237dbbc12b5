"""The events of a declared cursor, an answer of some thousand at a time.

To ask for the next answer as soon as one has come lets the server make it while this process makes events of the last:
otherwise one of the two would always wait for the other. While an answer is under way the connection can do nothing
else, so whoever wants it for a statement calls `settle()` first. A reader that takes its time gains nothing by it, and
would keep the server at its statement for as long; so only one that was quick with the last answer asks ahead.
"""

from __future__ import annotations

from time import monotonic
from typing import Any

from psycopg import AsyncConnection, AsyncCursor, generators
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, Format
from psycopg.sql import Literal

from pgq_py.client import queries
from pgq_py.client.rows import CHUNK_ROWS, make_event, read_lightly, rows_to_ask
from pgq_py.errors import translate
from pgq_py.types import Event

__all__ = ["AsyncAnswers"]

QUICK = 0.1
"""Seconds for an answer, some 20 microseconds an event: ten times what it takes to make them."""


class AsyncAnswers:
    """Reads what is declared on this connection, which must have no other reader; `ahead` asks for answers ahead."""

    def __init__(self, conn: AsyncConnection[Any], *, ahead: bool) -> None:
        self._conn, self._ahead = conn, ahead
        cursor = AsyncCursor(conn)
        read_lightly(cursor)
        self._rows = Transformer(cursor)
        self.begin()

    def begin(self) -> None:
        """A cursor has just been declared."""
        self._size, self._asked = CHUNK_ROWS, 0
        self._came: Any = None
        self._at = self._count = 0
        self._short = False
        self._turned_at = monotonic()

    @property
    def at_end(self) -> bool:
        """There are no more events."""
        return self._short and self._at == self._count

    async def next(self) -> list[Event]:
        """The next events, at most CHUNK_ROWS of an answer: what stays in the processor's caches."""
        with translate():
            if self._at == self._count:
                await self._turn()
            upto = min(self._at + CHUNK_ROWS, self._count)
            events: list[Event] = self._rows.load_rows(self._at, upto, make_event)
        self._at = upto
        if self._at == self._count:
            self._size = rows_to_ask(events)
        return events

    async def settle(self) -> None:
        """Have the connection free."""
        if self._asked and self._came is None:
            with translate():
                self._came = await self._receive()

    async def _turn(self) -> None:
        """Go on to the next answer."""
        if not self._asked:
            self._ask()
        answer, self._came = self._came or await self._receive(), None
        self._short, self._asked = answer.ntuples < self._asked, 0
        now = monotonic()
        # the first answer tells how large the next may be
        if self._ahead and self._count and not self._short and now - self._turned_at < QUICK:
            self._ask()
        self._at, self._count, self._turned_at = 0, answer.ntuples, now
        self._rows.set_pgresult(answer)

    def _ask(self) -> None:
        query = queries.FETCH_BATCH.format(Literal(self._size)).as_bytes(self._conn)
        self._conn.pgconn.send_query_params(query, None, result_format=Format.BINARY)
        self._conn.pgconn.flush()
        self._asked = self._size

    async def _receive(self) -> Any:
        try:
            (answer,) = await self._conn.wait(generators.fetch_many(self._conn.pgconn))
        except BaseException:
            self._asked = 0  # when interrupted, too, psycopg has seen to it that nothing is under way
            raise
        if answer.status != ExecStatus.TUPLES_OK:
            self._asked = 0
            raise error_from_result(answer, self._conn.info.encoding)
        return answer
