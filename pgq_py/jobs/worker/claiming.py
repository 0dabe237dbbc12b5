"""Claims jobs and hears of new ones, on a connection of its own.

A claim and the fetch of its jobs are two statements: the first holds the lock of a lane and is over at once, the second
takes as long as the payloads do. The claim is in the worker's list before its jobs are fetched, for what is not in that
list is given back. A few jobs that have just come are claimed and fetched by one statement.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import psycopg
from psycopg import AsyncConnection, AsyncCursor, IsolationLevel
from psycopg.rows import tuple_row
from psycopg.sql import SQL, Identifier

from pgq_py.client import queries
from pgq_py.client._async import calls
from pgq_py.client._async.connections import connect_until_async
from pgq_py.client.acompat import AsyncStop
from pgq_py.client.connecting import is_pooled
from pgq_py.client.listening import Notices
from pgq_py.errors import QueueNotFound, SchemaOutdated, translate
from pgq_py.jobs import statements
from pgq_py.jobs.context import ClaimedJob
from pgq_py.jobs.worker.bell import Bell
from pgq_py.settings import Settings

__all__ = ["Claiming", "Taken"]

logger = logging.getLogger("pgq_py.jobs")


class Taken(NamedTuple):
    """What a claim brought. Without `jobs`, those of the claim are to be fetched; `dry` is the tick up to which nothing
    waits any more, None when that is not known."""

    claim: tuple[int, int] | None
    jobs: list[ClaimedJob] | None
    dry: int | None


class Claiming:
    """Every call but `connect` raises ConnectionFailed or psycopg.OperationalError when the connection is lost."""

    def __init__(self, settings: Settings, stop: AsyncStop) -> None:
        self._settings, self._stop = settings, stop
        self._conn: AsyncConnection[Any] | None = None
        self._notices: Notices | None = None
        self._takers: dict[str, str] = {}
        self._warned = False

    @property
    def listens(self) -> bool:
        return self._notices is not None

    @property
    def pooled(self) -> bool:
        """Nothing can be heard through a pooler."""
        return self._conn is not None and is_pooled(self._conn)

    async def connect(self) -> bool:
        """Make sure that there is a connection; False when stopped before there is one."""
        if self._conn is None or self._conn.closed:
            self._notices = None
            self._conn = await connect_until_async(self._settings, "claiming", self._stop)
            if self._conn is not None and self.pooled:
                # the session is not ours, nor is its default; each transaction says it anew
                await self._conn.set_isolation_level(IsolationLevel.READ_COMMITTED)
        return self._conn is not None

    async def disconnect(self) -> None:
        """Close the connection; the next call of `connect` makes a new one."""
        conn, self._conn, self._notices = self._conn, None, None
        if conn is not None:
            await conn.close()

    async def take(self, queue: str, worker: str, n: int, *, lane: int, idle: bool, dry: int | None) -> Taken:
        """Claim for a worker, which is idle if it has no other job in hand; also the jobs, if they have just come.

        `lane` is the priority that they are likely to have, `dry` the last tick up to which nothing waited.
        Raises QueueNotFound when the queue was dropped, or created anew.
        """
        statement = self._takers.get(queue)
        if statement is None:
            function = await calls.value(self._connection, statements.TAKER_FUNCTION, [queue])
            statement = self._takers[queue] = SQL(statements.TAKE).format(Identifier(function)).as_string(self._conn)
        try:
            found = await self._lightly(statement, [worker, n, lane, idle, dry])
        except SchemaOutdated as exc:
            self._takers.clear()
            raise QueueNotFound(f"queue {queue!r} was dropped, or created anew") from exc
        claim_id, token, dry, job_id, *_ = found[0]
        claim = None if claim_id is None else (claim_id, token)
        return Taken(claim, None if job_id is None else [_job(row[3:]) for row in found], dry)

    async def _lightly(self, statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Run a claim; behind a pooler in a transaction, which can say that it is READ COMMITTED."""
        conn = self._connection
        async with AsyncExitStack() as stack:
            if self.pooled:
                await stack.enter_async_context(calls.transaction(conn))
            stack.enter_context(translate())
            cursor = await stack.enter_async_context(AsyncCursor(conn, row_factory=tuple_row))
            await cursor.execute(statement.encode(), parameters, binary=True)
            return await cursor.fetchall()

    async def jobs(self, claim_id: int, token: int) -> list[ClaimedJob]:
        """The unfinished jobs of a claim."""
        with translate():
            async with AsyncCursor(self._connection) as cursor:
                await cursor.execute(statements.CLAIMED, [claim_id, token], binary=True)
                found = await cursor.fetchall()
        return [_job(row) for row in found]

    async def solo_waits(self, queue: str) -> bool:
        return bool(await calls.value(self._connection, statements.SOLO_WAITS, [queue]))

    async def poke(self, queue: str) -> bool:
        """Do what a ticker would do for a queue; whether there was anything."""
        return await calls.value(self._connection, queries.POKE, [queue]) is not None

    async def ticker_sleeps(self) -> float:
        """For how many seconds a sleeping ticker is known to be alive; 0: none is."""
        return float(await calls.value(self._connection, queries.WAKE_ARMED_MS)) / 1000

    # -- hearing -------------------------------------------------------------------------------------------------------

    async def listen(self, queues: Sequence[str]) -> dict[str, str]:
        """From now on, hear of ticks of these queues and of senders that wake the ticker. Their numbers by name.

        Through a pooler nothing can be heard, which is said once.
        """
        conn = self._connection
        channels = {queue: await calls.value(conn, queries.TICK_CHANNEL, [queue]) for queue in queues}
        if self.pooled:
            if not self._warned:
                logger.warning("a pooler stands before the database: new jobs are found by polling, not heard of")
                self._warned = True
        else:
            self._notices = Notices(conn)  # a tick that a claim of ours made, it has seen
            for channel in (*channels.values(), "pgq_wake"):
                await calls.command(conn, queries.LISTEN.format(Identifier(channel)))
        return {channel.removeprefix("pgq_tick_"): queue for queue, channel in channels.items()}

    @property
    def has_heard(self) -> bool:
        """Something came that was not asked for since."""
        return self._notices is not None and self._notices.any

    def heard(self) -> set[str]:
        """Numbers of queues that have new jobs, of all that was heard since the last call."""
        if self._notices is None:
            return set()
        heard = self._notices.take()
        return {payload if channel == "pgq_wake" else channel.removeprefix("pgq_tick_") for channel, payload in heard}

    async def wait(self, bell: Bell, seconds: float | None) -> bool:
        """Return when something was heard or the bell rings (True), or after so many seconds."""
        if self._notices is None or self._conn is None or self._conn.closed:
            return await bell.wait(seconds)
        loop, number = asyncio.get_running_loop(), self._conn.fileno()
        loop.add_reader(number, bell.ring)
        try:
            return await bell.wait(seconds)
        finally:
            loop.remove_reader(number)

    @property
    def _connection(self) -> AsyncConnection[Any]:
        if self._conn is None:
            raise psycopg.OperationalError("not connected")
        return self._conn


def _job(row: Sequence[Any]) -> ClaimedJob:
    """From the columns of ClaimedJob, with null for no options."""
    return ClaimedJob._make((*row[:9], row[9] or {}))
