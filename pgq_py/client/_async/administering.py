"""The calls of operators and of the ticker: queues, ticks, rotation, and what is going on."""

from __future__ import annotations

from typing import Any

from pgq_py.client import queries
from pgq_py.client._async import calls
from pgq_py.client._async.connections import AsyncConnections
from pgq_py.client.checks import check_name, check_positive
from pgq_py.client.encoding import plain_text
from pgq_py.errors import BatchNotFound, ConsumerNotRegistered, QueueNotFound
from pgq_py.types import BatchId, BatchInfo, ConsumerInfo, QueueInfo, RingBlocker, RingInfo, TickId

__all__ = ["AsyncAdministering"]


class AsyncAdministering(AsyncConnections):
    """One method per database function, with its arguments and its answer as a Python value."""

    async def create_queue(self, queue: str, slots: int = 3, *, conn: Any = None) -> bool:
        """Create a queue; False when it was there. More slots (3 to 64) are for one that keeps consumed events."""
        parameters = [check_name(queue, "queue"), check_positive(slots, "slots")]
        async with self._connection(conn) as own:
            return bool(await calls.value(own, queries.CREATE_QUEUE, parameters))

    async def drop_queue(self, queue: str, *, force: bool = False, conn: Any = None) -> None:
        """Drop a queue and its events. Raises ConsumersAttached while it has consumers, unless forced."""
        async with self._connection(conn) as own:
            await calls.value(own, queries.DROP_QUEUE, [check_name(queue, "queue"), force])

    async def set_queue_config(
        self, queue: str, parameter: str, value: str | float | None, *, conn: Any = None
    ) -> None:
        """Set one of a queue's settings; None takes it back to its default."""
        text = None if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        parameters = [check_name(queue, "queue"), plain_text(parameter, "parameter"), plain_text(text, "value")]
        async with self._connection(conn) as own:
            await calls.value(own, queries.SET_QUEUE_CONFIG, parameters)

    async def pause_queue(self, queue: str, *, conn: Any = None) -> bool:
        """Stop delivery while events are accepted and kept; False when it was paused already."""
        async with self._connection(conn) as own:
            return bool(await calls.value(own, queries.PAUSE_QUEUE, [check_name(queue, "queue")]))

    async def resume_queue(self, queue: str, *, conn: Any = None) -> bool:
        """Deliver again; False when the queue was not paused."""
        async with self._connection(conn) as own:
            return bool(await calls.value(own, queries.RESUME_QUEUE, [check_name(queue, "queue")]))

    async def grant_produce(self, queue: str, role: str, *, conn: Any = None) -> None:
        """Let a role send to this queue."""
        await self._administer(queries.GRANT_PRODUCE, conn, queue=queue, role=role)

    async def revoke_produce(self, queue: str, role: str, *, conn: Any = None) -> None:
        """Undo `grant_produce`."""
        await self._administer(queries.REVOKE_PRODUCE, conn, queue=queue, role=role)

    async def grant_consume(self, queue: str, consumer: str, role: str, *, conn: Any = None) -> bool:
        """Let a role act as this consumer of this queue; False when it may already."""
        return await self._administer(queries.GRANT_CONSUME, conn, queue=queue, consumer=consumer, role=role)

    async def revoke_consume(self, queue: str, consumer: str, role: str, *, conn: Any = None) -> bool:
        """Undo `grant_consume`; False when it was not granted."""
        return await self._administer(queries.REVOKE_CONSUME, conn, queue=queue, consumer=consumer, role=role)

    async def wake(self, queue: str, *, conn: Any = None) -> None:
        """Tell a sleeping ticker of events that came by a COPY of the caller's own; `send` does it by itself."""
        async with self._connection(conn) as own:
            await calls.command(own, queries.WAKE, [check_name(queue, "queue")])

    async def _administer(self, statement: str, conn: Any, **names: str) -> bool:
        parameters = [check_name(name, what) for what, name in names.items()]
        async with self._connection(conn) as own:
            return bool(await calls.value(own, statement, parameters))

    async def tick(self, queue: str, *, conn: Any = None) -> TickId | None:
        """Tick a queue if that is due; the tick's id, or None. Raises QueuePaused, ExternalTicker."""
        async with self._connection(conn) as own:
            tick: TickId | None = await calls.value(own, queries.TICK, [check_name(queue, "queue")])
            return tick

    async def tick_all(self, *, conn: Any = None) -> int:
        """Tick every queue for which that is due; how many ticks it made."""
        async with self._connection(conn) as own:
            return int(await calls.value(own, queries.TICK_ALL))

    async def poke(self, queue: str, *, conn: Any = None) -> TickId | None:
        """As `tick`, but gives way to whoever is ticking, and to a pause, without an error."""
        async with self._connection(conn) as own:
            tick: TickId | None = await calls.value(own, queries.POKE, [check_name(queue, "queue")])
            return tick

    async def force_tick(self, queue: str, *, conn: Any = None) -> TickId:
        """Tick a queue, due or not; the tick's id."""
        async with self._connection(conn) as own:
            return TickId(await calls.value(own, queries.FORCE_TICK, [check_name(queue, "queue")]))

    async def queues_due(self, *, conn: Any = None) -> list[str]:
        """The queues for which a tick is due; reads only."""
        async with self._connection(conn) as own:
            return await calls.values(own, queries.QUEUES_DUE, [None])

    async def rotate_queue(self, queue: str, *, conn: Any = None) -> str:
        """Do the next rotation step now, whatever the rotation period; says which: 'closed', 'truncated', 'switched',
        or why not: 'blocked', 'waiting', 'idle', 'busy'."""
        async with self._connection(conn) as own:
            return str(await calls.value(own, queries.ROTATE_QUEUE, [check_name(queue, "queue")]))

    async def version(self, *, conn: Any = None) -> str:
        """The version of the schema in the database."""
        async with self._connection(conn) as own:
            return str(await calls.value(own, queries.VERSION))

    async def queues(self, *, conn: Any = None) -> list[QueueInfo]:
        """All queues."""
        async with self._connection(conn) as own:
            return await calls.records(own, QueueInfo, queries.QUEUES_INFO)

    async def queue_info(self, queue: str, *, conn: Any = None) -> QueueInfo:
        """One queue. Raises QueueNotFound."""
        async with self._connection(conn) as own:
            rows = await calls.records(own, QueueInfo, queries.QUEUE_INFO, [check_name(queue, "queue")])
        if not rows:
            raise QueueNotFound(f"no such queue: {queue}")
        return rows[0]

    async def consumers(self, queue: str | None = None, *, conn: Any = None) -> list[ConsumerInfo]:
        """All consumers, or those of one queue."""
        async with self._connection(conn) as own:
            if queue is None:
                return await calls.records(own, ConsumerInfo, queries.CONSUMERS_INFO)
            return await calls.records(own, ConsumerInfo, queries.QUEUE_CONSUMERS_INFO, [check_name(queue, "queue")])

    async def consumer_info(self, queue: str, consumer: str, *, conn: Any = None) -> ConsumerInfo:
        """One consumer of one queue. Raises ConsumerNotRegistered."""
        names = check_name(queue, "queue"), check_name(consumer, "consumer")
        async with self._connection(conn) as own:
            rows = await calls.records(own, ConsumerInfo, queries.CONSUMER_INFO, names)
        if not rows:
            raise ConsumerNotRegistered(f"no such consumer: {queue}/{consumer}")
        return rows[0]

    async def batch_info(self, batch_id: BatchId, *, conn: Any = None) -> BatchInfo:
        """One open batch. Raises BatchNotFound."""
        async with self._connection(conn) as own:
            rows = await calls.records(own, BatchInfo, queries.BATCH_INFO, [batch_id])
        if not rows or not rows[0].queue_name:
            raise BatchNotFound(f"no such batch: {batch_id}")
        return rows[0]

    async def rings(self, *, conn: Any = None) -> list[RingInfo]:
        """The state of every ring."""
        async with self._connection(conn) as own:
            return await calls.records(own, RingInfo, queries.RING_INFO)

    async def ring_blockers(self, *, conn: Any = None) -> list[RingBlocker]:
        """Who holds a lock on a slot, and so may keep a rotation step waiting."""
        async with self._connection(conn) as own:
            return await calls.records(own, RingBlocker, queries.RING_BLOCKERS)
