"""How a consumer waits for the next batch.

On a session of its own it listens: every tick of its queue wakes it. It also hears producers waking the ticker, and
ticks at once itself, in the call that opens the batch: the way through the ticker, another process, would be half as
long again. It knows until when a sleeping ticker is alive, which is as long as the ticker has asked to be woken. When
something is to be ticked and no tick comes, or when no ticker is asleep, it ticks the queue as well: a dead ticker
costs a quarter of a second, no more.

Behind a pooler nothing can be heard. Then it asks, often while there is traffic and less often the longer nothing
comes.
"""

from __future__ import annotations

from math import inf
from time import monotonic

from psycopg.sql import Identifier

from pgq_py.client import queries
from pgq_py.client._async import calls
from pgq_py.client._async.subscription import AsyncSubscription
from pgq_py.client.acompat import AsyncStop
from pgq_py.client.listening import Notices
from pgq_py.client.turns import Turns
from pgq_py.settings import Settings

__all__ = ["AsyncIdle"]

LONGEST_POLL = 0.5
"""Seconds between two polls when nothing has come for a while; a longer `poll_interval` is kept to."""


class AsyncIdle:
    """Waits on behalf of one subscription; `stop` ends a wait at once."""

    def __init__(self, subscription: AsyncSubscription, stop: AsyncStop, settings: Settings) -> None:
        self._subscription, self._stop = subscription, stop
        self._first_poll = settings.poll_interval
        self._self_tick_after = settings.self_tick_after
        self._notices: Notices | None = None
        self._channel = ""
        self._ticker_sleeps_until = 0.0
        self._turns = Turns()
        self.found()

    def found(self) -> None:
        """There was a batch: be attentive again."""
        self._poll = self._first_poll
        self._self_tick_at = inf
        self._last_found = monotonic()
        self._turns.found()

    @property
    def ticks(self) -> bool:
        """Whether it is this consumer that ticks for others, if any."""
        return self._notices is not None and self._turns.are_mine

    async def wait(self, at_most: float = inf) -> None:
        """Return when it is worth looking again, when stopped, or after `at_most` seconds."""
        if self._subscription.pooled:
            await self._wait_and_poll(at_most)
        elif self._notices is None:
            await self._listen()  # and look once more, for what came before
        else:
            await self._wait_and_listen(self._notices, monotonic() + at_most)

    async def _listen(self) -> None:
        conn = self._subscription.conn
        self._notices = Notices(conn)
        self._channel = await calls.value(conn, queries.TICK_CHANNEL, [self._subscription.queue])
        for channel in (self._channel, "pgq_wake"):
            await calls.command(conn, queries.LISTEN.format(Identifier(channel)))

    async def _wait_and_listen(self, notices: Notices, end: float) -> None:
        if monotonic() >= self._ticker_sleeps_until:
            await self._look_for_ticker()
        while not self._stop.is_set():
            if self._worth_looking(notices):
                return
            now = monotonic()
            if now >= self._self_tick_at:
                await self._self_tick()
                return
            if now >= self._ticker_sleeps_until:
                if not await self._look_for_ticker():
                    await self._self_tick()
                return  # also beside a ticker that is alive, to see whether queue and consumer are still there
            if now >= end:
                return
            wake_at = min(end, self._self_tick_at, self._ticker_sleeps_until)
            await self._stop.sleep_or_read(self._subscription.conn.fileno(), wake_at - now)

    def _worth_looking(self, notices: Notices) -> bool:
        """Whether there was a tick, or an event for which it is this consumer's turn to tick."""
        for channel, payload in notices.take():
            if channel == self._channel:
                self._turns.overtaken()
                return True
            if self._channel == f"pgq_tick_{payload}":
                self._self_tick_at = min(self._self_tick_at, monotonic() + self._self_tick_after)
                if self._turns.take():
                    self._subscription.announced = True
                    return True
        return False

    async def _look_for_ticker(self) -> bool:
        """Until when a ticker sleeps that producers would wake; if none does, until the next look. Whether one does."""
        asleep = await calls.value(self._subscription.conn, queries.WAKE_ARMED_MS) / 1000
        self._ticker_sleeps_until = monotonic() + max(asleep, self._self_tick_after)
        return bool(asleep > 0)

    async def _self_tick(self) -> None:
        self._self_tick_at = inf
        await self._subscription.poke()

    async def _wait_and_poll(self, at_most: float) -> None:
        stopped = await self._stop.sleep(min(self._poll, at_most))
        self._poll = max(self._first_poll, min(self._poll * 2, LONGEST_POLL))
        if not stopped and monotonic() - self._last_found >= self._self_tick_after:
            self._last_found = monotonic()
            if await self._subscription.poke():
                self.found()
