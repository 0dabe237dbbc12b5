"""`@pgq.job`, and what an application wants done around its jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from pgq_py.client._async.client import AsyncClient
from pgq_py.errors import InvalidArgument
from pgq_py.jobs._async.handle import AsyncJobHandle
from pgq_py.jobs._async.job import AsyncJob
from pgq_py.jobs.context import JobContext
from pgq_py.jobs.middleware import Around, Middleware
from pgq_py.jobs.spec import ErrorClass, JobSpec, Key, Retries, job_spec
from pgq_py.settings import Settings

__all__ = ["AsyncDeclaring", "AsyncJobDecorator"]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class AsyncJobDecorator:
    """What `@pgq.job(...)` decorates with. A leading JobContext is the worker's to give: enqueue does not take it."""

    def __init__(self, declaring: AsyncDeclaring, queue: str, options: dict[str, Any]) -> None:
        self._declaring, self._queue, self._options = declaring, queue, options

    @overload
    def __call__(self, handler: Callable[Concatenate[JobContext, P], R]) -> AsyncJob[P, R]: ...

    @overload
    def __call__(self, handler: Callable[P, R]) -> AsyncJob[P, R]: ...

    def __call__(self, handler: Callable[..., Any]) -> AsyncJob[Any, Any]:
        spec = job_spec(handler, self._queue, **self._options)
        specs = self._declaring.job_specs
        if specs.setdefault((spec.queue, spec.type), spec) is not spec:
            raise InvalidArgument(f"job {spec.type!r} of queue {spec.queue!r} is declared twice: give one another type")
        return AsyncJob(self._declaring, spec)


class AsyncDeclaring(AsyncClient):
    """A client with the jobs declared on it, by queue and type, and the middleware around them."""

    def __init__(self, dsn: str | None = None, *, settings: Settings | None = None) -> None:
        super().__init__(dsn, settings=settings)
        self.job_specs: dict[tuple[str, str], JobSpec] = {}
        self.middleware = Middleware()

    def job(
        self,
        queue: str,
        *,
        type: str | None = None,  # noqa: A002 - the column's name
        max_attempts: int | None = None,
        priority: int | None = None,
        timeout: float | timedelta | None = None,
        retries: Retries = None,
        no_retry: Iterable[ErrorClass] = (),
        key: Key = None,
        key_window: timedelta | None = None,
        result_retention: timedelta | None = None,
        transactional: bool = False,
        tags: Iterable[str] = (),
    ) -> AsyncJobDecorator:
        """Decorate a function whose calls can be enqueued, to be made later by one of the queue's workers.

        The function is plain or a coroutine function; its arguments are checked by pydantic, by its annotations, when
        they are enqueued and again when it is called. A parameter annotated with JobContext is given by the worker.
        `type` names it in the database, by default the function's name.

        **Failures.** A job whose function raises comes again, until `max_attempts` are used up, and then becomes a dead
        letter. `retries` says how soon: a RetryPolicy, a number (so many retries, the rest by default), or a function
        of the attempt (from 1) and the exception that returns seconds. `no_retry` names exceptions after which there is
        no point in trying again; the function may also raise `Retry`, `Discard` or `Snooze`. After `timeout`
        (seconds) an attempt has failed; a coroutine is cancelled then, a thread cannot be.

        **Once.** A job is called at least once: again when its worker dies. With `transactional=True` what it writes on
        `JobContext.connection` is committed together with its completion, so those effects are exactly once. While a
        job with the same `key` waits or runs (or for `key_window` from its enqueueing) no other is enqueued; a key is
        text in which `{name}` stands for an argument, or a function of the arguments.

        With `result_retention` the returned value is kept for that long, for `JobHandle.result`. The queue is created
        when a worker starts, or by `create_job_queue`.
        """
        options: dict[str, Any] = {"type": type, "max_attempts": max_attempts, "priority": priority}
        options |= {"timeout": timeout, "retries": retries, "no_retry": no_retry, "key": key, "key_window": key_window}
        options |= {"result_retention": result_retention, "transactional": transactional, "tags": tags}
        return AsyncJobDecorator(self, queue, options)

    def job_handle(self, queue: str, job_id: int) -> AsyncJobHandle:
        """The handle of a job that was enqueued elsewhere."""
        return AsyncJobHandle(self, queue, job_id)

    def before_job(self, hook: F) -> F:
        """Decorate a function of (context), called before each job's own; see `pgq_py.jobs.middleware`."""
        self.middleware.before.append(hook)
        return hook

    def after_job(self, hook: F) -> F:
        """Decorate a function of (context, result), called after a job's own has returned."""
        self.middleware.after.append(hook)
        return hook

    def on_job_failure(self, hook: F) -> F:
        """Decorate a function of (context, exception), called when a job's own has raised."""
        self.middleware.failure.append(hook)
        return hook

    def around_job(self, manager: Around) -> Around:
        """Decorate a function of (context) that returns a context manager, inside which each job's own is called."""
        self.middleware.around.append(manager)
        return manager
