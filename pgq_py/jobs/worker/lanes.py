"""Lanes for handlers that are coroutine functions: tasks that run one job after the other.

A task for each job would cost more than a small job. So a lane takes jobs until there are none; a job that really
waits keeps its lane, and one spare lane, started before, goes on with the next. Jobs that never wait need two tasks for
all of them. A lane whose job has changed a context variable ends, so that no job sees another's.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from time import monotonic
from typing import TypeAlias

from pgq_py.jobs.worker.work import Outcome, Work

__all__ = ["Lanes"]

TURN = 0.005
"""Seconds after which a lane lets the event loop do something else."""

Run: TypeAlias = Callable[[Work], Awaitable[Outcome]]
Results: TypeAlias = list[tuple[Work, Outcome]]


class Lanes:
    """Runs jobs in the event loop, as many at once as are submitted; `done` is called with what has become of some."""

    def __init__(self, run: Run, done: Callable[[Results], None]) -> None:
        self._run, self._done = run, done
        self._jobs: deque[Work] = deque()
        self._results: Results = []
        self._told = False
        self._spare = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._context = contextvars.copy_context()

    def submit(self, jobs: Iterable[Work]) -> None:
        """Begin with these at the next turn of the event loop."""
        self._jobs.extend(jobs)
        self._ensure_spare()

    def take_back(self) -> list[Work]:
        """All that no lane has begun with."""
        taken = list(self._jobs)
        self._jobs.clear()
        return taken

    def _ensure_spare(self) -> None:
        if not self._spare:
            self._spare = True
            task = asyncio.get_running_loop().create_task(self._lane(), context=self._context.copy())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _lane(self) -> None:
        """Run jobs until there are none."""
        self._spare = False
        task, untouched, turn = asyncio.current_task(), contextvars.copy_context(), monotonic()
        assert task is not None
        while self._jobs:
            work = self._jobs.popleft()
            if self._jobs:
                self._ensure_spare()
            await self._one(work, task)
            if contextvars.copy_context() != untouched:
                self._ensure_spare()
                return
            if monotonic() - turn > TURN:
                await asyncio.sleep(0)
                turn = monotonic()

    async def _one(self, work: Work, task: asyncio.Task[None]) -> None:
        work.started = monotonic()
        work.lane = task
        outcome = await self._run(work)
        work.lane = None
        while task.cancelling():
            task.uncancel()
        self._results.append((work, outcome))
        if not self._told:
            self._told = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        """Pass on what has been done since the last time: as soon as the lane waits, or gives way."""
        self._told = False
        results, self._results = self._results, []
        self._done(results)
