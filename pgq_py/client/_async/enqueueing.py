"""Enqueueing jobs by type and payload: one by one, or many in one statement.

`PgQ.job` makes typed functions of this. A single job with nothing special goes through the function that is generated
for its queue, as a single event does. A rotation that was faster than the writer (SQLSTATE 40001) is retried where
the transaction is this client's own, as when sending events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from psycopg import AsyncConnection

from pgq_py.client import job_queries as queries
from pgq_py.client._async import calls
from pgq_py.client._async.connections import AsyncConnections
from pgq_py.client._async.delaying import ATTEMPTS
from pgq_py.client._async.generated import AsyncGenerated, Stale
from pgq_py.client.acompat import AsyncItems, aslices
from pgq_py.client.checks import check_delay, check_items, check_name, check_positive
from pgq_py.client.jobtext import JobText, checked_job, job_text
from pgq_py.errors import InvalidArgument, QueueNotFound, SchemaOutdated, SlotClosed
from pgq_py.job_types import Enqueued, NewJob
from pgq_py.settings import Settings

__all__ = ["LARGEST_CHUNK", "AsyncEnqueueing"]

LARGEST_CHUNK = 1_000
"""Jobs per statement."""


class AsyncEnqueueing(AsyncConnections):
    """The calls that enqueue. `conn` makes a job part of the transaction on that connection."""

    def __init__(self, dsn: str | None = None, *, settings: Settings | None = None) -> None:
        super().__init__(dsn, settings=settings)
        self._enqueuer = AsyncGenerated(queries.ENQUEUER_FUNCTION, queries.ENQUEUE_PLAIN)

    async def enqueue(
        self,
        queue: str,
        type: str,  # noqa: A002 - the column's name
        payload: Any = None,
        *,
        priority: int | None = None,
        run_at: datetime | None = None,
        delay: timedelta | None = None,
        key: str | None = None,
        key_window: timedelta | None = None,
        options: Mapping[str, Any] | None = None,
        conn: Any = None,
    ) -> Enqueued:
        """Enqueue one job; its id, and whether it was created: not when another active job has the same `key`.

        `payload` is any JSON value, by default an empty object. `run_at` (with a time zone) or `delay` is the earliest
        time, by the database's clock. With `key_window` the key is taken for that long, whatever becomes of the job.
        `options` are max_attempts, timeout, tags, traceparent, result_retention, meta. Raises QueueNotFound and
        NotAJobQueue; the queue is made by `create_job_queue`, or by the start of a worker.
        """
        job = checked_job(NewJob(type, payload, priority, run_at, key, key_window, options))
        return await self.enqueue_text(queue, job, delay=delay, conn=conn)

    async def enqueue_many(self, queue: str, jobs: AsyncItems, *, chunk_size: int = 1_000, conn: Any = None) -> int:
        """Enqueue many jobs (`NewJob`, or a tuple in its order) and return how many were created.

        A job whose key is taken, also by an earlier one of the same call, is left out. The input is streamed, at most
        1,000 jobs a statement. Without `conn`, each chunk is a transaction of its own, so an error in between keeps the
        chunks before it; with `conn`, all are part of the transaction on that connection.
        """
        check_items(jobs)
        created = 0
        async for part in aslices(jobs, min(LARGEST_CHUNK, check_positive(chunk_size, "chunk_size"))):
            texts = [checked_job(item if isinstance(item, NewJob) else NewJob(*item)) for item in part]
            created += sum(done.created for done in await self.enqueue_texts(queue, texts, conn=conn))
        return created

    async def enqueue_text(
        self, queue: str, job: JobText, *, delay: timedelta | None = None, conn: Any = None
    ) -> Enqueued:
        """Enqueue one job whose arguments are JSON text already."""
        parameters: list[Any]
        name = check_name(queue, "queue")
        if delay is not None and job.run_at is not None:
            raise InvalidArgument("give either run_at or delay, not both")
        if delay is None and job.run_at is None and job.key is None and job.key_window is None:
            if job.options is None:
                ((id_, created),) = await self._run_jobs(self._enqueuer, [name, *job[:3]], conn)
            else:
                ((id_, created),) = await self._run_jobs(queries.ENQUEUE, [name, *job[:3], job.options], conn)
        else:
            due: list[Any] = [job.run_at, None if delay is None else check_delay(delay, "delay")]
            parameters = [name, *job[:3], *due, *job[4:]]
            ((id_, created),) = await self._run_jobs(queries.ENQUEUE_AT, parameters, conn)
        return Enqueued(id_, created)

    async def enqueue_texts(self, queue: str, jobs: Sequence[JobText], *, conn: Any = None) -> list[Enqueued]:
        """The same for at most a thousand jobs, in one statement; their ids in their order."""
        if not jobs:
            return []
        parameters = [check_name(queue, "queue"), f"[{','.join(map(job_text, jobs))}]"]
        return [Enqueued(*row) for row in await self._run_jobs(queries.ENQUEUE_MANY, parameters, conn)]

    async def time_from_now(self, delay: timedelta, *, conn: Any = None) -> datetime:
        """The time after a delay, by the database's clock, by which jobs are due."""
        async with self._connection(conn) as own:
            due: datetime = await calls.value(own, queries.FROM_NOW, [check_delay(delay, "delay")])
        return due

    async def _run_jobs(
        self, statement: str | AsyncGenerated, parameters: list[Any], conn: Any
    ) -> list[tuple[Any, ...]]:
        """Run it, with parameters from the queue on; and while the slot was closed in between, or the queue's own
        function is gone, run it again, if the transaction is our own."""
        for _ in range(0 if conn is not None else ATTEMPTS - 1):
            try:
                async with self._connection() as own:
                    return await self._enqueued(own, statement, parameters)
            except (SlotClosed, Stale):
                continue
        async with self._connection(conn) as own:
            return await self._enqueued(own, statement, parameters)

    async def _enqueued(
        self, conn: AsyncConnection[Any], statement: str | AsyncGenerated, parameters: list[Any]
    ) -> list[tuple[Any, ...]]:
        try:
            if isinstance(statement, str):
                return await calls.rows(conn, statement, parameters)
            return await self._through(statement, conn, *parameters)
        except Stale:
            raise
        except QueueNotFound as exc:
            name = parameters[0]
            raise QueueNotFound(
                exc.message,
                advice=f"Nothing was enqueued. Create it with `select pgq.create_job_queue('{name}')`, in Python `pgq."
                f'create_job_queue("{name}")`, or start its worker, which does so by itself: `pgq run MODULE:OBJ`.',
            ) from exc

    async def _through(
        self, generated: AsyncGenerated, conn: AsyncConnection[Any], queue: str, *job: Any
    ) -> list[tuple[Any, ...]]:
        (statement,) = await generated.statements(conn, queue)
        try:
            return await calls.rows(conn, statement, job)
        except SchemaOutdated as exc:
            raise generated.forget(conn, queue) from exc
