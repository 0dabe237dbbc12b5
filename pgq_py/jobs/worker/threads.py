"""Threads for handlers that are plain functions.

A hop from the event loop to a thread and back costs more than a small job. So a thread, once awake, takes jobs until
there are none, and one thread is woken for many jobs. Only when they turn out to be slow are more threads woken, twice
as many every two milliseconds, up to as many as there are slots.

The threads are daemons: a handler that never returns must not keep the process from ending. They are this module's own,
for those of concurrent.futures are waited for when the interpreter ends.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import monotonic
from typing import TypeAlias

from pgq_py.jobs.worker.work import Outcome, Work

__all__ = ["Threads"]

LOOK = 0.002
"""Seconds between two looks at whether the threads that are awake get along."""

Run: TypeAlias = Callable[[Work], Outcome]
Results: TypeAlias = list[tuple[Work, Outcome]]


class Threads:
    """Runs jobs in at most `most` threads; `done` is called in the event loop with what has become of some."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int, run: Run, done: Callable[[Results], None]) -> None:
        self._loop, self._most, self._run, self._done = loop, most, run, done
        self._jobs: deque[Work] = deque()
        self._asleep: list[threading.Lock] = []
        self._alive = 0
        self._results: deque[tuple[Work, Outcome]] = deque()
        self._told = False
        self._look: asyncio.TimerHandle | None = None

    def submit(self, jobs: Iterable[Work]) -> None:
        """Run these as soon as there are threads for them."""
        self._jobs.extend(jobs)
        self._wake(1)
        if self._jobs and self._look is None:
            self._look = self._loop.call_later(LOOK, self._help)

    def take_back(self) -> list[Work]:
        """All that no thread has begun with."""
        taken = []
        with suppress(IndexError):
            while True:
                taken.append(self._jobs.popleft())
        return taken

    def _help(self) -> None:
        """There is still work: wake as many threads again as are at it."""
        self._look = None
        if self._jobs:
            self._wake(min(len(self._jobs), max(1, self._alive - len(self._asleep))))
            self._look = self._loop.call_later(LOOK, self._help)

    def _wake(self, threads: int) -> None:
        for _ in range(threads):
            if self._asleep:
                self._asleep.pop().release()
            elif self._alive < self._most:
                self._alive += 1
                threading.Thread(target=self._work, name=f"pgq-job-{self._alive}", daemon=True).start()
            else:
                return

    # -- in the threads ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        """The life of one thread."""
        bed = threading.Lock()
        bed.acquire()
        while True:
            try:
                work = self._jobs.popleft()
            except IndexError:
                self._sleep(bed)
                continue
            work.started = monotonic()
            outcome = contextvars.Context().run(self._run, work)
            self._results.append((work, outcome))
            if not self._told:
                self._told = True
                with suppress(RuntimeError):  # the loop is closed: the worker has ended without this job
                    self._loop.call_soon_threadsafe(self._tell)
            del work, outcome  # while it sleeps, a thread keeps nothing alive

    def _sleep(self, bed: threading.Lock) -> None:
        """Until woken. A job may have come between the look at the queue and the entry into the list."""
        self._asleep.append(bed)
        if self._jobs:
            try:
                self._asleep.remove(bed)
            except ValueError:
                pass  # somebody is waking us already
            else:
                return
        bed.acquire()

    def _tell(self) -> None:
        """In the event loop: pass on what has been done since the last time."""
        self._told = False
        self._done([self._results.popleft() for _ in range(len(self._results))])
