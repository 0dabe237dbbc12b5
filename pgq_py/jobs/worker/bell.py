"""One bell for everything that a sleeping coroutine may be woken for: it looks itself what has happened."""

from __future__ import annotations

import asyncio

__all__ = ["Bell"]


class Bell:
    """Rung in the event loop's own thread; a ring is kept until somebody waits. One may wait at a time.

    An asyncio.Event under a timeout would cost a task for each wait.
    """

    def __init__(self) -> None:
        self._rung = False
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        self._rung = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, seconds: float | None = None) -> bool:
        """Return at the next ring (True), at once if there was one, or after so many seconds (False)."""
        if not self._rung:
            loop = asyncio.get_running_loop()
            self._waiter = waiter = loop.create_future()
            timer = None if seconds is None else loop.call_later(max(seconds, 0.0), _expire, waiter)
            try:
                await waiter
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()
        rung, self._rung = self._rung, False
        return rung


def _expire(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
