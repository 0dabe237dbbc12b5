"""What one call of `enqueue` says beside the arguments, and the job that comes of both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from pgq_py.client.checks import check_delay, check_positive
from pgq_py.client.encoding import plain_text
from pgq_py.client.jobtext import JobText, checked_run_at, options_text
from pgq_py.errors import InvalidArgument
from pgq_py.jobs.spec import JobSpec, checked_seconds

__all__ = ["EnqueueOptions", "JobMaker", "one_call"]


@dataclass(frozen=True, slots=True)
class EnqueueOptions:
    """As of `Job.with_options`. None: what the job's declaration says, or nothing."""

    priority: int | None = None
    run_at: datetime | None = None
    delay: timedelta | None = None
    key: str | None = None
    key_window: timedelta | None = None
    max_attempts: int | None = None
    timeout: float | timedelta | None = None
    tags: Iterable[str] | None = None
    traceparent: str | None = None
    meta: Any = None
    result_retention: timedelta | None = None
    conn: Any = None

    def __post_init__(self) -> None:
        if self.run_at is not None and self.delay is not None:
            raise InvalidArgument("give either run_at or delay, not both")
        if self.priority is not None:
            check_positive(self.priority, "priority")
        if self.delay is not None:
            check_delay(self.delay, "delay")
        if self.key_window is not None:
            check_delay(self.key_window, "key_window")
        plain_text(self.key, "key")
        checked_run_at(self.run_at)

    def changed(self, **given: Any) -> EnqueueOptions:
        """These with others put in; what is None in those stays as it is here."""
        merged = {field.name: getattr(self, field.name) for field in fields(self)}
        return EnqueueOptions(**merged | {name: value for name, value in given.items() if value is not None})


class JobMaker:
    """Makes a job of a call's arguments, quickly: what all calls have in common is made once."""

    def __init__(self, spec: JobSpec, options: EnqueueOptions) -> None:
        self._spec = spec
        self._common = JobText(
            spec.type,
            priority=spec.priority if options.priority is None else options.priority,
            run_at=options.run_at,
            key=options.key,
            key_window=spec.key_window if options.key_window is None else options.key_window,
            options=options_text(_job_options(spec, options)),
        )
        self._own_key = options.key is None and spec.key is not None
        if self._common.key_window is not None and options.key is None and spec.key is None:
            raise InvalidArgument("key_window needs a key")

    def make(self, args: Sequence[Any], kwargs: dict[str, Any], run_at: datetime | None = None) -> JobText:
        """The job of a call with these arguments. Raises InvalidArgument."""
        type_, _, priority, due, key, window, options = self._common
        payload = self._spec.arguments.encode(args, kwargs)
        if self._own_key and (key := self._spec.key_of(args, kwargs)) is None:
            window = None
        return JobText(type_, payload, priority, run_at or due, key, window, options)


def one_call(item: Any) -> tuple[Sequence[Any], dict[str, Any]]:
    """An element of a bulk call: a tuple of arguments, a dict of named ones, or else the only argument."""
    if isinstance(item, tuple):
        return item, {}
    return ((), item) if isinstance(item, dict) else ((item,), {})


def _job_options(spec: JobSpec, options: EnqueueOptions) -> dict[str, Any]:
    retention = options.result_retention
    given = {
        "max_attempts": None if options.max_attempts is None else check_positive(options.max_attempts, "max_attempts"),
        "timeout": checked_seconds(options.timeout),
        "tags": None if options.tags is None else [plain_text(tag, "a tag") for tag in options.tags],
        "traceparent": plain_text(options.traceparent, "traceparent"),
        "meta": options.meta,
        "result_retention": None if retention is None else check_delay(retention, "retention").total_seconds(),
    }
    return spec.options() | {name: value for name, value in given.items() if value is not None}
