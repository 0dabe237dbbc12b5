"""Slots: how many jobs run at once, whatever their handlers are."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

from pgq_py.jobs._async.transacting import AsyncTransactions
from pgq_py.jobs._sync.transacting import Transactions
from pgq_py.jobs.context import JobServices
from pgq_py.jobs.worker.lanes import Lanes, Results
from pgq_py.jobs.worker.threads import Threads
from pgq_py.jobs.worker.verdicts import answered, raised, timed_out
from pgq_py.jobs.worker.work import Outcome, Work
from pgq_py.settings import Settings

__all__ = ["Running"]


class Running:
    """Runs at most `slots` jobs at once; the others that it was given wait in their order.

    `done` is called in the event loop with the outcomes of some jobs, each job once.
    """

    def __init__(self, settings: Settings, services: JobServices, slots: int, done: Callable[[Results], None]) -> None:
        self._slots, self._done = slots, done
        self._waiting: deque[Work] = deque()
        self.in_hand: set[Work] = set()
        self._busy = 0
        self._loop = asyncio.get_running_loop()
        self._lanes = Lanes(self._run_async, self._finished)
        self._threads = Threads(self._loop, slots, self._run_sync, self._finished)
        self._transactions = Transactions(settings, services, slots)
        self._async_transactions = AsyncTransactions(settings, services, slots)

    def submit(self, jobs: Iterable[Work]) -> None:
        """Run these as soon as there are slots for them."""
        self._waiting.extend(jobs)
        self.in_hand.update(jobs)
        self._fill()

    def take_back(self) -> list[Work]:
        """All jobs that have not begun, which are not run then."""
        unstarted = [*self._waiting, *self._lanes.take_back(), *self._threads.take_back()]
        self._busy -= len(unstarted) - len(self._waiting)
        self._waiting.clear()
        self.in_hand.difference_update(unstarted)
        return unstarted

    def abandon(self) -> list[Work]:
        """All jobs that are left: what becomes of them does not count any more. Coroutines are cancelled."""
        left = list(self.in_hand)
        self.in_hand.clear()
        for work in left:
            work.request_cancel()
        return left

    async def aclose(self) -> None:
        await self._async_transactions.aclose()
        self._transactions.close()

    def _fill(self) -> None:
        """Give jobs to free slots."""
        room = min(self._slots - self._busy, len(self._waiting))
        if room <= 0:
            return
        self._busy += room
        chosen = [self._waiting.popleft() for _ in range(room)]
        coroutines = [work for work in chosen if work.handler.is_async]
        if coroutines:
            self._lanes.submit(coroutines)
        if len(coroutines) < room:
            self._threads.submit([work for work in chosen if not work.handler.is_async])

    def _finished(self, results: Results) -> None:
        self._busy -= len(results)
        for work, _ in results:
            if work.timer is not None:
                work.timer.cancel()
        mine = [(work, outcome) for work, outcome in results if work in self.in_hand]
        self.in_hand.difference_update([work for work, _ in mine])
        self._fill()
        self._done(mine)

    # -- running one -------------------------------------------------------------------------------------------------

    async def _run_async(self, work: Work) -> Outcome:
        seconds = work.timeout
        if seconds is None:
            return await self._call_async(work)
        limit = asyncio.timeout(seconds)
        outcome: Outcome = None
        with suppress(TimeoutError):
            async with limit:
                outcome = await self._call_async(work)
        if limit.expired() and outcome is not None and outcome.kind == "failed":
            return timed_out(work, seconds)
        return outcome

    async def _call_async(self, work: Work) -> Outcome:
        if work.handler.transactional:
            return await self._async_transactions.run(work)
        try:
            args, kwargs = work.arguments()
            return answered(work, await work.handler.call(work.context, args, kwargs))
        except (Exception, asyncio.CancelledError, SystemExit) as exc:
            return raised(work, exc)

    def _run_sync(self, work: Work) -> Outcome:
        """In a thread, which cannot be stopped: a job that takes too long has failed when it comes to its end."""
        seconds = work.timeout
        if seconds is None:
            return self._call_sync(work)
        self._loop.call_soon_threadsafe(self._limit, work, seconds)
        outcome = self._call_sync(work)
        if self._loop.time() - work.started > seconds and (outcome is None or outcome.kind != "settled"):
            return timed_out(work, seconds)
        return outcome

    def _call_sync(self, work: Work) -> Outcome:
        if work.handler.transactional:
            return self._transactions.run(work)
        try:
            args, kwargs = work.arguments()
            return answered(work, work.handler.call(work.context, args, kwargs))
        except BaseException as exc:
            return raised(work, exc)

    def _limit(self, work: Work, seconds: float) -> None:
        """A function that looks at its context is told when its time is over."""
        work.timer = self._loop.call_later(seconds, work.context.request_cancel)
