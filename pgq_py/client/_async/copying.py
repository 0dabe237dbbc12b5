"""One bulk send: rendered blocks go through COPY into the queue's current slot, a chunk per COPY.

Blocks are written while the next one is rendered, so client and server work at the same time. A chunk that is a
transaction of its own is kept until the server has taken it, for the case that its slot was closed in between: the
memory in use is bounded by one chunk, however long the input.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from psycopg import AsyncConnection, AsyncCopy, AsyncCursor
from psycopg.sql import Identifier

from pgq_py.client import queries
from pgq_py.client._async import calls
from pgq_py.client.acompat import AsyncContext
from pgq_py.client.copytext import Block
from pgq_py.errors import SlotClosed, translate

__all__ = ["AsyncCopyWriter"]

CHUNK_CHARACTERS = 16 * 1024 * 1024
"""A chunk ends at this size as well, so that large events do not make large chunks."""


class AsyncCopyWriter:
    """Use as a context manager; `write` blocks, then leave it. An exception inside aborts the chunk that is under way.

    `attempts` is how often a chunk may be run: more than once only where each chunk is a transaction of its own.
    `rows` counts what has been written, of which the chunk under way is not yet certain.
    """

    def __init__(self, conn: AsyncConnection[Any], queue: str, chunk_rows: int, attempts: int) -> None:
        self.rows = 0
        self._conn, self._queue = conn, queue
        self._chunk_rows, self._attempts = chunk_rows, attempts
        self._blocks: list[str] = []
        self._extras = False
        self._room = chunk_rows
        self._characters = 0
        self._context: AsyncContext[AsyncCopy] | None = None
        self._copy: AsyncCopy | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if exc is None:
            await self._end_chunk()
            return
        context, self._context = self._context, None
        if context is not None:
            await context.__aexit__(kind, exc, trace)

    async def write(self, block: Block) -> None:
        """Send one block; one with other columns than those before it begins a new chunk."""
        if block.extras != self._extras:
            await self._end_chunk()
            self._extras = block.extras
        with translate():
            copy = self._copy or await self._begin()
            await copy.write(block.text)
        self.rows += block.rows
        self._room -= block.rows
        self._characters += len(block.text)
        if self._attempts > 1:
            self._blocks.append(block.text)
        if self._room <= 0 or self._characters > CHUNK_CHARACTERS:
            await self._end_chunk()

    async def _begin(self) -> AsyncCopy:
        """Start a COPY into the slot that is current now: it is asked for each time, for slots change."""
        table = await calls.value(self._conn, queries.CURRENT_EVENT_TABLE, [self._queue])
        template = queries.COPY_EVENTS_WITH_EXTRAS if self._extras else queries.COPY_EVENTS
        statement = template.format(Identifier(*table.split(".")))
        self._context = AsyncCursor(self._conn).copy(statement)
        self._copy = await self._context.__aenter__()
        return self._copy

    async def _end_chunk(self) -> None:
        """Let the server finish the chunk, and run it again while its slot was closed too early."""
        for attempt in range(1, self._attempts + 1):
            try:
                await self._end_copy()
                break
            except SlotClosed:
                if attempt == self._attempts:
                    raise
            with translate():
                copy = await self._begin()
                for block in self._blocks:
                    await copy.write(block)
        self._blocks.clear()
        self._room, self._characters = self._chunk_rows, 0

    async def _end_copy(self) -> None:
        context, self._context, self._copy = self._context, None, None
        if context is not None:
            with translate():
                await context.__aexit__(None, None, None)
            await calls.command(self._conn, queries.WAKE, [self._queue])
