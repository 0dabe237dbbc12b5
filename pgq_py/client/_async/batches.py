"""Batches as a consumer reads them: streamed, and acknowledged piece by piece.

A batch may hold millions of events (one tick window is never cut), so it is read through a cursor, some thousand events
at a time. The cursor is declared WITH HOLD: while the first rows are all there is, which is the common case, this costs
nothing; a larger rest is spooled by the server at the commit. After that neither a snapshot nor a lock on the log's
slots is held however long the consumer takes, and acknowledgements commit on the same connection in between. It also
means that reading needs a session of its own. Behind PgBouncer, which shares sessions out by transaction, as many
events as fit into memory are read in the transaction that opens the batch; what is left comes with the next opening.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING

from pgq_py.types import BatchId, Event, EventId, OpenBatch

if TYPE_CHECKING:
    from pgq_py.client._async.subscription import AsyncSubscription

__all__ = ["AsyncBatch"]

FETCH_ROWS = 2_000
"""What `fetch` returns at most, unless told."""


class AsyncBatch:
    """One open batch. Iterate over it for its events, in `id` order, each once.

    What a loop or `fetch` has not handed out yet can be read later from the same object. `ack` records progress;
    whoever gave the batch out says when the rest is acknowledged.
    """

    def __init__(self, subscription: AsyncSubscription, info: OpenBatch) -> None:
        self.info = info
        self._subscription = subscription
        self._more = True
        self._chunk: list[Event] = []
        self._unread: Iterator[Event] = iter(())
        self._handed: EventId | None = None
        self._acked = info.position
        self._end: EventId | None = None
        self._read_out = False
        self._finished = False

    def __repr__(self) -> str:
        where = f"{self._subscription.queue}/{self._subscription.consumer}"
        return f"<{type(self).__name__} {self.id} of {where}>"

    @property
    def id(self) -> BatchId:
        return self.info.batch_id

    @property
    def _peeked(self) -> bool:
        """Its events were read, but it is not open."""
        return self.id < 0

    async def __aiter__(self) -> AsyncIterator[Event]:
        while await self.look_ahead():
            for event in self._unread:
                yield event
        self._read_out = True

    async def fetch(self, limit: int = FETCH_ROWS) -> list[Event]:
        """The next events, fewer than `limit` only at the end of the batch."""
        events: list[Event] = []
        while len(events) < limit and await self.look_ahead():
            events += islice(self._unread, limit - len(events))
        self._read_out = self.exhausted
        return events

    @property
    def exhausted(self) -> bool:
        """No event is left to be fetched."""
        return not self._more and not length_hint(self._unread)

    async def ack(self, event: Event | EventId | None = None) -> None:
        """Acknowledge the batch up to and including this event, or all of it; the rest stays open.

        Raises BatchNotFound when another process has finished the batch or moved the consumer.
        """
        up_to = event.id if isinstance(event, Event) else event or self._end
        if self._peeked and up_to is None:
            self._finished = await self._subscription.ack_peeked(self.info)
        else:
            await self.ensure_open()
            self._finished = await self._subscription.ack(self.id, up_to)
        self._acked = up_to

    async def ensure_open(self) -> None:
        """Open the batch if it was only peeked at: to acknowledge a part of it, or to nack some of its events."""
        if self._peeked:
            self.info = await self._subscription.open_peeked(self.info)

    async def leave(self) -> None:
        """Acknowledge what has been handed out, unless `ack` has finished the batch.

        A batch of which nothing was read is acknowledged whole: that is how one is skipped.
        """
        if self._finished:
            return
        handed = self._handed_out()
        if self._read_out or handed is None:
            await self.ack()
        elif handed != self._acked:
            await self.ack(handed)

    def continues_at(self, info: OpenBatch) -> bool:
        """Whether that is this batch, acknowledged exactly as far as this object knows."""
        return info.batch_id == self.id and info.position == self._acked

    async def look_ahead(self) -> bool:
        """Have at least one event in memory that has not been handed out; False at the end of the batch."""
        if length_hint(self._unread):
            return True
        self._handed = self._handed_out()
        self._chunk = await self._subscription.stream() if self._more else []
        self._unread = iter(self._chunk)
        if self._more and self._subscription.at_end:
            self._more = False
            await self._subscription.close_cursor()
        return bool(self._chunk)

    def has_all(self, events: list[Event]) -> None:
        """These are all the events that are left."""
        self._chunk, self._unread = events, iter(events)
        self._more = False

    async def read_at_once(self, limit: int) -> None:
        """Have the next events in memory, and the cursor closed: the next transaction may be in another session.

        When there are more of them, this batch ends at the last one read, and `ack` without an event goes so far.
        """
        self._chunk = await self._subscription.fetch(limit)
        self._unread = iter(self._chunk)
        self._more = False
        self._end = self._chunk[-1].id if len(self._chunk) == limit else None
        await self._subscription.close_cursor()

    def _handed_out(self) -> EventId | None:
        """The last event handed out. How far a loop has come is asked of the iterator, so that the loop need not keep
        book for each event."""
        taken = len(self._chunk) - length_hint(self._unread)
        return self._chunk[taken - 1].id if taken else self._handed
