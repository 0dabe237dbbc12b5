"""When a worker claims, from which queue, and how many jobs.

It claims at most as many as it has free slots for, so that no job waits for a worker while another one is idle. When a
queue has nothing, the worker listens: for ticks, and for senders that wake the ticker, since a claim makes the tick
that is due itself. What it does not hear of it finds by polling: every five seconds, and four times a second when no
ticker is alive, in whose place it then ticks and releases delayed jobs.
"""

from __future__ import annotations

import asyncio
import logging
import random
from time import monotonic
from typing import Protocol

import psycopg

from pgq_py.client.acompat import AsyncStop
from pgq_py.client.backoff import Backoff
from pgq_py.errors import ConnectionFailed, PgqError, QueueNotFound, WorkerEnded
from pgq_py.jobs.context import ClaimedJob
from pgq_py.jobs.worker.bell import Bell
from pgq_py.jobs.worker.claiming import Claiming
from pgq_py.jobs.worker.restraint import Restraint
from pgq_py.jobs.worker.shares import Rest, Share, Shares
from pgq_py.jobs.worker.work import Claim
from pgq_py.settings import Settings

__all__ = ["Feeding", "Host"]

logger = logging.getLogger("pgq_py.jobs")

POLL = 5.0
"""Seconds between two looks at queues that are listened to."""

TICKERLESS_POLL = 0.25
"""Seconds, when no ticker is known to be alive."""

GATHER = 0.005
"""Seconds that a claim waits for more free slots otherwise, when most are taken."""

LONGEST_GATHER = 0.03
"""Seconds within which half of the slots are expected to be free, if that is worth waiting for."""

LAST_LOOK = 0.05
"""Seconds after which an empty queue is looked at once more before a draining worker ends."""

LONGEST_JITTER = 0.005
"""Seconds by which workers that woke in vain are spread."""


_LOST = (ConnectionFailed, psycopg.OperationalError)


class Host(Protocol):
    """What feeding needs of its worker."""

    worker: str
    """The incarnation; empty while there is none that beats."""

    def room(self) -> int:
        """How many jobs it has room for."""

    def in_hand(self) -> int:
        """How many jobs it has that have no outcome."""

    def hold(self, claim: Claim) -> None:
        """A claim was made: from now on it is in the heartbeats."""

    def doubt(self) -> None:
        """An answer got lost: the database may have claims of the worker that it does not know of."""

    def take(self, claim: Claim, jobs: list[ClaimedJob]) -> None:
        """Run these jobs, which may be none."""


class Feeding:
    """`run` claims for the host until stopped or, with `drain`, until nothing is left. Ring `bell` at every change."""

    def __init__(
        self,
        settings: Settings,
        shares: Shares,
        host: Host,
        stop: AsyncStop,
        slots: int,
        *,
        drain: bool,
        gather: float = 0.0,
    ) -> None:
        self._settings, self._shares, self._host, self._stop = settings, shares, host, stop
        self._slots, self._drain = slots, drain
        self.bell = Bell()
        self._claiming = Claiming(settings, stop)
        self._rest, self._restraint = Rest(), Restraint(gather)
        self._backoff = Backoff()
        self._numbers: dict[str, str] = {}
        self._ticker_until = self._poll_at = 0.0
        self._jitter = self._looked_at = 0.0
        self._taken = self._ended = 0
        self._looked_twice = False

    def refresh(self) -> None:
        """Look everywhere, and now."""
        self._shares.water()
        self.bell.ring()

    async def check(self) -> None:
        """Raise what is wrong with one of the queues."""
        if await self._claiming.connect():
            for queue in self._shares.queues:
                try:
                    await self._claiming.solo_waits(queue)
                except QueueNotFound as exc:
                    raise QueueNotFound(
                        f"there is no queue {queue!r}",
                        advice=f"Nothing was started. Create it with `select pgq.create_job_queue('{queue}')`.",
                    ) from exc

    async def run(self) -> None:
        """Survives lost connections, and what the database refuses."""
        while not self._stop.is_set() and await self._claiming.connect():
            try:
                if not await self._turn():
                    return
            except _LOST as exc:
                await self._lost(exc)

    async def aclose(self) -> None:
        await self._claiming.disconnect()

    async def _lost(self, exc: Exception) -> None:
        """Begin with a new connection, and look everywhere."""
        self._host.doubt()
        if getattr(exc, "sqlstate", None) not in ("40001", "40P01", "55P03"):
            logger.warning("claiming: connection lost, connecting again: %s", exc)
            await self._claiming.disconnect()
            self._shares.forget()
        self._shares.water()
        await self._stop.sleep(min(self._backoff.next(), 1.0))

    async def _turn(self) -> bool:
        """Claim once, or wait for a reason to; False when nothing is left to do."""
        host = self._host
        if not host.worker or host.room() <= 0:
            await self._pause(None)
        elif host.in_hand() and await self._rests():
            await self._pause(self._rest.left)
        elif (share := self._shares.next()) is None:
            if self._drain and not host.in_hand() and not await self._anything_left():
                return False
            await self._wait_for_news()
        else:
            await self._gather()
            await self._breathe()
            await self._try(share)
        return True

    async def _breathe(self) -> None:
        """Hold back from a claim that may bring little."""
        if (left := self._restraint.left(monotonic())) > 0:
            await self._stop.sleep(left)
            self._hear()

    async def _try(self, share: Share) -> None:
        """Claim; what the database refuses for one queue is no other's problem."""
        try:
            if await self._claim(share):
                self._backoff.reset()
                self._jitter, self._looked_twice = 0.0, False
        except _LOST:
            raise
        except (PgqError, psycopg.Error) as exc:
            share.dry = True
            logger.error("claiming from %s: %s", share.queue, exc)
            await self._stop.sleep(self._backoff.next())

    # -- claiming ------------------------------------------------------------------------------------------------------

    async def _claim(self, share: Share) -> bool:
        """Claim from this queue; False when it has nothing (more) for us."""
        room = self._host.room()
        idle = not self._host.in_hand()
        if idle:
            self._rest.idle()
        if room <= 0:
            return False
        began = monotonic()
        found = await self._ask(share, room, idle=idle and not share.was_solo)
        if found is None or (found[1] is not None and len(found[1]) < room):
            self._restraint.claimed(began, monotonic())
        if found is None and idle and share.was_solo:
            found = await self._ask(share, room, idle=True)
        share.was_solo = False
        if found is None:
            share.dry = True
            return False
        claim, jobs = found
        self._took(claim, share, jobs if jobs is not None else await self._fetch(claim))
        # what was waited for begins now, not when the next claim has been sent
        await asyncio.sleep(0)
        return True

    async def _ask(self, share: Share, n: int, *, idle: bool) -> tuple[Claim, list[ClaimedJob] | None] | None:
        """A claim, and its jobs unless they are to be fetched."""
        worker = self._host.worker
        try:
            taken = await self._claiming.take(
                share.queue, worker, min(n, 10_000), lane=share.lane, idle=idle, dry=share.dry_until
            )
        except WorkerEnded:
            # The next heartbeat learns of it, too, and takes a new name.
            await self._stop.sleep(0.05)
            self._shares.water()
            return None
        if taken.dry is not None:
            share.dry, share.dry_until = True, taken.dry
        if taken.claim is None or worker != self._host.worker:
            return None  # declared dead meanwhile: what was claimed under the old name is given back
        claim = Claim(*taken.claim, share.queue, worker)
        self._host.hold(claim)
        return claim, taken.jobs

    async def _fetch(self, claim: Claim) -> list[ClaimedJob] | None:
        """Get the jobs of a claim, for which a lost connection is made anew. None when stopping."""
        while True:
            try:
                return await self._claiming.jobs(claim.id, claim.token)
            except _LOST as exc:
                await self._lost(exc)
                if not await self._claiming.connect():
                    return None
            except PgqError as exc:
                logger.warning("claim %s of %s: %s", claim.id, claim.queue, exc)
                claim.lost = True
                return []

    def _took(self, claim: Claim, share: Share, jobs: list[ClaimedJob] | None) -> None:
        if jobs is None:
            return  # stopping: the claim is given back
        share.was_solo = bool(jobs) and jobs[0].priority == 0
        share.lane = jobs[0].priority if jobs else share.lane
        self._shares.took(share, len(jobs))
        self._taken += len(jobs)
        self._host.take(claim, jobs)

    async def _gather(self) -> None:
        """Slots became free while most are taken. Others will follow: soon, if jobs are as small as lately."""
        host, now = self._host, monotonic()
        rate = (self._taken - host.in_hand() - self._ended) / max(now - self._looked_at, 1e-6)
        self._ended, self._looked_at = self._taken - host.in_hand(), now
        wanted = self._slots / 2 - host.room()
        if wanted <= 0:
            return
        end = now + (1.5 * wanted / rate if wanted < rate * LONGEST_GATHER else GATHER)
        while host.in_hand() and host.room() < self._slots / 2 and (left := end - monotonic()) > 0:
            await self.bell.wait(left)

    async def _rests(self) -> bool:
        """Whether to claim nothing for now, so that a job which must run alone can be claimed."""
        if self._rest.left > 0:
            return True
        if not self._rest.ask:
            return False
        waits = False
        for queue in self._shares.queues:
            waits = waits or await self._claiming.solo_waits(queue)
        self._rest.answer(waits)
        if waits:
            self._shares.water()
        return waits

    async def _anything_left(self) -> bool:
        """Before the end: also what was due for release, or waited for a tick."""
        found = False
        for queue in self._shares.queues:
            while await self._claiming.poke(queue):
                found = True
        if not found and self._looked_twice:
            return False
        if not found:
            # somebody else's tick may have been under way
            await self._stop.sleep(LAST_LOOK)
        self._looked_twice = not found
        self._shares.water()
        return True

    # -- waiting -------------------------------------------------------------------------------------------------------

    async def _pause(self, seconds: float | None) -> None:
        await self._claiming.wait(self.bell, seconds)
        self._hear()

    async def _wait_for_news(self) -> None:
        """All queues are dry: wait until something is heard, or it is time to look."""
        claiming = self._claiming
        if not self._numbers or not (claiming.listens or claiming.pooled):
            self._numbers = await claiming.listen(self._shares.queues)
            self._shares.water()
            return
        await self._look_for_ticker()
        tickerless = self._ticker_until <= monotonic()
        poll = TICKERLESS_POLL if tickerless or claiming.pooled else POLL
        self._poll_at = monotonic() + poll * random.uniform(0.9, 1.1)
        in_hand = self._host.in_hand()
        while (left := self._poll_at - monotonic()) > 0 and not self._stop.is_set():
            if not claiming.has_heard:  # what came with the last answer makes the connection readable no more
                await claiming.wait(self.bell, left)
            if self._hear():
                await self._spread()
            elif self._drain and in_hand and not self._host.in_hand():
                self._shares.water()  # what must run alone may run now
            if self._shares.next() is not None or not self._host.worker:
                return
        if tickerless:
            for queue in self._shares.queues:
                await claiming.poke(queue)
        self._shares.water()

    async def _look_for_ticker(self) -> None:
        now = monotonic()
        if now >= self._ticker_until:
            self._ticker_until = now + await self._claiming.ticker_sleeps()

    def _hear(self) -> bool:
        heard = {self._numbers[number] for number in self._claiming.heard() if number in self._numbers}
        return self._shares.water(heard) if heard else False

    async def _spread(self) -> None:
        """Many workers wake at once for one job. Those that came in vain come later the next time."""
        if self._jitter:
            await asyncio.sleep(random.uniform(0, self._jitter))
        self._jitter = min(self._jitter * 2 + 0.0005, LONGEST_JITTER)
