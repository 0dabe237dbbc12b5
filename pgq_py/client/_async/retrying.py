"""What happens to events that fail: how often they come again, and what becomes of those that are given up."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from pgq_py.client import queries
from pgq_py.client._async import calls
from pgq_py.client._async.connections import AsyncConnections
from pgq_py.client.checks import check_delay, check_name, check_positive
from pgq_py.client.encoding import plain_text
from pgq_py.client.rows import retry_policy_parameters
from pgq_py.errors import DeadLetterNotFound
from pgq_py.types import DeadLetter, DeadLetterId, DelayInfo, EventId, RetryPolicy

__all__ = ["AsyncRetrying"]


class AsyncRetrying(AsyncConnections):
    """Retry policies and dead letters. Where a filter is None, anything passes it. The consumer of jobs is ''."""

    async def set_retry_policy(
        self, queue: str, policy: RetryPolicy, consumer: str | None = None, *, conn: Any = None
    ) -> None:
        """Set the policy of a consumer, or of all consumers of the queue that have none of their own."""
        name = None if consumer is None else check_name(consumer, "consumer")
        parameters = [check_name(queue, "queue"), name, *retry_policy_parameters(policy)]
        async with self._connection(conn) as own:
            await calls.value(own, queries.SET_RETRY_POLICY, parameters)

    async def dead_letters(
        self,
        queue: str | None = None,
        consumer: str | None = None,
        type: str | None = None,  # noqa: A002 - the column's name
        limit: int = 100,
        after: DeadLetterId | None = None,
        *,
        conn: Any = None,
    ) -> list[DeadLetter]:
        """Dead letters in the order in which they were given up, at most `limit` of those numbered above `after`."""
        filters = _filters(queue, consumer, type)
        parameters = [value for value in filters for _ in range(2)]
        async with self._connection(conn) as own:
            page = [after or 0, check_positive(limit, "limit")]
            return await calls.records(own, DeadLetter, queries.DEAD_LETTERS, parameters + page)

    async def dead_letter(self, dl_id: DeadLetterId, *, conn: Any = None) -> DeadLetter:
        """One of them. Raises DeadLetterNotFound."""
        async with self._connection(conn) as own:
            rows = await calls.records(own, DeadLetter, queries.DEAD_LETTER, [dl_id])
        if not rows:
            raise DeadLetterNotFound(f"no such dead letter: {dl_id}")
        return rows[0]

    async def replay(self, dl_id: DeadLetterId, *, conn: Any = None) -> EventId:
        """Deliver the event again, to the consumer that gave it up, with no retries counted.

        Raises DeadLetterNotFound when it was replayed or purged already, QueueNotFound or ConsumerNotRegistered when
        there is nobody to deliver it to.
        """
        async with self._connection(conn) as own:
            return EventId(await calls.value(own, queries.REPLAY, [dl_id]))

    async def replay_all(
        self,
        queue: str,
        consumer: str | None = None,
        type: str | None = None,  # noqa: A002
        *,
        conn: Any = None,
    ) -> int:
        """The same for all dead letters of a queue that pass the filters, or for none of them; how many."""
        check_name(queue, "queue")
        async with self._connection(conn) as own:
            return int(await calls.value(own, queries.REPLAY_ALL, _filters(queue, consumer, type)))

    async def purge(
        self,
        queue: str | None = None,
        consumer: str | None = None,
        type: str | None = None,  # noqa: A002
        older_than: timedelta | None = None,
        ids: Iterable[DeadLetterId] | None = None,
        *,
        conn: Any = None,
    ) -> int:
        """Drop dead letters for good, all that pass every filter: without any, all there are. How many."""
        age = None if older_than is None else check_delay(older_than, "older_than")
        parameters = [*_filters(queue, consumer, type), age, None if ids is None else list(ids)]
        async with self._connection(conn) as own:
            return int(await calls.value(own, queries.PURGE, parameters))

    async def delay_info(self, *, conn: Any = None) -> list[DelayInfo]:
        """What waits for its time, and how many dead letters there are, of every queue. Counts them one by one."""
        async with self._connection(conn) as own:
            return await calls.records(own, DelayInfo, queries.DELAY_INFO)


def _filters(queue: str | None, consumer: str | None, event_type: str | None) -> list[str | None]:
    return [
        None if queue is None else check_name(queue, "queue"),
        check_name(consumer, "consumer") if consumer else consumer,
        plain_text(event_type, "type"),
    ]
