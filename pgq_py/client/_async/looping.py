"""The explicit loop over a consumer's batches: `with pgq.batches(queue, consumer) as batches`."""

from __future__ import annotations

import math
from time import monotonic
from types import TracebackType
from typing import Any, Self

from psycopg import AsyncConnection

from pgq_py.client._async.batches import AsyncBatch
from pgq_py.client._async.connections import connect_async
from pgq_py.client._async.idling import AsyncIdle
from pgq_py.client._async.subscription import STANDBY_INTERVAL, AsyncSubscription
from pgq_py.client.acompat import AsyncStop
from pgq_py.settings import Settings

__all__ = ["AsyncBatches"]


class AsyncBatches:
    """An iterator of batches, and the context manager around it, with a connection of its own.

    A batch is acknowledged, as far as its events were handed out, when the loop asks for the next one or the block is
    left normally; a `break` counts as normal. An exception that leaves the block acknowledges nothing: the batch comes
    again, from the last `batch.ack(event)` on. Batches without events are passed silently.

    While another process reads as the same consumer, this one waits in its place.
    """

    def __init__(self, settings: Settings, queue: str, consumer: str, wait: float | None, max_events: int) -> None:
        self._settings = settings
        self._queue, self._consumer = queue, consumer
        self._wait, self._max_events = wait, max_events
        self._stop = AsyncStop()
        self._batch: AsyncBatch | None = None
        self._conn: AsyncConnection[Any] | None = None

    async def __aenter__(self) -> Self:
        self._conn = await connect_async(self._settings, self._consumer)
        self._subscription = AsyncSubscription(self._conn, self._queue, self._consumer, self._max_events)
        self._idle = AsyncIdle(self._subscription, self._stop, self._settings)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        conn, self._conn = self._conn, None
        if conn is None:
            return
        try:
            if exc is None:
                await self._leave_batch()
        finally:
            await self._subscription.disown()
            await conn.close()

    def stop(self) -> None:
        """End the loop: at once while it waits, else when it asks for the next batch."""
        self._stop.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncBatch:
        await self._leave_batch()
        self._batch = await self._next_batch()
        if self._batch is None:
            raise StopAsyncIteration
        self._idle.found()
        return self._batch

    async def _leave_batch(self) -> None:
        batch, self._batch = self._batch, None
        if batch is not None:
            await batch.leave()

    async def _next_batch(self) -> AsyncBatch | None:
        """The next batch with events; None when there was none for as long as this may wait."""
        deadline = math.inf if self._wait is None else monotonic() + self._wait
        while not self._stop.is_set():
            owned = await self._subscription.own()
            if owned and (batch := await self._subscription.open()) is not None:
                return batch
            left = deadline - monotonic()
            if left <= 0:
                break
            if owned:
                await self._idle.wait(left)
            else:
                await self._stop.sleep(min(STANDBY_INTERVAL, left))
        return None
