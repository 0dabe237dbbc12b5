"""Says what became of jobs, on a connection of its own, many at a time.

A claim whose jobs are all done is completed with one row, a group of such claims with one statement. So it pays to wait
for the rest of a claim, and for other claims: up to 50 ms or 500 jobs, but no longer than the worker has something to
do, unless the rest is about to come. What is slow does not keep its neighbours back: after that time, those that are
done are said to be, one by one.

Nothing is forgotten before the database has confirmed it. Every statement can be repeated, for a finish that is there
already is not written again; so after a lost connection all of it is said once more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import monotonic
from typing import Any, TypeAlias

import psycopg
from psycopg import AsyncConnection

from pgq_py.client._async import calls
from pgq_py.client._async.connections import connect_until_async
from pgq_py.client.acompat import AsyncStop
from pgq_py.client.backoff import Backoff
from pgq_py.client.reasons import storable
from pgq_py.errors import ConnectionFailed, PgqError
from pgq_py.jobs import statements
from pgq_py.jobs.worker.bell import Bell
from pgq_py.jobs.worker.work import Claim, Outcome, Said, Work
from pgq_py.settings import Settings

__all__ = ["Finishing"]

logger = logging.getLogger("pgq_py.jobs")

PATIENCE = 0.05
"""Seconds that an outcome may wait for company."""

GROUP = 500
"""Outcomes that are enough company."""

Op: TypeAlias = tuple[Claim, int, str, list[Any]]
"""Claim, job, statement, parameters: something to be said of one job."""

_UNSENT = (ConnectionFailed, psycopg.OperationalError)
_TRY_AGAIN = ("40001", "40P01")


class Finishing:
    """`note` outcomes in the event loop's thread; `run` sends them, `closed` is called with each claim that is over."""

    def __init__(self, settings: Settings, closed: Callable[[Claim], None]) -> None:
        self._settings, self._closed = settings, closed
        self._ops: list[Op] = []
        self._claims: dict[Claim, None] = {}
        self._pending = 0
        self._bell = Bell()
        self._timer: asyncio.TimerHandle | None = None
        self._give_up = AsyncStop()
        self._backoff = Backoff()
        self._conn: AsyncConnection[Any] | None = None
        self._all_sent = asyncio.Event()
        self._all_sent.set()

    def note(self, work: Work, outcome: Outcome) -> None:
        """A job of a claim of this worker has its outcome."""
        claim = work.claim
        claim.left -= 1
        if claim.lost:
            if claim.left == 0:
                self._closed(claim)
            return
        if outcome is None:
            self._note_done(claim, work.job.id)
        elif outcome.kind == "completed":
            self._ops.append((claim, work.job.id, statements.SET_RESULT, _result(work, outcome)))
            self._note_done(claim, work.job.id)
        elif outcome.kind != "settled":
            self._ops.append((claim, work.job.id, *_statement(work, outcome)))
        if claim.left == 0 and claim.size == 1 and outcome is not None and outcome.kind == "settled":
            self._closed(claim)
            return
        self._claims[claim] = None
        self._pending += 1

    def send_soon(self, *, now: bool) -> None:
        """To be called after noting: send at once if nothing else is going to come, else in company."""
        if not self._pending:
            return
        self._all_sent.clear()
        if now or self._pending >= GROUP:
            self._bell.ring()
        else:
            self._send_later()

    async def drained(self) -> None:
        """Return when everything that was noted is confirmed."""
        await self._all_sent.wait()

    def stop(self) -> None:
        """End `run`, whether everything was sent or not."""
        self._give_up.set()
        self._bell.ring()

    async def run(self) -> None:
        """Send what is noted until stopped. Survives lost connections."""
        try:
            while not self._give_up.is_set():
                await self._bell.wait()
                if self._timer is not None:
                    self._timer.cancel()
                    self._timer = None
                await self._flush()
        finally:
            if self._conn is not None:
                await self._conn.close()

    # -- sending -----------------------------------------------------------------------------------------------------

    def _send_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._bell.ring)

    def _note_done(self, claim: Claim, job: int) -> None:
        if not claim.done:
            claim.done_since = monotonic()
        claim.done.append(job)

    async def _flush(self) -> None:
        """Send all that may go now."""
        ops, self._ops = [op for op in self._ops if not op[0].lost], []
        now = monotonic()
        whole, parts = [], []
        for claim in list(self._claims):
            if claim.left == 0 or claim.lost:
                del self._claims[claim]
                whole.append(claim)
            elif claim.done and not _is_worth_waiting(claim, now - claim.done_since):
                parts.append((claim, claim.done))
                claim.done = []
        self._pending = 0
        waiting = any(claim.done for claim in self._claims)
        lost = [claim for claim in whole if claim.lost]
        whole = [claim for claim in whole if not claim.lost]
        if ops or whole or parts:
            await self._send(ops, parts, whole)
        for claim in (*lost, *whole):
            self._closed(claim)
        if waiting or self._pending:
            self._send_later()
        else:
            self._all_sent.set()

    async def _send(self, ops: list[Op], parts: list[tuple[Claim, list[int]]], whole: list[Claim]) -> None:
        """Send it until it is confirmed, or given up."""
        ops += [(claim, 0, statements.COMPLETE, [claim.id, claim.token, jobs]) for claim, jobs in parts]
        while not self._give_up.is_set():
            try:
                conn = await self._connected()
                if conn is None:
                    return
                try:
                    await self._together(conn, ops, whole)
                except (PgqError, psycopg.Error) as exc:
                    if isinstance(exc, _UNSENT):
                        raise
                    await self._one_by_one(conn, ops, whole)
                self._backoff.reset()
                return
            except _UNSENT as exc:
                logger.warning("outcomes of jobs are kept until the database answers: %s", exc)
                await self._give_up.sleep(min(self._backoff.next(), 1.0))

    async def _together(self, conn: AsyncConnection[Any], ops: list[Op], whole: list[Claim]) -> None:
        """All in one transaction; mostly that is one statement."""
        closing = [[claim.id for claim in whole], [claim.token for claim in whole]]
        if not ops:
            await calls.rows(conn, statements.COMPLETE_MANY, closing)
            return
        async with calls.transaction(conn):
            for _, _, statement, parameters in ops:
                await calls.rows(conn, statement, parameters)
            if whole:
                await calls.rows(conn, statements.COMPLETE_MANY, closing)

    async def _one_by_one(self, conn: AsyncConnection[Any], ops: list[Op], whole: list[Claim]) -> None:
        """Something was refused: find out what, and say the rest."""
        for claim, job, statement, parameters in ops:
            await self._say(conn, claim, job, statement, parameters)
        for claim in whole:
            await self._say(conn, claim, 0, statements.COMPLETE_ALL, [claim.id, claim.token])

    async def _say(self, conn: AsyncConnection[Any], claim: Claim, job: int, statement: str, parameters: Any) -> None:
        """Say one thing. What is refused becomes a failure of the job; if that is refused too, the claim is let go."""
        for _ in range(5):
            if claim.lost:
                return
            try:
                await calls.rows(conn, statement, parameters)
            except (PgqError, psycopg.Error) as exc:
                if isinstance(exc, _UNSENT):
                    raise
                if exc.sqlstate == "PQ020":
                    logger.warning("claim %s of %s is lost; others run its jobs", claim.id, claim.queue)
                    claim.lost = True
                elif exc.sqlstate not in _TRY_AGAIN:
                    logger.error("job %s of %s: its outcome was refused: %s", job or "?", claim.queue, exc)
                    if not job or (statement, parameters[4:5]) == (statements.FAIL, [None]):
                        break
                    again = statement != statements.SET_RESULT
                    reason = storable(f"its outcome was refused: {exc}")
                    statement, parameters = statements.FAIL, [claim.id, claim.token, job, reason, None, again]
            else:
                return
        # The next heartbeats do not name it then, and what is left of it is given back.
        claim.lost = True

    async def _connected(self) -> AsyncConnection[Any] | None:
        if self._conn is None or self._conn.closed:
            self._conn = await connect_until_async(self._settings, "finishing", self._give_up)
        return self._conn


def _is_worth_waiting(claim: Claim, waited: float) -> bool:
    """Whether the rest of a claim comes within the patience, at the pace so far: one row then says it all."""
    if waited < PATIENCE * 0.9:
        return True
    return waited < 5 * PATIENCE and waited * claim.left < PATIENCE * len(claim.done)


def _result(work: Work, said: Said) -> list[Any]:
    return [work.claim.id, work.claim.token, work.job.id, said.result, said.retention]


def _statement(work: Work, said: Said) -> tuple[str, list[Any]]:
    """How an outcome is said."""
    job: list[Any] = [work.claim.id, work.claim.token, work.job.id]
    if said.kind == "failed":
        return statements.FAIL, [*job, said.reason, said.delay, not said.final]
    if said.kind == "snoozed":
        return statements.SNOOZE, [*job, said.delay]
    return statements.RELEASE, [job[0], job[1], [job[2]]]
