"""One worker: a handler, its subscription, and a connection that is made anew whenever it is lost.

**At least once**: an event is acknowledged after its handler has returned. Acknowledgements are batched by time, so a
crash repeats about a second of work, and a failing handler repeats just the event it failed on.

**Exactly once**: the handler's writes and the acknowledgement are one READ COMMITTED transaction, so either both happen
or neither does. Each transaction locks the subscription first and makes sure that it stands where this worker believes:
two workers that both take themselves for the owner do not do anything twice, they take turns.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from time import monotonic
from typing import Any

from psycopg import AsyncConnection, OperationalError

from pgq_py.client import queries
from pgq_py.client._async import calls
from pgq_py.client._async.batches import FETCH_ROWS, AsyncBatch
from pgq_py.client._async.connections import connect_async, connect_until_async
from pgq_py.client._async.idling import AsyncIdle
from pgq_py.client._async.subscription import STANDBY_INTERVAL, AsyncSubscription
from pgq_py.client.acompat import AsyncStop
from pgq_py.consumers.backoff import Backoff
from pgq_py.consumers.spec import ConsumerSpec
from pgq_py.errors import ConnectionFailed
from pgq_py.settings import Settings
from pgq_py.types import Event

__all__ = ["AsyncWorker", "register_async"]

logger = logging.getLogger("pgq_py.consumers")

PROGRESS_INTERVAL = 1.0
"""Seconds of work that a crash may repeat (at least once)."""


class _HandlerFailed(Exception):
    """The handler raised, which is logged already; `done` events of its transaction had gone well."""

    def __init__(self, done: int) -> None:
        super().__init__(done)
        self.done = done


async def register_async(settings: Settings, specs: Iterable[ConsumerSpec]) -> None:
    """Register the consumers that are not; raises what is wrong with the server, the schema or a queue."""
    conn = await connect_async(settings, "")
    try:
        for spec in specs:
            await calls.value(conn, queries.REGISTER_CONSUMER, [spec.queue, spec.name])
    finally:
        await conn.close()


class AsyncWorker:
    """Runs one consumer until stopped. It survives everything but the end of its process."""

    def __init__(self, settings: Settings, spec: ConsumerSpec, stop: AsyncStop) -> None:
        self._settings, self._spec, self._stop = settings, spec, stop
        self._max_events = spec.max_events or settings.batch_events
        self._limit = self._max_events
        self._backoff = Backoff()
        self._batch: AsyncBatch | None = None
        self._name = f"{spec.queue}/{spec.name}"

    async def run(self) -> None:
        """Return when stopped: at once while waiting, after the current call of the handler otherwise."""
        while not self._stop.is_set():
            conn = await connect_until_async(self._settings, self._spec.name, self._stop)
            if conn is None:
                return
            try:
                await self._session(conn)
            except (ConnectionFailed, OperationalError) as exc:
                logger.warning("%s: connection lost, connecting again: %s", self._name, exc)
                await self._stop.sleep(min(self._backoff.next(), 1.0))
            except Exception as exc:
                pause = self._backoff.next()
                logger.exception("%s: %s; going on in %.1f s", self._name, exc, pause)
                await self._stop.sleep(pause)
            finally:
                await conn.close()

    async def _session(self, conn: AsyncConnection[Any]) -> None:
        """Own the subscription, or stand by, for as long as the connection lasts."""
        spec = self._spec
        if await calls.value(conn, queries.REGISTER_CONSUMER, [spec.queue, spec.name]):
            logger.info("%s: registered; it reads what is sent from now on", self._name)
        subscription = AsyncSubscription(conn, spec.queue, spec.name, self._max_events)
        idle = AsyncIdle(subscription, self._stop, self._settings)
        while not self._stop.is_set():
            if not await subscription.own():
                await self._stop.sleep(STANDBY_INTERVAL)
                continue
            try:
                worked = await self._drain(subscription)
            except _HandlerFailed as failure:
                self._limit = failure.done or self._limit
                await self._stop.sleep(0 if conn.broken else self._backoff.next())
                continue
            if worked:
                idle.found()
            await idle.wait()

    async def _drain(self, subscription: AsyncSubscription) -> bool:
        """Handle all that waits, batch after batch; False when there was nothing."""
        step = self._exactly_once if self._spec.exactly_once else self._at_least_once
        self._batch = None
        worked = False
        while not self._stop.is_set() and await step(subscription):
            worked = True
            self._backoff.reset()
        return worked

    async def _exactly_once(self, subscription: AsyncSubscription) -> bool:
        """One transaction: the next events, at most `max_events`, and their acknowledgement.

        Should one of them fail, the next transaction ends ahead of it, so that the others are done.
        """
        conn = subscription.conn
        batch, self._batch = self._batch, None
        async with calls.transaction(conn):
            batch = await subscription.resume(batch)
            if batch is None:
                return False
            events = await batch.fetch(self._limit)
            for done, (argument, _) in enumerate(self._units(events)):
                await self._call(done, argument, conn)
            await batch.leave()
        self._batch = None if batch.exhausted else batch
        self._limit = self._max_events
        return True

    async def _at_least_once(self, subscription: AsyncSubscription) -> bool:
        """One batch, acknowledged as it goes and, whatever happens, as far as it went."""
        batch = await subscription.open()
        if batch is None:
            return False
        done: Event | None = None
        last_ack = monotonic()
        try:
            while events := await batch.fetch(self._max_events if self._spec.batch else FETCH_ROWS):
                for argument, last in self._units(events):
                    await self._call(0, argument)
                    done = last
                    if self._stop.is_set():
                        return True
                    if monotonic() - last_ack >= PROGRESS_INTERVAL:
                        await batch.ack(done)
                        done, last_ack = None, monotonic()
            done = None
            await batch.ack()
        finally:
            if done is not None:
                await batch.ack(done)
        return True

    def _units(self, events: list[Event]) -> Iterator[tuple[Event | list[Event], Event]]:
        """What the handler is called with, and the last event that this covers."""
        if not self._spec.batch:
            return zip(events, events, strict=True)
        return iter([(events, events[-1])] if events else [])

    async def _call(self, done: int, *arguments: Any) -> None:
        try:
            await self._spec.handler(*arguments)
        except Exception as exc:
            logger.exception("%s: the handler failed and will be called again: %r", self._name, exc)
            raise _HandlerFailed(done) from exc
