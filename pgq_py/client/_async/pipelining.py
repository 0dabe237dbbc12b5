"""Single sends that wait for nothing: libpq's pipeline, and in it blocks of events.

Each statement in a pipeline costs the client a message and its answer, and the server a call of a function; a block of
hundreds costs that once. Nobody can tell the difference, since the sends of a pipeline are one
transaction and return nothing.
"""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection, AsyncCursor

from pgq_py.client import queries
from pgq_py.client._async.generated import AsyncGenerated
from pgq_py.client.checks import check_name
from pgq_py.client.encoding import Data, Row, event_columns
from pgq_py.errors import translate

__all__ = ["AsyncPipeline", "single"]

BLOCK_EVENTS = 500
BLOCK_CHARACTERS = 256 * 1024


FEW_EVENTS = 4
"""Fewer than so many are sent one by one: planning the statement of a block costs the server as much."""

_NO_EXTRAS = (None, None, None, None)


def single(statements: tuple[str, ...], row: Row) -> tuple[str, Row | tuple[str | None, str | None]]:
    """The statement that sends this event through its queue's own function, and its parameters."""
    plain, full = statements  # without extras, and with some
    return (plain, row[:2]) if row[2:] == _NO_EXTRAS else (full, row)


class _Block:
    """Events of one queue that have not gone to the server yet."""

    def __init__(self, statements: tuple[str, ...]) -> None:
        self.statements = statements
        self.rows: list[Row] = []
        self.characters = 0

    def take(self) -> list[Row]:
        rows, self.rows, self.characters = self.rows, [], 0
        return rows


class AsyncPipeline:
    """What `pipeline()` yields: `send` without an answer, and the connection for further statements.

    Events of one queue keep their order. Before a statement that must come after them, such as another way to send,
    call `flush`.
    """

    def __init__(self, conn: AsyncConnection[Any], producer: AsyncGenerated) -> None:
        self.conn = conn
        self._cursor = AsyncCursor(conn)
        self._producer = producer
        self._blocks: dict[str, _Block] = {}

    async def send(
        self,
        queue: str,
        data: Data,
        *,
        type: str | None = None,  # noqa: A002
        extra1: str | None = None,
        extra2: str | None = None,
        extra3: str | None = None,
        extra4: str | None = None,
    ) -> None:
        """As `send` of the client, but for the id."""
        row = event_columns(type, data, extra1, extra2, extra3, extra4)
        block = self._blocks.get(queue)
        if block is None:
            block = self._blocks[queue] = _Block(await self._producer.statements(self.conn, check_name(queue, "queue")))
        block.rows.append(row)
        block.characters += len(row[1] or "")
        if len(block.rows) >= BLOCK_EVENTS or block.characters >= BLOCK_CHARACTERS:
            await self._flush(queue, block)

    async def flush(self) -> None:
        """Hand what has been sent so far to the connection."""
        for queue, block in self._blocks.items():
            await self._flush(queue, block)

    async def _flush(self, queue: str, block: _Block) -> None:
        rows = block.take()
        with translate():
            if len(rows) < FEW_EVENTS:
                for row in rows:
                    await self._cursor.execute(*single(block.statements, row))
            else:
                columns: list[list[str | None] | None] = [list(column) for column in zip(*rows, strict=True)]
                if all(row[2:] == _NO_EXTRAS for row in rows):
                    columns[2:] = _NO_EXTRAS
                await self._cursor.execute(queries.INSERT_EVENTS, [queue, *columns])
