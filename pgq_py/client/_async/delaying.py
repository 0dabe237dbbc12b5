"""Events for later: in the queue's delay ring until their time has come, by the database's clock.

The ticker releases them, or a consumer that finds no ticker. Sending for later costs more than sending: one call per
event, or one insert per chunk where all have one type and no extras.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, TypeAlias

from psycopg import AsyncConnection

from pgq_py.client import queries
from pgq_py.client._async import calls
from pgq_py.client._async.connections import AsyncConnections
from pgq_py.client.acompat import AsyncItems, aslices
from pgq_py.client.checks import check_items, check_name, check_positive
from pgq_py.client.encoding import Row, event_row, plain_text
from pgq_py.errors import SlotClosed
from pgq_py.types import EventId

__all__ = ["ATTEMPTS", "AsyncDelaying", "Due"]

Due: TypeAlias = tuple[datetime | None, timedelta | None]
"""A time, or a delay."""

ATTEMPTS = 10
"""How often a transaction of our own is run before a closed slot is reported. A second time is rare already."""

LARGEST_CHUNK = 1_000
"""Events per statement."""


class AsyncDelaying(AsyncConnections):
    """The calls about events for later. `send` and `send_many` come here when they are told of a time."""

    async def cancel_event(self, queue: str, event_id: EventId, *, conn: Any = None) -> bool:
        """Take back a delayed event; False when it does not wait: it never did, is delivered, or is cancelled."""
        async with self._connection(conn) as own:
            return bool(await calls.value(own, queries.CANCEL_EVENT, [check_name(queue, "queue"), event_id]))

    async def release(self, queue: str, *, conn: Any = None) -> int | None:
        """Put the delayed events that are due into the queue; how many, or None when no step was due."""
        async with self._connection(conn) as own:
            released: int | None = await calls.value(own, queries.RELEASE, [check_name(queue, "queue")])
            return released

    async def _send_later(self, queue: str, row: Row, due: Due, conn: Any) -> EventId:
        parameters = [check_name(queue, "queue"), *due, *row]
        return EventId(await self._run_again(queries.INSERT_EVENT_AT, parameters, conn))

    async def _send_many_later(
        self, queue: str, events: AsyncItems, due: Due, default_type: str | None, *, chunk_size: int, conn: Any
    ) -> int:
        check_items(events)
        name, default = check_name(queue, "queue"), plain_text(default_type, "type")
        sent = 0
        async for items in aslices(events, min(LARGEST_CHUNK, check_positive(chunk_size, "chunk_size"))):
            rows = [event_row(item, default) for item in items]
            if any(row[0] != rows[0][0] or row[2:] != _NO_EXTRAS for row in rows):
                columns = map(list, zip(*rows, strict=True))
                sent += await self._run_again(queries.INSERT_EVENTS_AT, [name, *due, *columns], conn)
            else:
                parameters = [name, *due, rows[0][0], [row[1] for row in rows]]
                sent += await self._run_again(queries.SEND_BATCH_AT, parameters, conn)
        return sent

    async def _run_again(self, statement: str, parameters: list[Any], conn: Any) -> int:
        """Run it, and while the slot was closed in between run it again, if the transaction is our own."""
        for _ in range(0 if conn is not None else ATTEMPTS - 1):
            try:
                async with self._connection() as own:
                    return await _number(own, statement, parameters)
            except SlotClosed:
                continue
        async with self._connection(conn) as own:
            return await _number(own, statement, parameters)


_NO_EXTRAS = (None, None, None, None)


async def _number(conn: AsyncConnection[Any], statement: str, parameters: list[Any]) -> int:
    return int(await calls.value(conn, statement, parameters))
