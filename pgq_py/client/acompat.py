"""The few things whose two forms differ by more than `async` and `await`, side by side.

The sources under `_async` import the names that begin with Async or `a`; the generator renames them in the twins.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import threading
import weakref
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from itertools import islice
from typing import Any, TypeAlias, TypeVar

__all__ = [
    "AsyncContext",
    "AsyncItems",
    "AsyncLock",
    "AsyncStop",
    "Context",
    "Items",
    "Lock",
    "Stop",
    "aslices",
    "slices",
]

T = TypeVar("T")

_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)
"""For two files once, poll takes one call of the system, and epoll five."""

AsyncItems: TypeAlias = Iterable[Any] | AsyncIterable[Any]
Items: TypeAlias = Iterable[Any]

AsyncContext = AbstractAsyncContextManager
Context = AbstractContextManager

AsyncLock = asyncio.Lock
Lock = threading.Lock


class Stop(threading.Event):
    """Set once, from any thread or a signal handler: whoever sleeps on it wakes at once."""

    def __init__(self) -> None:
        super().__init__()
        self._reader, self._writer = os.pipe()
        for end in (self._reader, self._writer):
            weakref.finalize(self, os.close, end)

    def set(self) -> None:
        if not self.is_set():
            super().set()
            os.write(self._writer, b"x")

    def sleep(self, seconds: float) -> bool:
        """Sleep that long or until the stop; True when stopped."""
        return self.wait(seconds)

    def sleep_or_read(self, fileno: int, seconds: float) -> bool:
        """Sleep that long, until the stop, or until there is something to read; True when stopped."""
        with _Selector() as selector:
            for waited_for in (fileno, self._reader):
                selector.register(waited_for, selectors.EVENT_READ)
            selector.select(max(0.0, seconds))
        return self.is_set()


class AsyncStop(asyncio.Event):
    """The same in an event loop; set it in the loop's own thread."""

    async def sleep(self, seconds: float) -> bool:
        """Sleep that long or until the stop; True when stopped."""
        try:
            async with asyncio.timeout(seconds):
                return await self.wait()
        except TimeoutError:
            return self.is_set()

    async def sleep_or_read(self, fileno: int, seconds: float) -> bool:
        """Sleep that long, until the stop, or until there is something to read; True when stopped."""
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(fileno, readable.set)
        waiters = [asyncio.ensure_future(event.wait()) for event in (self, readable)]
        try:
            await asyncio.wait(waiters, timeout=max(0.0, seconds), return_when=asyncio.FIRST_COMPLETED)
        finally:
            loop.remove_reader(fileno)
            for waiter in waiters:
                waiter.cancel()
        return self.is_set()


def slices(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items in lists of `size`, the last one shorter; holds one list at a time."""
    iterator = iter(items)
    while part := list(islice(iterator, size)):
        yield part


async def aslices(items: Iterable[T] | AsyncIterable[T], size: int) -> AsyncIterator[list[T]]:
    """The same for either kind of iterable."""
    if not isinstance(items, AsyncIterable):
        for part in slices(items, size):
            yield part
        return
    part = []
    async for item in items:
        part.append(item)
        if len(part) == size:
            yield part
            part = []
    if part:
        yield part
