"""Jobs that are completed in the transaction of their own writes, so that both take effect or neither does.

The completion is the last statement before the commit. Whoever was declared dead meanwhile, or whose job somebody else
has finished, collides there at every isolation level, and what it wrote is rolled back. A handler that wants another
level than READ COMMITTED says so in its first statement: `set transaction isolation level serializable`.
"""

from __future__ import annotations

import random
from asyncio import CancelledError
from itertools import count
from typing import Any

from psycopg import AsyncConnection

from pgq_py.client._async import calls
from pgq_py.client._async.connections import AsyncConnections
from pgq_py.client.acompat import AsyncStop
from pgq_py.errors import ClaimLost
from pgq_py.jobs import statements
from pgq_py.jobs.context import JobContext, JobServices
from pgq_py.jobs.worker.verdicts import Refused, answered, undone
from pgq_py.jobs.worker.work import Outcome, Said, Work
from pgq_py.settings import Settings

__all__ = ["AsyncTransactions"]


class AsyncTransactions:
    """Runs transactional jobs, at most `most` at a time, each on a connection of its own for as long as it runs."""

    def __init__(self, settings: Settings, services: JobServices, most: int) -> None:
        size = min(max(settings.pool_max_size, most), 1000)
        self._connections = AsyncConnections(settings=settings.model_copy(update={"pool_max_size": size}))
        self._services = services
        self._pause = AsyncStop()

    async def aclose(self) -> None:
        """Give the connections back."""
        await self._connections.aclose()

    async def run(self, work: Work) -> Outcome:
        """Run the handler until its transaction is committed, or it is clear that it will not be."""
        for tries in count(1):
            try:
                await self._attempt(work)
            except (Exception, CancelledError, SystemExit) as exc:
                said = undone(work, exc, tries)
                if said is not None:
                    return said
            else:
                break
            await self._pause.sleep(random.uniform(0.5, 1.5) * 0.002 * 2**tries)
        return Said("settled")

    async def _attempt(self, work: Work) -> None:
        """One transaction."""
        async with self._connections.transaction() as conn:
            work.context = JobContext(
                work.claim.queue, work.job, self._services, claim_id=work.claim.id, connection=conn
            )
            if work.cancelled:
                work.context.request_cancel()
            args, kwargs = work.arguments()
            said = answered(work, await work.handler.call(work.context, args, kwargs))
            if said is not None and said.kind != "completed":
                raise Refused(said)
            await self._complete(conn, work, said)

    async def _complete(self, conn: AsyncConnection[Any], work: Work, said: Outcome) -> None:
        claim, job = work.claim, work.job.id
        if said is not None:
            result = [claim.id, claim.token, job, said.result, said.retention]
            await calls.value(conn, statements.SET_RESULT, result)
        if claim.size == 1:
            done = await calls.value(conn, statements.COMPLETE_ALL, [claim.id, claim.token])
        else:
            done = await calls.value(conn, statements.COMPLETE, [claim.id, claim.token, [job]])
        if done == 0:
            raise ClaimLost(f"job {job} was finished by somebody else")
