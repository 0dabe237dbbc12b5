"""The worker: what holds its parts together, from the first heartbeat to the last."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any

from pgq_py.client import job_queries, queries
from pgq_py.client._async import calls
from pgq_py.client._async.connections import connect_async
from pgq_py.client.acompat import AsyncStop
from pgq_py.client.encoding import json_text
from pgq_py.client.rows import retry_policy_parameters
from pgq_py.errors import InvalidArgument
from pgq_py.jobs.context import ClaimedJob
from pgq_py.jobs.middleware import Middleware
from pgq_py.jobs.recurring import check_cron
from pgq_py.jobs.spec import JobSpec
from pgq_py.jobs.worker.feeding import Feeding
from pgq_py.jobs.worker.finishing import Finishing
from pgq_py.jobs.worker.lanes import Results
from pgq_py.jobs.worker.leasing import Leasing
from pgq_py.jobs.worker.running import Running
from pgq_py.jobs.worker.services import Services
from pgq_py.jobs.worker.shares import Shares
from pgq_py.jobs.worker.unknown import Unknown
from pgq_py.jobs.worker.work import Claim, Handler, Said, Work
from pgq_py.settings import Settings

__all__ = ["Worker"]

logger = logging.getLogger("pgq_py.jobs")

LONGEST_PREFETCH = 100

GOODBYE = 5.0
"""Seconds that the last words to the database may take."""


class Worker:
    """Runs jobs of some queues until it is stopped or, with `drain`, until nothing is left that could run now.

    `slots` is how many jobs run at once; so many more as `prefetch` says are claimed ahead. `queues` may give weights:
    of queues that have work, each gets jobs in proportion; by default the queues of the specs, alike. `lease` is how
    long it may be silent before its jobs are given to others, `grace` how long it lets jobs run on when it stops, both
    in seconds. With `gather`, so many seconds lie between two claims that bring less than there is room for: jobs wait
    that much longer at the most, and come more at a time, which costs less WAL. Several workers may run in one process.

    `worker` is the name of its incarnation, empty while none is known to the database.
    """

    worker = ""
    _alone = False
    _stops = 0
    _doubts_until = 0.0

    def __init__(
        self,
        settings: Settings,
        specs: Sequence[JobSpec],
        *,
        slots: int = 10,
        prefetch: int = 0,
        queues: Mapping[str, float] | Sequence[str] | None = None,
        middleware: Middleware | None = None,
        drain: bool = False,
        grace: float = 30.0,
        lease: float = 60.0,
        gather: float = 0.0,
    ) -> None:
        self._settings, self._specs, self._middleware = settings, tuple(specs), middleware or Middleware()
        self._slots = _within("slots", slots, 1, 10_000)
        self._capacity = self._slots + _within("prefetch", prefetch, 0, LONGEST_PREFETCH)
        self._grace = _within("grace", grace, 0, 86_400)
        self._lease = _within("lease", lease, 1, 86_400)
        self._gather = _within("gather", gather, 0, 10)
        self._shares = Shares(_weights(queues, self._specs))
        self._drain = drain
        self._handlers = _handlers(self._specs, self._middleware)
        self._unknown = Unknown()
        self._claims: dict[int, Claim] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- from the outside ----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run in an event loop of its own until SIGTERM, SIGINT or `stop`. Raises what is wrong at the start."""
        asyncio.run(self.work())

    def stop(self) -> None:
        """Stop: jobs that have not begun are given back at once, the others may end within the grace. The second call
        gives everything back at once. From any thread, and before the start as well."""
        self._stops += 1
        if self._loop is not None:
            _call_soon(self._loop, self._heed)

    @property
    def stopping(self) -> bool:
        """Whether somebody has called `stop`."""
        return self._stops > 0

    async def work(self) -> None:
        """The same in the running event loop; signals are minded in the main thread only."""
        self._loop = asyncio.get_running_loop()
        self._stop, self._hurry = AsyncStop(), AsyncStop()
        await self._register()
        self._services = Services(self._settings, self._token)
        self._running = Running(self._settings, self._services, self._slots, self._done)
        self._finishing = Finishing(self._settings, self._close)
        self._feeding = Feeding(
            self._settings, self._shares, self, self._stop, self._capacity, drain=self._drain, gather=self._gather
        )
        self._leasing = self._new_leasing()
        with self._signals():
            self._heed()
            try:
                await self._feeding.check()
                self._leasing.start()
                sending = asyncio.create_task(self._finishing.run())
                sending.add_done_callback(lambda _: self._stop.set())
                try:
                    await self._feeding.run()
                finally:
                    await self._end(sending)
            finally:
                await self._close_all()

    async def _register(self) -> None:
        """Tell the database what the specs say of retries and of recurring jobs. Raises what is wrong."""
        policies = [(spec, spec.retry_policy) for spec in self._specs if spec.retry_policy is not None]
        schedules = [(spec, schedule) for spec in self._specs for schedule in spec.schedules]
        for _, schedule in schedules:
            check_cron(schedule.cron, schedule.tz)
        if not policies and not schedules:
            return
        conn = await connect_async(self._settings, "jobs")
        async with conn:
            for spec, policy in policies:
                parameters = [spec.queue, f"job:{spec.type}", *retry_policy_parameters(policy)]
                await calls.value(conn, queries.SET_RETRY_POLICY, parameters)
            for spec, one in schedules:
                options = json_text(spec.options())
                about = [one.name, spec.queue, spec.type, one.cron, one.tz, one.payload, spec.priority, options]
                await calls.value(conn, job_queries.SET_SCHEDULE, [*about, one.catch_up, one.max_catch_up, True])

    def _new_leasing(self) -> Leasing:
        loop = asyncio.get_running_loop()
        info = {"queues": list(self._shares.queues), "slots": self._slots}
        return Leasing(
            self._settings,
            self._shares.queues,
            self._lease,
            info,
            held=self._held,
            cancel=lambda wanted: _call_soon(loop, self._cancel, wanted),
            renamed=lambda name: _call_soon(loop, self._renamed, name),
        )

    # -- the end -------------------------------------------------------------------------------------------------------

    async def _end(self, sending: asyncio.Task[None]) -> None:
        """Give back what has not begun, let the rest come to its end, say everything, and say goodbye."""
        self._stop.set()
        self._give_back(self._running.take_back())
        self._finishing.send_soon(now=True)
        deadline = monotonic() + self._grace
        while self._running.in_hand and monotonic() < deadline and not self._hurry.is_set():
            await self._feeding.bell.wait(min(0.2, deadline - monotonic()))
        left = self._running.abandon()
        if left:
            logger.warning("%d jobs did not come to their end and are given back", len(left))
            self._give_back(left)
        self._finishing.send_soon(now=True)
        try:
            async with asyncio.timeout(GOODBYE):
                await self._finishing.drained()
        except TimeoutError:
            logger.warning("the database does not answer; what it was not told of is given back after the lease")
        self._finishing.stop()
        await sending
        await asyncio.to_thread(self._leasing.stop, GOODBYE)

    async def _close_all(self) -> None:
        await self._feeding.aclose()
        await self._running.aclose()
        await self._services.aclose()

    def _give_back(self, jobs: Sequence[Work]) -> None:
        for work in jobs:
            self._finishing.note(work, Said("released"))

    def _heed(self) -> None:
        """In the event loop: do what the calls of `stop` ask for."""
        if self._stops:
            self._stop.set()
        if self._stops > 1:
            self._hurry.set()
        self._feeding.bell.ring()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT stop, a second one in a hurry."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    # -- what feeding asks of its host ---------------------------------------------------------------------------------

    def room(self) -> int:
        """How many jobs it has room for; none beside a job that must run alone."""
        return 0 if self._alone else self._capacity - len(self._running.in_hand)

    def in_hand(self) -> int:
        return len(self._running.in_hand)

    def hold(self, claim: Claim) -> None:
        self._claims[claim.id] = claim

    def doubt(self) -> None:
        self._doubts_until = monotonic() + self._lease

    def take(self, claim: Claim, jobs: list[ClaimedJob]) -> None:
        """Run the jobs of a claim. Those of a kind that is not known come again later, uncounted."""
        claim.size = claim.left = len(jobs)
        if not jobs or claim.lost:
            self._claims.pop(claim.id, None)
            self.doubt()
            return
        works = []
        for job in jobs:
            handler = self._handlers.get((claim.queue, job.type))
            work = Work(claim, job, handler or self._unknown.handler, self._services)
            if handler is None:
                self._finishing.note(work, self._unknown.said(work))
            else:
                works.append(work)
        self._alone = bool(works) and jobs[0].priority == 0
        if works:
            self._running.submit(works)
        else:
            self._finishing.send_soon(now=False)

    # -- what the parts report -----------------------------------------------------------------------------------------

    def _done(self, results: Results) -> None:
        """Jobs have their outcome."""
        note = self._finishing.note
        for work, outcome in results:
            note(work, outcome)
        idle = not self._running.in_hand
        if idle:
            self._alone = False
        self._finishing.send_soon(now=idle)
        self._feeding.bell.ring()

    def _close(self, claim: Claim) -> None:
        if self._claims.get(claim.id) is claim:
            del self._claims[claim.id]
        if claim.lost:
            self.doubt()

    def _held(self) -> tuple[list[int], bool]:
        """In the lease's thread: all claims that are not known to be lost, and whether these are all there can be."""
        claims = list(self._claims.values())
        held = [claim.id for claim in claims if not claim.lost]
        return held, len(held) == len(claims) and monotonic() > self._doubts_until

    def _token(self, claim_id: int) -> int | None:
        claim = self._claims.get(claim_id)
        return None if claim is None else claim.token

    def _cancel(self, wanted: list[tuple[int, int]]) -> None:
        """Somebody wants these jobs of these claims to stop."""
        jobs = set(wanted)
        for work in list(self._running.in_hand):
            if (work.claim.id, work.job.id) in jobs and not work.cancelled:
                work.request_cancel()

    def _renamed(self, name: str) -> None:
        """A new connection of the lease, or after a death a new name: then nothing that is in hand is ours any more."""
        if self.worker and name != self.worker:
            for claim in self._claims.values():
                claim.lost = True
            self._claims.clear()
            self._running.take_back()
            self._running.abandon()
            self._alone = False
        self.worker = name
        self._feeding.refresh()


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: Any) -> None:
    """From another thread; nothing when the loop has ended."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call, *arguments)


def _within(name: str, value: Any, least: float, most: float) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InvalidArgument(f"{name} must be {least:g} to {most:g}, not {value!r}", advice="Nothing was started.")
    return value


def _weights(queues: Mapping[str, float] | Sequence[str] | None, specs: Sequence[JobSpec]) -> Mapping[str, float]:
    if isinstance(queues, Mapping):
        return queues
    return dict.fromkeys(queues or [spec.queue for spec in specs], 1.0)


def _handlers(specs: Sequence[JobSpec], middleware: Middleware) -> dict[tuple[str, str], Handler]:
    handlers: dict[tuple[str, str], Handler] = {}
    for spec in specs:
        if (spec.queue, spec.type) in handlers:
            raise InvalidArgument(f"job {spec.type!r} of queue {spec.queue!r} is declared twice")
        handlers[spec.queue, spec.type] = Handler(spec, middleware)
    return handlers
