"""The calls of those who look after jobs, beside those of applications in `jobs`."""

from __future__ import annotations

from typing import Any

from pgq_py.client import job_admin_queries as queries
from pgq_py.client._async import calls
from pgq_py.client._async.connections import AsyncConnections
from pgq_py.client.checks import check_name
from pgq_py.client.encoding import plain_text
from pgq_py.client.job_rows import LaneInfo

__all__ = ["AsyncJobAdmin"]


class AsyncJobAdmin(AsyncConnections):
    """One method per database function."""

    async def replay_all_jobs(
        self,
        queue: str,
        type: str | None = None,  # noqa: A002 - the column's name
        *,
        conn: Any = None,
    ) -> int:
        """As `retry_jobs`, for all jobs of a queue that were given up, of one type or of all; how many."""
        parameters = [check_name(queue, "queue"), plain_text(type, "type")]
        async with self._connection(conn) as own:
            return int(await calls.value(own, queries.REPLAY_JOBS, parameters))

    async def lanes(self, queue: str | None = None, *, conn: Any = None) -> list[LaneInfo]:
        """Priorities of all job queues, or of one, the highest first. Cheap, whatever the backlog."""
        async with self._connection(conn) as own:
            return await calls.records(own, LaneInfo, queries.LANES, [plain_text(queue, "queue")])

    async def fire_schedule(self, name: str, *, conn: Any = None) -> int:
        """Enqueue the job of a schedule now, whatever is due; the job's id. Its due times come as ever.

        Raises ScheduleNotFound.
        """
        async with self._connection(conn) as own:
            return int(await calls.value(own, queries.FIRE_SCHEDULE, [check_name(name, "schedule")]))
