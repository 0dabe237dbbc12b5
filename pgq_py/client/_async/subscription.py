"""One consumer of one queue, through one connection that is nobody else's.

Batches and the ownership of the subscription are state of that session: the lock goes when the session goes, however it
ends, and a standby takes over. The lock is a courtesy that keeps two workers from doing the same work; it is the
database's row lock and its check of batch and position that make every acknowledgement right, owned or not.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from typing import Any, LiteralString

from psycopg import AsyncConnection, AsyncCursor, Error
from psycopg.errors import UndefinedFunction
from psycopg.rows import tuple_row
from psycopg.sql import SQL, Identifier, Literal

from pgq_py.client import queries
from pgq_py.client._async import calls
from pgq_py.client._async.answers import AsyncAnswers
from pgq_py.client._async.batches import AsyncBatch
from pgq_py.client.connecting import is_pooled
from pgq_py.client.rows import CHUNK_ROWS, event_rows, opened, read_lightly
from pgq_py.errors import PgqError, QueueNotFound, translate
from pgq_py.types import BatchId, Event, EventId, OpenBatch

__all__ = ["STANDBY_INTERVAL", "AsyncSubscription"]

logger = logging.getLogger("pgq_py.client")

STANDBY_INTERVAL = 0.1
"""Seconds between two attempts to take over a subscription. Waiting inside the database would hold a snapshot, and with
it the horizon of every table, for as long as the owner lives."""


class AsyncSubscription:
    """The calls of a consumer that keeps its connection. Windows are merged to batches of about `max_events`.

    `announced` is set when a producer has said that there is an event: the next call ticks first, if that is due and
    nobody else is at it, for the way through the ticker's process is longer. `in_rush` is set when nobody has said so
    but there may well be one. `ahead` allows to ask for events ahead; then it is `free()` that gives the connection for
    a statement.
    """

    def __init__(
        self, conn: AsyncConnection[Any], queue: str, consumer: str, max_events: int, *, ahead: bool = True
    ) -> None:
        self.conn = conn
        self.queue, self.consumer = queue, consumer
        self._max_events = max_events
        self.pooled = is_pooled(conn)
        self.announced = self.in_rush = False
        self._statements: dict[str, str] = {}
        self._key = f"pgq:{queue}/{consumer}"
        self._owned = False
        self._declared = False
        self._rows = AsyncCursor(conn, row_factory=event_rows)
        self._opening = AsyncCursor(conn, row_factory=tuple_row)
        for cursor in (self._rows, self._opening):
            read_lightly(cursor)
        self._answers = AsyncAnswers(conn, ahead=ahead)

    async def own(self) -> bool:
        """Try to become the one worker of this consumer, until `disown` or the end of the connection.

        Behind a pooler there are no sessions to own anything: every worker takes itself for the owner, and several of
        them take turns.
        """
        if not self._owned:
            if self.pooled:
                logger.warning("%s: a pooler is in between, so there is no standby; use a direct connection", self._key)
            self._owned = self.pooled or bool(
                await calls.value(await self.free(), queries.OWN_SUBSCRIPTION, [self._key])
            )
        return self._owned

    async def disown(self) -> None:
        """Let the next worker take over at once. A dead connection has let go by itself."""
        if self._owned and not self.pooled:
            with suppress(PgqError, Error):
                await calls.value(await self.free(), queries.DISOWN_SUBSCRIPTION, [self._key])
        self._owned = False

    async def open(self, *, lightly: bool = False) -> AsyncBatch | None:
        """The open batch or the next one, in a transaction of its own; None when nothing waits.

        An empty batch is not an empty queue: it is acknowledged, and the next one tried. `lightly` does not wait for
        the disk, nor open what few events are: for who does nothing with the batch, nor with its id, but through this
        object.
        """
        query = queries.PEEK_BATCH if lightly and not self.pooled else queries.OPEN_BATCH
        while True:
            tick = True if self.announced else None if self.in_rush else False
            self.announced = self.in_rush = False
            batch, events = await self._next(query, CHUNK_ROWS, tick)
            if batch is not None and events is None:
                async with calls.transaction(self.conn):
                    batch = await self.resume(None)
            if batch is None or not batch.exhausted:
                return batch
            await batch.ack()

    async def resume(self, batch: AsyncBatch | None) -> AsyncBatch | None:
        """In the caller's transaction: lock the subscription and go on where it stands.

        That is `batch` itself, if nobody moved the consumer since; else the open batch or the next one, which may turn
        out to be empty; None when nothing waits.
        """
        new, events = await self._next(queries.OPEN_BATCH, CHUNK_ROWS if batch is None else 0)
        if new is None:
            return None
        if batch is not None and batch.continues_at(new.info):
            return batch
        if events is None:
            await self._declare(new)
            await (new.read_at_once(self._max_events) if self.pooled else new.look_ahead())
        return new

    async def _next(
        self, query: LiteralString, at_once: int, tick: bool | None = False
    ) -> tuple[AsyncBatch | None, list[Event] | None]:
        """The open batch or the next one, and its events where these are less than `at_once`."""
        await self.free()
        statement = await self._statement(query)
        with translate():
            try:
                await self._opening.execute(statement, [self.consumer, self._max_events, at_once, tick], binary=True)
            except UndefinedFunction as exc:
                if exc.diag.context is not None:
                    raise
                self._statements.clear()
                raise QueueNotFound(f"queue {self.queue!r} was dropped, or created anew") from exc
            info, events = opened(await self._opening.fetchall())
        if info is None:
            return None, None
        batch = AsyncBatch(self, info)
        if events is not None:
            await self.close_cursor()
            batch.has_all(events)
        return batch, events

    async def _statement(self, query: LiteralString) -> str:
        """The query with the name of the queue's own function, which is asked for once."""
        statement = self._statements.get(query)
        if statement is None:
            function = await calls.value(self.conn, queries.OPENER_FUNCTION, [self.queue])
            statement = self._statements[query] = SQL(query).format(Identifier(function)).as_string(self.conn)
        return statement

    async def ack(self, batch: BatchId, up_to: EventId | None) -> bool:
        """Acknowledge up to an event, or all; True when that finished the batch."""
        parameters = [self.queue, self.consumer, batch, up_to]
        return bool(await calls.value(await self.free(), queries.ACK, parameters))

    async def ack_peeked(self, batch: OpenBatch) -> bool:
        """Acknowledge all of a batch that was only peeked at; True."""
        parameters = [self.queue, self.consumer, batch.batch_id, batch.prev_tick_id, batch.cur_tick_id]
        return bool(await calls.value(await self.free(), queries.ACK_PEEKED, parameters))

    async def open_peeked(self, batch: OpenBatch) -> OpenBatch:
        """Open a batch that was only peeked at."""
        parameters = [self.queue, self.consumer, batch.batch_id, batch.prev_tick_id, batch.cur_tick_id]
        return replace(batch, batch_id=BatchId(await calls.value(await self.free(), queries.OPEN_PEEKED, parameters)))

    async def tick_announced(self) -> None:
        """For who opens the next batch in a longer transaction, in which the tick's lock must not be held."""
        if self.announced or self.in_rush:
            self.announced = self.in_rush = False
            await self.poke()

    async def poke(self) -> bool:
        """Release and tick what is due, if nobody else does it; True when there is a new tick."""
        while (tick := await calls.value(await self.free(), queries.POKE_LIGHTLY, [self.queue])) == 0:
            pass  # delayed events were released; the tick that shows them is another transaction's
        return tick is not None

    async def fetch(self, limit: int) -> list[Event]:
        """The next rows of the declared cursor."""
        with translate():
            await self._rows.execute(queries.FETCH_BATCH.format(Literal(limit)), binary=True, prepare=False)
            return await self._rows.fetchall()

    async def stream(self) -> list[Event]:
        """The next events of the declared cursor, at most CHUNK_ROWS."""
        return await self._answers.next()

    @property
    def at_end(self) -> bool:
        """`stream` has nothing more to give."""
        return self._answers.at_end

    async def free(self) -> AsyncConnection[Any]:
        """The connection, for a statement: no answer is under way on it."""
        await self._answers.settle()
        return self.conn

    async def close_cursor(self) -> None:
        """Give the rows that are left back to the server."""
        if self._declared:
            await calls.command(await self.free(), queries.CLOSE_BATCH)
            self._declared = False

    async def _declare(self, batch: AsyncBatch) -> None:
        await self.close_cursor()
        ((statement, *_),) = await calls.rows(self.conn, queries.BATCH_EVENT_SQL, [batch.id])
        await calls.command(self.conn, queries.BATCH_CURSOR.format(SQL(statement)))
        self._answers.begin()
        self._declared = True
