"""Sending events: one by one through the queue's own function, many through COPY.

Rotation refuses a writer that dawdled between choosing a slot and writing to it (SQLSTATE 40001). Where the transaction
is this client's own it is simply run again; a caller's transaction can be repeated by the caller alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from psycopg import AsyncConnection

from pgq_py.client import queries
from pgq_py.client._async import calls
from pgq_py.client._async.copying import AsyncCopyWriter
from pgq_py.client._async.delaying import ATTEMPTS, AsyncDelaying
from pgq_py.client._async.generated import AsyncGenerated, Stale
from pgq_py.client._async.pipelining import AsyncPipeline, single
from pgq_py.client.acompat import AsyncItems, aslices
from pgq_py.client.borrowed import borrow_async
from pgq_py.client.checks import check_due, check_items, check_name, check_positive
from pgq_py.client.copytext import copy_block
from pgq_py.client.encoding import Data, Row, event_columns, plain_text
from pgq_py.errors import SchemaOutdated, SlotClosed, translate
from pgq_py.settings import Settings
from pgq_py.types import EventId

__all__ = ["AsyncProducing"]

BLOCK_ROWS = 256
"""Rows rendered at a time: enough for string operations per block, few enough to keep the server busy meanwhile."""


class AsyncProducing(AsyncDelaying):
    """The calls that send."""

    def __init__(self, dsn: str | None = None, *, settings: Settings | None = None) -> None:
        super().__init__(dsn, settings=settings)
        self._producer = AsyncGenerated(queries.PRODUCER_FUNCTION, queries.PRODUCE_PLAIN, queries.PRODUCE)

    async def send(
        self,
        queue: str,
        data: Data,
        *,
        type: str | None = None,  # noqa: A002 - the column's name
        extra1: str | None = None,
        extra2: str | None = None,
        extra3: str | None = None,
        extra4: str | None = None,
        deliver_at: datetime | None = None,
        deliver_in: timedelta | None = None,
        conn: Any = None,
    ) -> EventId:
        """Send one event and return its id.

        `data` is stored as it is when it is a str, as compact JSON when it is a dict, list, number or bool, as NULL
        when it is None. With `conn`, the event is part of the transaction on that connection; without, it is committed
        at the return. Raises InvalidArgument, before anything is sent, for what could not be stored unchanged.

        With `deliver_at` (a time with a zone) or `deliver_in` it is delivered then, never earlier; until then its id
        can be given to `cancel_event`.
        """
        row = event_columns(type, data, extra1, extra2, extra3, extra4)
        if (due := check_due(deliver_at, deliver_in)) is not None:
            return await self._send_later(queue, row, due, conn)
        if conn is not None:
            return await self._produce(await borrow_async(conn), queue, row)
        for _ in range(ATTEMPTS - 1):
            try:
                async with self._connection() as own:
                    return await self._produce(own, queue, row)
            except (SlotClosed, Stale):
                continue
        async with self._connection() as own:
            return await self._produce(own, queue, row)

    async def send_many(
        self,
        queue: str,
        events: AsyncItems,
        *,
        type: str | None = None,  # noqa: A002
        chunk_size: int = 10_000,
        deliver_at: datetime | None = None,
        deliver_in: timedelta | None = None,
        conn: Any = None,
    ) -> int:
        """Send many events through COPY and return how many.

        An element is the data alone, as `send` takes it, or a tuple (type, data, extra1 .. extra4; NewEvent names
        them), or an Event, which is sent on. `type` is for those that have none. The input is streamed: memory holds
        about one chunk.

        Without `conn`, every chunk is a transaction of its own, so an error in between keeps the chunks before it; with
        `conn`, all of them are part of the transaction on that connection. Events of a chunk have rising ids in the
        order given. With `deliver_at` or `deliver_in` they are sent for later, in chunks of at most 1,000.
        """
        if (due := check_due(deliver_at, deliver_in)) is not None:
            return await self._send_many_later(queue, events, due, type, chunk_size=chunk_size, conn=conn)
        default_type = plain_text(type, "type")
        rows = min(BLOCK_ROWS, check_positive(chunk_size, "chunk_size"))
        check_items(events)
        attempts = ATTEMPTS if conn is None else 1
        async with (
            self._connection(conn) as own,
            AsyncCopyWriter(own, check_name(queue, "queue"), chunk_size, attempts) as writer,
        ):
            async for items in aslices(events, rows):
                await writer.write(copy_block(items, default_type))
        return writer.rows

    @asynccontextmanager
    async def pipeline(self, conn: Any = None) -> AsyncIterator[AsyncPipeline]:
        """One transaction whose single sends do not wait for each other's answers.

        Their ids are not returned, and an error surfaces at the end of the block at the latest, whose transaction is
        then rolled back. Events go to the server in blocks and keep their order.
        """
        async with self.transaction(conn) as own, own.pipeline() as pipeline:
            sending = AsyncPipeline(own, self._producer)
            yield sending
            await sending.flush()
            with translate():
                await pipeline.sync()

    async def _produce(self, conn: AsyncConnection[Any], queue: str, row: Row) -> EventId:
        call = single(await self._producer.statements(conn, check_name(queue, "queue")), row)
        try:
            return EventId(await calls.value(conn, *call))
        except SchemaOutdated as exc:
            raise self._producer.forget(conn, queue) from exc
