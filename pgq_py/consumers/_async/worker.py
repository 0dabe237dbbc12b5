"""One worker: a handler, its subscription, and a connection that is made anew whenever it is lost.

**At least once**: an event is acknowledged after its handler has returned. Acknowledgements are batched by time, so a
crash repeats about a second of work. What failed is said together with the acknowledgement.

**Exactly once**: the handler's writes and the acknowledgement are one READ COMMITTED transaction, so either both happen
or neither does. Each transaction locks the subscription first and makes sure that it stands where this worker believes:
two workers that both take themselves for the owner do not do anything twice, they take turns. When an event fails, the
transaction is rolled back and repeated up to that event, which is passed over: as if there were a savepoint around each
call, but without the cost, to this worker and (past 64 in a transaction) to every other session's snapshots.

A call with many events that fails is narrowed down to those of its events on which it fails.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from time import monotonic
from typing import Any

from psycopg import AsyncConnection, Error, OperationalError
from psycopg.errors import DeadlockDetected, SerializationFailure
from psycopg.pq import TransactionStatus

from pgq_py.client import queries
from pgq_py.client._async import calls
from pgq_py.client._async.batches import FETCH_ROWS, AsyncBatch
from pgq_py.client._async.connections import connect_until_async
from pgq_py.client._async.idling import AsyncIdle
from pgq_py.client._async.subscription import STANDBY_INTERVAL, AsyncSubscription
from pgq_py.client.acompat import AsyncStop
from pgq_py.client.backoff import Backoff
from pgq_py.consumers._async.calling import AsyncCaller
from pgq_py.consumers._async.registering import readmit_async
from pgq_py.consumers.failures import (
    CallFailed,
    Failure,
    Failures,
    Interrupted,
    failure_of,
    grouped,
    is_nobodys_fault,
)
from pgq_py.consumers.spec import ConsumerSpec
from pgq_py.errors import ConnectionFailed, ConsumerNotRegistered, PgqError, SlotClosed
from pgq_py.settings import Settings
from pgq_py.types import Event

__all__ = ["AsyncWorker"]

logger = logging.getLogger("pgq_py.consumers")

PROGRESS_INTERVAL = 1.0
"""Seconds of work that a crash may repeat (at least once)."""


class _Again(Exception):
    """The transaction is to be repeated with what has been learned from it."""


class AsyncWorker:
    """Runs one consumer until stopped. It survives everything but the end of its process, and its eviction."""

    def __init__(self, settings: Settings, spec: ConsumerSpec, stop: AsyncStop) -> None:
        self._settings, self._spec, self._stop = settings, spec, stop
        self._max_events = spec.max_events or settings.batch_events
        self._limit = self._max_events
        self._backoff = Backoff()
        self._caller = AsyncCaller(spec)
        self._batch: AsyncBatch | None = None
        self._failures: Failures = {}
        self._name = f"{spec.queue}/{spec.name}"

    async def run(self) -> None:
        """Return when stopped: at once while waiting, after the current call of the handler otherwise.

        Raises ConsumerNotRegistered when the consumer was evicted, unless it is to be registered again.
        """
        while not self._stop.is_set():
            conn = await connect_until_async(self._settings, self._spec.name, self._stop)
            if conn is None:
                return
            try:
                await self._session(conn)
            except (ConnectionFailed, OperationalError) as exc:
                logger.warning("%s: connection lost, connecting again: %s", self._name, exc)
                await self._stop.sleep(min(self._backoff.next(), 1.0))
            except ConsumerNotRegistered:
                raise
            except Exception as exc:
                pause = self._backoff.next()
                logger.exception("%s: %s; going on in %.1f s", self._name, exc, pause)
                await self._stop.sleep(pause)
            finally:
                await conn.close()

    async def _session(self, conn: AsyncConnection[Any]) -> None:
        """Own the subscription, or stand by, for as long as the connection lasts."""
        # a handler in the transaction has the connection for itself
        ahead = not self._spec.exactly_once
        subscription = AsyncSubscription(conn, self._spec.queue, self._spec.name, self._max_events, ahead=ahead)
        idle = AsyncIdle(subscription, self._stop, self._settings)
        self._failures = {}
        try:
            while not self._stop.is_set():
                if not await subscription.own():
                    await self._stop.sleep(STANDBY_INTERVAL)
                    continue
                try:
                    await self._turn(subscription, idle)
                except ConsumerNotRegistered as exc:
                    await readmit_async(conn, self._spec, exc)
                except (SlotClosed, SerializationFailure, DeadlockDetected) as exc:
                    # a ring rotated at that moment: the transaction is to be repeated, and nothing else
                    logger.debug("%s: once more: %s", self._name, exc)
                    self._failures = {}
        finally:
            await subscription.disown()

    async def _turn(self, subscription: AsyncSubscription, idle: AsyncIdle) -> None:
        """Work off what is there, then wait for more; or pause after a call without an outcome."""
        try:
            worked = await self._drain(subscription, idle)
        except Interrupted:
            await self._stop.sleep(0 if subscription.conn.broken else self._backoff.next())
            return
        if worked:
            idle.found()
        await idle.wait()

    async def _drain(self, subscription: AsyncSubscription, idle: AsyncIdle) -> bool:
        """Handle all that waits, batch after batch; False when there was nothing."""
        step = self._exactly_once if self._spec.exactly_once else self._at_least_once
        self._batch = None
        worked = False
        while not self._stop.is_set() and await step(subscription):
            worked = True
            # in a rush more has come meanwhile, and nobody will say so
            subscription.in_rush = idle.ticks
            self._backoff.reset()
        return worked

    # -- exactly once --------------------------------------------------------------------------------------------------

    async def _exactly_once(self, subscription: AsyncSubscription) -> bool:
        """One transaction, or an attempt of one from which the next attempt learns; False when nothing waits."""
        batch, self._batch = self._batch, None
        done: list[Event] = []
        if batch is None:
            await subscription.tick_announced()
        try:
            async with calls.transaction(subscription.conn):
                batch = await subscription.resume(batch)
                if batch is None:
                    return False
                done = await self._transact(subscription, batch)
        except _Again:
            return True
        except (Error, PgqError) as exc:
            if not done or is_nobodys_fault(exc):
                raise
            logger.error("%s: the transaction of %d events cannot be committed: %s", self._name, len(done), exc)
            self._narrow(done, done, CallFailed(failure_of(exc)))
            return True
        self._batch = None if batch.exhausted else batch
        self._failures = {}
        self._limit = min(self._max_events, self._limit * 2) if self._spec.batch else self._max_events
        return True

    async def _transact(self, subscription: AsyncSubscription, batch: AsyncBatch) -> list[Event]:
        """In a transaction: the next events, at most `max_events`, what fails of them, and their acknowledgement."""
        events = await batch.fetch(self._limit)
        failures = await self._apply(events, subscription.conn)
        await self._say(subscription, batch, failures)
        await batch.leave()
        return events

    async def _apply(self, events: list[Event], conn: AsyncConnection[Any]) -> Failures:
        """Call the handler with the events, but for those of which it is known that they fail."""
        known = {event.id: self._failures[event.id] for event in events if event.id in self._failures}
        failures = dict(known)
        position = 0
        for unit in self._units([event for event in events if event.id not in known]):
            try:
                failures |= await self._call(unit, conn)
            except CallFailed as failed:
                self._narrow(events, unit, failed)
                raise _Again from failed
            except Interrupted:
                # The next transaction ends ahead of it, so that the others are done.
                self._limit = position or self._limit
                raise
            position = events.index(unit[-1], position) + 1
        return failures

    def _narrow(self, events: list[Event], unit: list[Event], failed: CallFailed) -> None:
        """A call failed: note the failure of an event, or look at fewer, so that the next attempt gets further."""
        if len(unit) > 1 and not failed.chosen:
            self._limit = len(unit) // 2
        else:
            self._failures.update((event.id, failed.failure) for event in unit)
            self._limit = events.index(unit[-1]) + 1

    # -- at least once -------------------------------------------------------------------------------------------------

    async def _at_least_once(self, subscription: AsyncSubscription) -> bool:
        """One batch, acknowledged as it goes and, whatever happens, as far as it went."""
        batch = await subscription.open(lightly=True)
        if batch is None:
            return False
        done: Event | None = None
        last_ack = monotonic()
        try:
            while events := await batch.fetch(self._max_events if self._spec.batch else FETCH_ROWS):
                for unit in self._units(events):
                    self._failures |= await self._try(unit)
                    done = unit[-1]
                    if self._stop.is_set():
                        return True
                    if monotonic() - last_ack >= PROGRESS_INTERVAL:
                        await self._settle(subscription, batch, done)
                        done, last_ack = None, monotonic()
            done = None
            await self._settle(subscription, batch, None)
        finally:
            if done is not None:
                await self._settle(subscription, batch, done)
        return True

    async def _try(self, unit: list[Event]) -> Failures:
        """Call the handler, again with half as many events where that is needed to find those on which it fails."""
        try:
            return await self._call(unit)
        except CallFailed as failed:
            if len(unit) == 1 or failed.chosen:
                return {event.id: failed.failure for event in unit}
        if self._stop.is_set():
            raise Interrupted
        half = len(unit) // 2
        return await self._try(unit[:half]) | await self._try(unit[half:])

    async def _settle(self, subscription: AsyncSubscription, batch: AsyncBatch, up_to: Event | None) -> None:
        """Say what failed and acknowledge, both or neither."""
        failures, self._failures = self._failures, {}
        if not failures:
            await batch.ack(up_to)
            return
        async with calls.transaction(await subscription.free()):
            await batch.ensure_open()
            await self._say(subscription, batch, failures)
            await batch.ack(up_to)

    # -- both ----------------------------------------------------------------------------------------------------------

    def _units(self, events: list[Event]) -> Iterator[list[Event]]:
        """The events of each call."""
        if not self._spec.batch:
            return ([event] for event in events)
        return iter([events] if events else [])

    async def _call(self, unit: list[Event], *tx: AsyncConnection[Any]) -> Failures:
        failures = await (self._caller.many(unit, *tx) if self._spec.batch else self._caller.one(unit[0], *tx))
        if tx and tx[0].pgconn.transaction_status == TransactionStatus.INERROR:
            logger.error(
                "%s: the handler passed over an error of its transaction, which makes all of it void", self._name
            )
            raise CallFailed(Failure("the handler passed over an error of its transaction"))
        return failures

    async def _say(self, subscription: AsyncSubscription, batch: AsyncBatch, failures: Failures) -> None:
        """Tell the database what failed, in the caller's transaction."""
        spec = self._spec
        for failure, ids in grouped(failures):
            parameters = [spec.queue, spec.name, batch.id, ids, failure.reason, failure.retry_in, failure.dead]
            ((retried, dead),) = await calls.rows(subscription.conn, queries.NACK, parameters)
            if dead:
                logger.error("%s: %d events are dead letters now: %s", self._name, dead, failure.reason)
            elif retried:
                logger.info("%s: %d events will come again", self._name, retried)
