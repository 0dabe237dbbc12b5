"""Jobs as the JSON text that enqueueing sends, checked before anything is sent.

Arguments come as JSON text, made by whoever knows their types, and are put in as they are: bulk enqueueing spends its
time in making text, so none is made twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pgq_py.client.checks import check_delay, check_name
from pgq_py.client.encoding import check_text, json_text, plain_text
from pgq_py.errors import InvalidArgument
from pgq_py.job_types import NewJob

__all__ = ["JobText", "checked_job", "checked_run_at", "job_text", "options_text", "value_text"]


class JobText(NamedTuple):
    """One checked job: `payload` and `options` are JSON text."""

    type: str
    payload: str = "{}"
    priority: int | None = None
    run_at: datetime | None = None
    key: str | None = None
    key_window: timedelta | None = None
    options: str | None = None


def value_text(value: Any, what: str) -> str:
    """A JSON value as text that PostgreSQL can store. None is no value at all: an empty object."""
    if value is None:
        return "{}"
    text = json_text(value)
    return text if text.isascii() else check_text(text, what)


def options_text(options: Mapping[str, Any] | None) -> str | None:
    """The options of a job. The database knows which there are."""
    return value_text(dict(options), "an option") if options else None


def checked_job(job: NewJob) -> JobText:
    """Raises InvalidArgument for what no job can be."""
    if not isinstance(job.type, str):
        raise InvalidArgument(f"a job's type must be str, not {type(job.type).__name__}")
    if job.priority is not None and (isinstance(job.priority, bool) or not isinstance(job.priority, int)):
        raise InvalidArgument(f"priority must be a whole number, not {job.priority!r}")
    return JobText(
        check_name(job.type, "job type"),
        value_text(job.payload, "payload"),
        job.priority,
        checked_run_at(job.run_at),
        plain_text(job.key, "key"),
        None if job.key_window is None else check_delay(job.key_window, "key_window"),
        options_text(job.options),
    )


def checked_run_at(run_at: Any) -> datetime | None:
    if run_at is not None and (not isinstance(run_at, datetime) or run_at.utcoffset() is None):
        raise InvalidArgument(f"run_at must be a datetime with a time zone, not {run_at!r}")
    checked: datetime | None = run_at
    return checked


def job_text(job: JobText) -> str:
    """An element of the array that `pgq.enqueue_many` takes."""
    parts = [f'"type":{json_text(job.type)},"payload":{job.payload}']
    if job.priority is not None:
        parts.append(f'"priority":{job.priority}')
    if job.run_at is not None:
        parts.append(f'"run_at":"{job.run_at.isoformat()}"')
    if job.key is not None:
        parts.append(f'"key":{json_text(job.key)}')
    if job.key_window is not None:
        window = job.key_window
        parts.append(f'"key_window":"{window.days} days {window.seconds}.{window.microseconds:06} seconds"')
    if job.options is not None:
        parts.append(f'"options":{job.options}')
    return "{" + ",".join(parts) + "}"
