"""What adapters share whose peer is asynchronous: a loop of their own, so that methods can block."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from threading import Event
from typing import Any

from benchmarks.peers.sqlbase import SqlAdapter

__all__ = ["AsyncAdapter", "until"]


class AsyncAdapter(SqlAdapter):
    """`run` runs a coroutine of the peer's to its end, always on one loop; `SqlAdapter.conn` is for looking on."""

    def __init__(self, dsn: str, options: Mapping[str, str]) -> None:
        super().__init__(dsn, options)
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        if self._loop is None:
            self._loop = self.new_loop()
        return self._loop.run_until_complete(coroutine)

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """uvloop where the peer brings it, for its own command line uses it then."""
        try:
            import uvloop
        except ImportError:
            return asyncio.new_event_loop()
        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        return loop

    def apart(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a worker's main coroutine on a loop of its own, for it runs in a thread of its own."""
        loop = self.new_loop()
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(main())
        finally:
            loop.close()


async def until(stop: Event, worker: asyncio.Task[Any] | None = None) -> None:
    """Return when a thread sets the event. A worker that ends before raises what ended it."""
    while not stop.is_set():
        if worker is not None and worker.done():
            await worker
            raise RuntimeError("the worker ended by itself")
        await asyncio.sleep(0.2)
