"""What `@pgq.job` makes of a function: still that function when called, and a job when enqueued."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, ParamSpec, TypeVar

from pgq_py.client._async.client import AsyncClient
from pgq_py.client._async.enqueueing import LARGEST_CHUNK
from pgq_py.client.acompat import AsyncItems, aslices
from pgq_py.client.checks import check_items
from pgq_py.jobs._async.handle import AsyncJobHandle
from pgq_py.jobs.options import EnqueueOptions, JobMaker, one_call
from pgq_py.jobs.spec import CatchUp, JobSpec, ScheduleSpec, add_schedule

__all__ = ["AsyncEnqueuer", "AsyncJob"]

P = ParamSpec("P")
R = TypeVar("R")


class AsyncEnqueuer(Generic[P]):
    """Enqueues calls of one function, with certain options."""

    def __init__(self, client: AsyncClient, spec: JobSpec, options: EnqueueOptions) -> None:
        self._client, self.spec, self._options = client, spec, options
        self._maker = JobMaker(spec, options)

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> AsyncJobHandle:
        """Enqueue a call with these arguments, which are checked now.

        Raises InvalidArgument when the function could not be called so, or an argument would not come back from JSON
        as it is; QueueNotFound, NotAJobQueue.
        """
        options = self._options
        job = self._maker.make(args, kwargs)
        done = await self._client.enqueue_text(self.spec.queue, job, delay=options.delay, conn=options.conn)
        return AsyncJobHandle(self._client, self.spec.queue, *done)

    async def enqueue_many(self, calls: AsyncItems) -> list[AsyncJobHandle]:
        """Enqueue many calls, and return their handles in the same order.

        An element is a tuple of arguments, a dict of named ones, or else the only argument. A thousand go in one
        statement, and without `conn` in one transaction: an error in between keeps the thousands before it.
        """
        check_items(calls)
        delay, conn = self._options.delay, self._options.conn
        due = None if delay is None else await self._client.time_from_now(delay, conn=conn)
        handles: list[AsyncJobHandle] = []
        async for part in aslices(calls, LARGEST_CHUNK):
            jobs = [self._maker.make(*one_call(item), due) for item in part]
            done = await self._client.enqueue_texts(self.spec.queue, jobs, conn=conn)
            handles += [AsyncJobHandle(self._client, self.spec.queue, *each) for each in done]
        return handles

    def with_options(
        self,
        *,
        priority: int | None = None,
        run_at: datetime | None = None,
        delay: timedelta | None = None,
        key: str | None = None,
        key_window: timedelta | None = None,
        max_attempts: int | None = None,
        timeout: float | timedelta | None = None,
        tags: Sequence[str] | None = None,
        traceparent: str | None = None,
        meta: Any = None,
        result_retention: timedelta | None = None,
        conn: Any = None,
    ) -> AsyncEnqueuer[P]:
        """The same function to be enqueued otherwise: `job.with_options(delay=timedelta(hours=1)).enqueue(...)`.

        `run_at` (with a time zone) or `delay` is the earliest time, by the database's clock. While a job with the same
        `key` waits or runs, or with `key_window` for that long, no second one is enqueued. `conn` makes the job part
        of the transaction on that connection: psycopg's, or a SQLAlchemy session. `meta` is any JSON of your own, in
        `JobContext.meta`. What is None stays as the declaration says.
        """
        given: dict[str, Any] = {"priority": priority, "run_at": run_at, "delay": delay, "key": key}
        given |= {
            "key_window": key_window,
            "max_attempts": max_attempts,
            "timeout": timeout,
            "tags": tags,
            "traceparent": traceparent,
        }
        given |= {"meta": meta, "result_retention": result_retention, "conn": conn}
        return AsyncEnqueuer(self._client, self.spec, self._options.changed(**given))


class AsyncJob(AsyncEnqueuer[P], Generic[P, R]):
    """A declared job. Calling it calls the function, here and now; `enqueue` has a worker call it later."""

    def __init__(self, client: AsyncClient, spec: JobSpec) -> None:
        super().__init__(client, spec, EnqueueOptions())
        functools.update_wrapper(self, spec.handler)

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        result: R = self.spec.handler(*args, **kwargs)
        return result

    def __repr__(self) -> str:
        return f"<job {self.spec.type!r} of queue {self.spec.queue!r}>"

    def handle(self, job_id: int) -> AsyncJobHandle:
        """The handle of a job that was enqueued elsewhere."""
        return AsyncJobHandle(self._client, self.spec.queue, job_id)

    def schedule(
        self,
        *,
        cron: str,
        tz: str = "UTC",
        name: str | None = None,
        catch_up: CatchUp = "latest",
        max_catch_up: int = 100,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> ScheduleSpec:
        """Declare that the job is enqueued again and again, with these arguments.

        `cron` has five fields, or six with seconds in front; they mean the wall clock of `tz`. Nothing is written now:
        workers tell the database when they start. `catch_up` says which due times that nobody was there for are
        made up for: none, the latest, or all (the last `max_catch_up`). `name` is by default the queue and the type;
        a job with several schedules must name them. Each due time is enqueued once, whatever number of workers runs.
        """
        payload = self.spec.arguments.encode(args, kwargs or {})
        default = f"{self.spec.queue}.{self.spec.type}"
        return add_schedule(self.spec, ScheduleSpec(name or default, cron, tz, catch_up, max_catch_up, payload))
