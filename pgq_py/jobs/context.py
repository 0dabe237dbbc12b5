"""What a job's handler is told, and what it can say while it runs.

A handler that wants it has a parameter annotated with `JobContext`, wherever it stands; it is no argument of the job.

    @pgq.job(queue="reports")
    def report(ctx: JobContext, month: str) -> None:
        for done, page in enumerate(pages(month)):
            ctx.raise_if_cancelled()
            ctx.progress(100 * done / len(page), "rendering")
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple, NoReturn, Protocol

from pgq_py.client import job_queries
from pgq_py.client._async import calls as async_calls
from pgq_py.client._sync import calls
from pgq_py.client.checks import check_delay
from pgq_py.errors import InvalidArgument
from pgq_py.outcomes import JobCancelled, Snooze

__all__ = ["ClaimedJob", "JobContext", "JobServices"]


class ClaimedJob(NamedTuple):
    """One row of `pgq.claimed`, in its columns: `ClaimedJob._make(row)`. `attempt` counts from 1."""

    id: int
    type: str
    payload: str
    priority: int
    attempt: int
    max_attempts: int
    losses: int
    created_at: datetime
    key: str | None
    options: dict[str, Any]


class JobServices(Protocol):
    """What a worker does for the handlers that it runs."""

    def progress(self, job: JobContext, percent: float | None, stage: str | None, data: Any) -> None:
        """Pass on how far a job is. Returns at once, from any thread; the newest word of a job wins, and at most four
        a second are sent."""

    def once(self, scope: str, key: str, window: timedelta) -> bool:
        """`pgq.once` in a transaction of its own that is committed on return; called in a handler's thread."""

    async def once_async(self, scope: str, key: str, window: timedelta) -> bool:
        """The same in the event loop."""


class JobContext:
    """One run of one job. Made by the worker, for the length of the run.

    `queue` is the queue's name. `claim_id` names the claim that the run belongs to, for calls of one's own in SQL.
    """

    __slots__ = ("_cancelled", "_connection", "_services", "claim_id", "job", "queue")

    def __init__(
        self, queue: str, job: ClaimedJob, services: JobServices, *, claim_id: int = 0, connection: Any = None
    ) -> None:
        self.queue, self.job, self.claim_id = queue, job, claim_id
        self._services, self._connection = services, connection
        self._cancelled = False

    @property
    def id(self) -> int:
        """The job's number in its queue; the same in every attempt."""
        return self.job.id

    @property
    def type(self) -> str:
        return self.job.type

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1 on."""
        return self.job.attempt

    @property
    def max_attempts(self) -> int:
        return self.job.max_attempts

    @property
    def is_last_attempt(self) -> bool:
        """Whether a failure now makes a dead letter of the job."""
        return self.job.attempt >= self.job.max_attempts

    @property
    def losses(self) -> int:
        """How many workers died with this job; they are not counted as attempts."""
        return self.job.losses

    @property
    def priority(self) -> int:
        """The lane it was claimed from; 0 when it lost a worker before, for then it runs alone."""
        return self.job.priority

    @property
    def key(self) -> str | None:
        """Its idempotency key, None when it has none, or one with a window."""
        return self.job.key

    @property
    def created_at(self) -> datetime:
        return self.job.created_at

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(self.job.options.get("tags", ()))

    @property
    def traceparent(self) -> str | None:
        """The W3C trace context that it was enqueued with."""
        value: str | None = self.job.options.get("traceparent")
        return value

    @property
    def meta(self) -> Any:
        """What was enqueued beside the arguments (`with_options(meta=...)`)."""
        return self.job.options.get("meta")

    @property
    def cancelled(self) -> bool:
        """Whether somebody wants this job to stop. A plain function looks here from time to time; a coroutine gets
        `CancelledError` besides."""
        return bool(self._cancelled)

    def raise_if_cancelled(self) -> None:
        """Leave the handler (JobCancelled) if somebody wants this job to stop."""
        if self._cancelled:
            raise JobCancelled

    def request_cancel(self) -> None:
        """For the worker: somebody wants this job to stop."""
        self._cancelled = True

    @property
    def connection(self) -> Any:
        """The transaction that completes this job (`transactional=True`): what is written there is committed together
        with the completion, or not at all. A psycopg connection, an async one for coroutine functions. Neither commit
        it nor roll it back."""
        if self._connection is None:
            raise InvalidArgument(
                f"the job {self.type!r} has no connection of its own",
                advice="Declare it with transactional=True: then its writes and its completion are one transaction.",
            )
        return self._connection

    def progress(self, percent: float | None = None, stage: str | None = None, data: Any = None) -> None:
        """Say how far the job is: `percent` from 0 to 100, `stage` in at most 200 characters, `data` small JSON.

        It does not wait. At most four a second are sent; the newest wins.
        """
        if percent is not None and not 0 <= percent <= 100:
            raise InvalidArgument(f"percent must be 0 to 100, not {percent!r}")
        self._services.progress(self, percent, stage, data)

    def snooze(self, seconds: float | timedelta) -> NoReturn:
        """Leave the handler: the job is to come again after so long, with no attempt counted (raises Snooze)."""
        delay = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
        raise Snooze(check_delay(delay, "seconds"))

    def once(self, key: str, *, scope: str | None = None, window: timedelta = timedelta(days=1)) -> bool:
        """Whether this is the first time within `window`, for effects outside of the database. For plain functions.

        In a transactional job it is part of the job's transaction: at least once. Otherwise it is committed before it
        returns, and not taken back by a failure behind it: at most once. `scope` is by default the queue and type.
        """
        if self._connection is None:
            return self._services.once(self._scope(scope), key, window)
        return bool(calls.value(self._connection, job_queries.ONCE, [self._scope(scope), key, window]))

    async def once_async(self, key: str, *, scope: str | None = None, window: timedelta = timedelta(days=1)) -> bool:
        """`once` for coroutine functions."""
        if self._connection is None:
            return await self._services.once_async(self._scope(scope), key, window)
        return bool(await async_calls.value(self._connection, job_queries.ONCE, [self._scope(scope), key, window]))

    def _scope(self, scope: str | None) -> str:
        return f"job:{self.queue}:{self.type}" if scope is None else scope
