"""What a job is, as its decorator states it, checked when it is stated."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, TypeAlias, get_args

from pgq_py.client.checks import check_delay, check_name, check_positive
from pgq_py.client.encoding import plain_text
from pgq_py.errors import InvalidArgument
from pgq_py.jobs.arguments import Arguments
from pgq_py.jobs.context import JobContext
from pgq_py.jobs.recurring import check_cron
from pgq_py.types import RetryPolicy

__all__ = [
    "CatchUp",
    "ErrorClass",
    "JobSpec",
    "Key",
    "Retries",
    "ScheduleSpec",
    "add_schedule",
    "checked_seconds",
    "job_spec",
]

CatchUp: TypeAlias = Literal["none", "latest", "all"]
"""Which of the due times that nobody was there for are made up for."""

Retries: TypeAlias = RetryPolicy | int | Callable[[int, BaseException], float | None] | None
"""When a failed job comes again: by a policy, after so many retries never again, or after the seconds that a function
of the attempt (from 1) and the exception returns (None: by the policy in the database)."""

ErrorClass: TypeAlias = type[BaseException]

Key: TypeAlias = str | Callable[..., str | None] | None
"""An idempotency key: text in which `{name}` stands for an argument, or a function of the job's arguments."""


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """A recurring job: what `set_schedule` is told at the start of a worker. `payload` is JSON text."""

    name: str
    cron: str
    tz: str = "UTC"
    catch_up: CatchUp = "latest"
    max_catch_up: int = 100
    payload: str = "{}"


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A handler, and how its jobs are enqueued and run.

    A coroutine function runs in an event loop, every other handler in a thread. What is None is left to the database's
    defaults. `max_attempts` counts the first one. `timeout` and a callable `retries` speak of seconds. `context_name`
    is the parameter that takes the JobContext. `schedules` grows while the application is imported.
    """

    queue: str
    type: str
    handler: Callable[..., Any]
    arguments: Arguments
    max_attempts: int | None = None
    priority: int | None = None
    timeout: float | None = None
    retries: Retries = None
    no_retry: tuple[ErrorClass, ...] = ()
    key: Key = None
    key_window: timedelta | None = None
    result_retention: timedelta | None = None
    transactional: bool = False
    context_name: str | None = None
    tags: tuple[str, ...] = ()
    schedules: list[ScheduleSpec] = field(default_factory=list)

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.handler)

    @property
    def wants_context(self) -> bool:
        return self.context_name is not None

    @property
    def retry_policy(self) -> RetryPolicy | None:
        """What `set_retry_policy(queue, 'job:' || type, ...)` is told at the start of a worker; None: nothing."""
        return self.retries if isinstance(self.retries, RetryPolicy) else None

    def retry_in(self, attempt: int, error: BaseException) -> timedelta | None:
        """After which time a job whose attempt failed comes again; None: when the policy in the database says."""
        if not callable(self.retries):
            return None
        seconds = self.retries(attempt, error)
        return None if seconds is None else timedelta(seconds=max(0.0, seconds))

    def is_retryable(self, error: BaseException) -> bool:
        """Whether another attempt after this error makes sense."""
        return not isinstance(error, self.no_retry)

    def call_arguments(self, payload: str, context: JobContext) -> tuple[list[Any], dict[str, Any]]:
        """What the handler is called with. Raises InvalidArgument for a payload that it does not take."""
        args, kwargs = self.arguments.decode(payload)
        if self.context_name is not None:
            kwargs[self.context_name] = context
        return args, kwargs

    def key_of(self, args: Sequence[Any], kwargs: dict[str, Any]) -> str | None:
        """The idempotency key of a job with these arguments, which were checked before; None for none."""
        if self.key is None:
            return None
        if callable(self.key):
            key = self.key(*args, **kwargs)
        else:
            try:
                key = self.key.format(**self.arguments.named(args, kwargs))
            except (LookupError, AttributeError, ValueError) as exc:
                raise InvalidArgument(f"the key {self.key!r} of job {self.type!r} cannot be made: {exc!r}") from exc
        return plain_text(key, "key")

    def options(self) -> dict[str, Any]:
        """The options of `pgq.enqueue` that all its jobs have."""
        retention = self.result_retention
        attempts = self.retries + 1 if isinstance(self.retries, int) else self.max_attempts
        possible = {
            "max_attempts": attempts,
            "timeout": self.timeout,
            "tags": list(self.tags) or None,
            "result_retention": None if retention is None else retention.total_seconds(),
        }
        return {name: value for name, value in possible.items() if value is not None}


def job_spec(
    handler: Callable[..., Any],
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
) -> JobSpec:
    """A checked JobSpec. The type is by default the function's name."""
    name = check_name(handler.__name__ if type is None else type, "job type")
    arguments = Arguments(handler, name, JobContext)
    if transactional and arguments.context_name is None:
        raise InvalidArgument(
            f"the transactional job {name!r} must take a JobContext: its transaction is there, as `connection`"
        )
    if key_window is not None and key is None:
        raise InvalidArgument("key_window needs a key")
    return JobSpec(
        queue=check_name(queue, "queue"),
        type=name,
        handler=handler,
        arguments=arguments,
        max_attempts=None if max_attempts is None else check_positive(max_attempts, "max_attempts"),
        priority=None if priority is None else check_positive(priority, "priority"),
        timeout=checked_seconds(timeout),
        retries=_checked_retries(retries, max_attempts),
        no_retry=_checked_errors(no_retry),
        key=key,
        key_window=key_window,
        result_retention=None if result_retention is None else check_delay(result_retention, "result_retention"),
        transactional=transactional,
        context_name=arguments.context_name,
        tags=tuple(plain_text(tag, "a tag") or "" for tag in tags),
    )


def add_schedule(spec: JobSpec, schedule: ScheduleSpec) -> ScheduleSpec:
    """Declare a recurring job. Raises InvalidArgument for a name that was given before, or an impossible schedule."""
    check_name(schedule.name, "schedule")
    if any(schedule.name == other.name for other in spec.schedules):
        raise InvalidArgument(f"job {spec.type!r} has a schedule {schedule.name!r} already: give each a name")
    if schedule.catch_up not in get_args(CatchUp):
        raise InvalidArgument(f"catch_up must be 'none', 'latest' or 'all', not {schedule.catch_up!r}")
    check_positive(schedule.max_catch_up, "max_catch_up")
    check_cron(schedule.cron, schedule.tz)
    spec.schedules.append(schedule)
    return schedule


def checked_seconds(timeout: Any) -> float | None:
    """A timeout in seconds, None for none."""
    if timeout is None:
        return None
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise InvalidArgument(f"timeout must be more than 0 seconds, not {timeout!r}")
    return float(seconds)


def _checked_retries(retries: Any, max_attempts: int | None) -> Retries:
    if isinstance(retries, bool) or not (
        retries is None or callable(retries) or isinstance(retries, int | RetryPolicy)
    ):
        raise InvalidArgument(f"retries must be a RetryPolicy, a number, a function or None, not {retries!r}")
    if isinstance(retries, int):
        if max_attempts is not None:
            raise InvalidArgument("give either max_attempts or a number of retries, not both")
        if not 0 <= retries < 1_000_000:
            raise InvalidArgument(f"retries must be 0 to 999999, not {retries}")
    checked: Retries = retries
    return checked


def _checked_errors(no_retry: Iterable[Any]) -> tuple[ErrorClass, ...]:
    errors = tuple(no_retry)
    for error in errors:
        if not (isinstance(error, type) and issubclass(error, BaseException)):
            raise InvalidArgument(f"no_retry must name classes of exceptions, not {error!r}")
    return errors
