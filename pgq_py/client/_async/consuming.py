"""The calls of consumers: register, read, acknowledge, move."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from psycopg import AsyncCursor
from psycopg.rows import tuple_row

from pgq_py.client import queries
from pgq_py.client._async import calls
from pgq_py.client._async.connections import AsyncConnections
from pgq_py.client._async.looping import AsyncBatches
from pgq_py.client.checks import (
    check_delay,
    check_name,
    check_positive,
    check_seconds,
    check_target,
    check_target_text,
)
from pgq_py.client.encoding import plain_text
from pgq_py.client.rows import Received, read_lightly, received
from pgq_py.errors import translate
from pgq_py.types import BatchId, EventId, Nacked, TickId

__all__ = ["AsyncConsuming"]


class AsyncConsuming(AsyncConnections):
    """The calls of consumers.

    Those that change a consumer's position need READ COMMITTED, also on a connection of the caller's.
    """

    async def register_consumer(
        self, queue: str, consumer: str, *, at: int | str | datetime | None = None, conn: Any = None
    ) -> bool:
        """Register a consumer; True when it is new.

        A new consumer reads what is sent from now on, or with `at` from a position as in `seek`. One that exists stays
        where it is, unless `at` says otherwise.
        """
        names = check_name(queue, "queue"), check_name(consumer, "consumer")
        target = None if at is None else check_target(at)
        async with self.transaction(conn) as own:
            new = bool(await calls.value(own, queries.REGISTER_CONSUMER, names))
            if target is not None:
                await calls.value(own, queries.seek(target), [*names, target])
        return new

    async def unregister_consumer(self, queue: str, consumer: str, *, conn: Any = None) -> bool:
        """Forget a consumer and its position; False when it was not registered."""
        names = check_name(queue, "queue"), check_name(consumer, "consumer")
        async with self._connection(conn) as own:
            return bool(await calls.value(own, queries.UNREGISTER_CONSUMER, names))

    async def seek(self, queue: str, consumer: str, to: int | str | datetime, *, conn: Any = None) -> TickId:
        """Move a consumer to a tick id, to 'earliest' or 'latest', or to a time; returns the tick it is at now.

        An open batch is given up. Raises PositionGone for what is no longer, or not yet, in the log.
        """
        names = check_name(queue, "queue"), check_name(consumer, "consumer")
        target = check_target(to)
        async with self._connection(conn) as own:
            return TickId(await calls.value(own, queries.seek(target), [*names, target]))

    async def seek_target(self, queue: str, consumer: str, target: int | str | datetime, *, conn: Any = None) -> TickId:
        """Where `seek` would go; moves nothing. `target` may also be a tick or a time as text."""
        target = check_target_text(target)
        text = target.isoformat() if isinstance(target, datetime) else str(target)
        names = check_name(queue, "queue"), check_name(consumer, "consumer")
        async with self._connection(conn) as own:
            return TickId(await calls.value(own, queries.SEEK_TARGET, [*names, text]))

    async def nack(  # noqa: PLR0917 - the database function's order
        self,
        queue: str,
        consumer: str,
        batch_id: BatchId,
        event_ids: Iterable[EventId],
        reason: str | None = None,
        retry_in: timedelta | None = None,
        *,
        dead: bool = False,
        conn: Any = None,
    ) -> Nacked:
        """Say of unacknowledged events of the open batch that they failed; then acknowledge it as usual.

        Each comes again, to this consumer alone: after `retry_in`, or when the retry policy says. When its retries are
        used up, or at once with `dead=True`, it becomes a dead letter with this reason. Raises InvalidArgument for an
        event that is not in the batch, BatchNotFound when that is not open; nothing is done then.
        """
        names = check_name(queue, "queue"), check_name(consumer, "consumer")
        delay = None if retry_in is None else check_delay(retry_in, "retry_in")
        parameters = [*names, batch_id, list(event_ids), plain_text(reason, "reason"), delay, dead]
        async with self._connection(conn) as own:
            ((retried, buried),) = await calls.rows(own, queries.NACK, parameters)
        return Nacked(retried, buried)

    def batches(
        self, queue: str, consumer: str, *, wait: float | None = None, max_events: int | None = None
    ) -> AsyncBatches:
        """The explicit loop: `async with client.batches(...) as batches: async for batch in batches: ...`.

        `wait` is how many seconds to wait for the next batch before the loop ends; None waits for ever, 0 ends it when
        nothing is waiting. Waiting tick windows are merged to batches of about `max_events` events (a window is never
        cut, so a batch can be larger; it is streamed).
        """
        return AsyncBatches(
            self.settings,
            check_name(queue, "queue"),
            check_name(consumer, "consumer"),
            None if wait is None else check_seconds(wait, "wait"),
            self.settings.batch_events if max_events is None else check_positive(max_events, "max_events"),
        )

    async def receive(self, queue: str, consumer: str, max_events: int = 100, *, conn: Any = None) -> Received:
        """The next events, at most `max_events`; the same ones again until `ack` of their `batch_id`."""
        parameters = [check_name(queue, "queue"), check_name(consumer, "consumer")]
        check_positive(max_events, "max_events")
        async with self._connection(conn) as own:
            with translate():
                async with AsyncCursor(own, row_factory=tuple_row) as cursor:
                    read_lightly(cursor)
                    await cursor.execute(queries.RECEIVE, [*parameters, max_events], binary=True)
                    return received(await cursor.fetchall())

    async def ack(
        self, queue: str, consumer: str, batch_id: BatchId, up_to: EventId | None = None, *, conn: Any = None
    ) -> bool:
        """Acknowledge what `receive` handed out, or with `up_to` the part up to that event.

        True when that finished the batch. Raises BatchNotFound, and acknowledges nothing, when the batch is not the
        consumer's open one.
        """
        parameters = [check_name(queue, "queue"), check_name(consumer, "consumer"), batch_id, up_to]
        async with self._connection(conn) as own:
            return bool(await calls.value(own, queries.ACK, parameters))
