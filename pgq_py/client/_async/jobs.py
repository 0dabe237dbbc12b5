"""What becomes of jobs, and what operators do to them and their queues."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Literal

from psycopg import AsyncConnection
from psycopg.sql import Identifier

from pgq_py.client import job_queries as queries
from pgq_py.client._async import calls
from pgq_py.client._async.connections import connect_async
from pgq_py.client._async.enqueueing import AsyncEnqueueing
from pgq_py.client.acompat import AsyncStop
from pgq_py.client.checks import check_delay, check_name, check_positive
from pgq_py.client.encoding import plain_text
from pgq_py.client.jobtext import options_text, value_text
from pgq_py.client.listening import Notices
from pgq_py.client.queries import LISTEN
from pgq_py.errors import JobFailed
from pgq_py.job_types import JobState, JobStats, JobStatus, Schedule, WorkerInfo

__all__ = ["AsyncJobs"]

_PAST = {"failed": "failed", "cancelled": "been cancelled"}


class AsyncJobs(AsyncEnqueueing):
    """One method per database function, with its arguments and its answer as a Python value."""

    async def create_job_queue(
        self, queue: str, priorities: Sequence[int] = (150, 100, 30), *, conn: Any = None
    ) -> bool:
        """Create a queue of jobs with a lane for each priority; False when it was there. Higher ones come first."""
        parameters = [check_name(queue, "queue"), [check_positive(number, "a priority") for number in priorities]]
        async with self._connection(conn) as own:
            return bool(await calls.value(own, queries.CREATE_JOB_QUEUE, parameters))

    async def declare_priority(self, queue: str, priority: int, *, conn: Any = None) -> bool:
        """Give a queue one more priority; False when it has it. In a transaction of its own."""
        parameters = [check_name(queue, "queue"), check_positive(priority, "priority")]
        async with self._connection(conn) as own:
            return bool(await calls.value(own, queries.DECLARE_PRIORITY, parameters))

    async def set_job_config(self, queue: str, name: str, value: Any, *, conn: Any = None) -> None:
        """Set `lease`, `max_losses`, `held_limit` or `archive` of a job queue."""
        parameters = [check_name(queue, "queue"), plain_text(name, "name"), str(value)]
        async with self._connection(conn) as own:
            await calls.value(own, queries.SET_JOB_CONFIG, parameters)

    async def grant_work(self, queue: str, role: str, *, conn: Any = None) -> bool:
        """Let a role work the queue's jobs; False when it may already. Enqueueing is granted by `grant_produce`."""
        parameters = [check_name(queue, "queue"), check_name(role, "role")]
        async with self._connection(conn) as own:
            return bool(await calls.value(own, queries.GRANT_WORK, parameters))

    async def revoke_work(self, queue: str, role: str, *, conn: Any = None) -> bool:
        """Undo `grant_work`; False when it was not granted."""
        parameters = [check_name(queue, "queue"), check_name(role, "role")]
        async with self._connection(conn) as own:
            return bool(await calls.value(own, queries.REVOKE_WORK, parameters))

    async def get_job(self, queue: str, job_id: int, *, conn: Any = None) -> JobStatus | None:
        """What has become of a job; None when there is no trace of it (any more)."""
        async with self._connection(conn) as own:
            found = await calls.records(own, JobStatus, queries.JOB, [check_name(queue, "queue"), job_id])
        return found[0] if found else None

    async def list_jobs(
        self,
        queue: str,
        state: JobState | None = None,
        type: str | None = None,  # noqa: A002 - the column's name
        limit: int = 100,
        before: int | None = None,
        *,
        conn: Any = None,
    ) -> list[JobStatus]:
        """Jobs of a queue, newest first, in pages: `before` is the last id of the page before. Not for counting."""
        parameters = [check_name(queue, "queue"), state, type, check_positive(limit, "limit"), before]
        async with self._connection(conn) as own:
            return await calls.records(own, JobStatus, queries.JOBS, parameters)

    async def job_stats(self, queue: str | None = None, *, conn: Any = None) -> list[JobStats]:
        """Counts of one job queue, or of all."""
        name = None if queue is None else check_name(queue, "queue")
        async with self._connection(conn) as own:
            return await calls.records(own, JobStats, queries.JOB_STATS, [name])

    async def workers(self, *, conn: Any = None) -> list[WorkerInfo]:
        """Workers that send heartbeats, and those that ended within a day."""
        async with self._connection(conn) as own:
            return await calls.records(own, WorkerInfo, queries.WORKERS)

    async def cancel_jobs(self, queue: str, job_ids: Iterable[int], *, conn: Any = None) -> dict[int, str | None]:
        """Cancel jobs, and say of each what became of it.

        'cancelled': it will not run. 'cancel_requested': it runs, and is asked to stop. 'completed', 'failed': too
        late. None: no trace of it.
        """
        async with self._connection(conn) as own:
            return dict(await calls.rows(own, queries.CANCEL, [check_name(queue, "queue"), list(job_ids)]))

    async def retry_jobs(self, queue: str, job_ids: Iterable[int], *, conn: Any = None) -> int:
        """Run jobs that were given up again, from their first attempt; how many. Raises KeyTaken."""
        async with self._connection(conn) as own:
            return int(await calls.value(own, queries.RETRY_JOBS, [check_name(queue, "queue"), list(job_ids)]))

    async def once(self, scope: str, key: str, window: timedelta = timedelta(days=1), *, conn: Any = None) -> bool:
        """Whether this is the first call for the key within the window. A competitor waits for the first to commit."""
        parameters = [check_name(scope, "scope"), plain_text(key, "key"), check_delay(window, "window")]
        async with self._connection(conn) as own:
            return bool(await calls.value(own, queries.ONCE, parameters))

    async def job_result(self, queue: str, job_id: int, timeout: float | None = None) -> Any:
        """Wait for a job to finish, and return its result: a JSON value, None when it kept none.

        Raises JobFailed when it has failed for good or was cancelled, or left no trace; ResultExpired; TimeoutError
        after `timeout` seconds (0: look once). Waiting takes a connection of its own.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        done, result = await self._result(queue, job_id)
        if done:
            return result
        if timeout != 0:
            async with await connect_async(self.settings, "result") as conn:
                done, result = await self._wait_for_result(conn, queue, job_id, deadline)
        if not done:
            raise TimeoutError(f"job {job_id} of queue {queue!r} has not finished within {timeout:g} s")
        return result

    async def _wait_for_result(
        self, conn: AsyncConnection[Any], queue: str, job_id: int, deadline: float | None
    ) -> tuple[bool, Any]:
        """Look when a result is announced. A job that fails announces nothing, so also from time to time."""
        channel = await calls.value(conn, queries.RESULT_CHANNEL, [queue])
        await calls.command(conn, LISTEN.format(Identifier(channel)))
        notices, never, pause = Notices(conn), AsyncStop(), 0.02
        while True:
            done, result = await self._result(queue, job_id)
            left = 1.0 if deadline is None else deadline - time.monotonic()
            if done or left <= 0:
                return done, result
            await never.sleep_or_read(conn.fileno(), min(pause, left))
            notices.take()
            pause = min(1.0, pause * 1.5)

    async def _result(self, queue: str, job_id: int) -> tuple[bool, Any]:
        """Whether the job is done, and its result."""
        async with self._connection() as own:
            ((state, result, error),) = await calls.rows(own, queries.RESULT, [check_name(queue, "queue"), job_id])
        if state is None:
            raise JobFailed(
                f"there is no trace of job {job_id} of queue {queue!r}",
                advice="Was the transaction that enqueued it committed? Traces of old jobs go with rotation.",
            )
        if state in ("failed", "cancelled"):
            raise JobFailed(f"job {job_id} of queue {queue!r} has {_PAST[state]}" + (f": {error}" if error else ""))
        return state == "completed", result

    async def set_schedule(
        self,
        name: str,
        queue: str,
        type: str,  # noqa: A002 - the column's name
        cron: str,
        *,
        tz: str = "UTC",
        payload: Any = None,
        priority: int | None = None,
        options: dict[str, Any] | None = None,
        catch_up: Literal["none", "latest", "all"] = "latest",
        max_catch_up: int = 100,
        enabled: bool = True,
        conn: Any = None,
    ) -> bool:
        """Create or change a recurring job; True when it was created. The workers of any job queue fire it."""
        texts = [value_text(payload, "payload"), priority, options_text(options) or "{}"]
        names = [check_name(name, "schedule"), check_name(queue, "queue"), check_name(type, "job type")]
        parameters = [*names, cron, tz, *texts, catch_up, max_catch_up, enabled]
        async with self._connection(conn) as own:
            return bool(await calls.value(own, queries.SET_SCHEDULE, parameters))

    async def drop_schedule(self, name: str, *, conn: Any = None) -> bool:
        """Remove a recurring job; False when there is none. Jobs that it enqueued stay."""
        async with self._connection(conn) as own:
            return bool(await calls.value(own, queries.DROP_SCHEDULE, [check_name(name, "schedule")]))

    async def schedules(self, name: str | None = None, *, conn: Any = None) -> list[Schedule]:
        """Recurring jobs, all or one."""
        async with self._connection(conn) as own:
            return await calls.records(own, Schedule, queries.SCHEDULES, [name])
