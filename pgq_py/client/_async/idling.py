"""How a consumer waits for the next batch. This one polls; a wake-up by LISTEN would be another class of this shape.

It asks often while there is traffic and less often the longer nothing comes. And it does not rely on a ticker: after a
while without a batch it ticks the queue itself, if that is due.
"""

from __future__ import annotations

from time import monotonic

from pgq_py.client._async.subscription import AsyncSubscription
from pgq_py.client.acompat import AsyncStop
from pgq_py.settings import Settings

__all__ = ["AsyncIdle"]

LONGEST = 0.5
"""Seconds between two polls when nothing has come for a while; a longer `poll_interval` is kept to."""


class AsyncIdle:
    """Waits on behalf of one subscription; `stop` ends a wait at once."""

    def __init__(self, subscription: AsyncSubscription, stop: AsyncStop, settings: Settings) -> None:
        self._subscription, self._stop = subscription, stop
        self._first = settings.poll_interval
        self._self_tick_after = settings.self_tick_after
        self.found()

    def found(self) -> None:
        """There was a batch: be attentive again."""
        self._delay = self._first
        self._last_tick = monotonic()

    async def wait(self, at_most: float = LONGEST) -> None:
        """Return when it is worth looking again, when stopped, or after `at_most` seconds."""
        stopped = await self._stop.sleep(min(self._delay, at_most))
        self._delay = max(self._first, min(self._delay * 2, LONGEST))
        if not stopped and monotonic() - self._last_tick >= self._self_tick_after:
            self._last_tick = monotonic()
            if await self._subscription.poke():
                self.found()
