"""Jobs as the JSON text that enqueueing sends, checked before anything is sent.

Arguments come as JSON text, made by whoever knows their types, and are put in as they are: bulk enqueueing spends its
time in making text, so none is made twice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from pgq_py.client.checks import check_delay, check_name
from pgq_py.client.encoding import check_text, json_text, plain_text
from pgq_py.errors import InvalidArgument
from pgq_py.job_types import NewJob

__all__ = [
    "JobText",
    "checked_job",
    "checked_run_at",
    "contains_no_number",
    "exact_json",
    "job_text",
    "options_text",
    "shortened",
    "value_text",
]

_NOT_ENQUEUED = "Nothing was enqueued."

_MANY_DIGITS = re.compile(r"\d{19}")
_STRING_OR_LARGE = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d[\d.]*e\+\d+')


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
    """A JSON value as text that comes back as it is. None is no value at all: an empty object."""
    return "{}" if value is None else exact_json(value, what)


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


def exact_json(value: Any, what: str) -> str:
    """JSON text from which PostgreSQL's jsonb and any reader get the same value again, or InvalidArgument."""
    try:
        text = json_text(value)
        if not text.isascii():
            check_text(text, "a text")
    except InvalidArgument as exc:
        raise InvalidArgument(f"{what}: {exc.message}", advice=_NOT_ENQUEUED) from None
    if _MANY_DIGITS.search(text):
        _check_whole_numbers(value, what)
    if "e+" in text:
        # jsonb writes 1e23 as the digits of a whole number, which it would be read as
        text = _STRING_OR_LARGE.sub(_with_point, text)
    return text


def contains_no_number(value: Any) -> bool:
    """Whether there is a NaN or an infinity, which pydantic writes as null where a type is open or a model says so."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(contains_no_number, value))
    return isinstance(value, float) and not math.isfinite(value)


def _with_point(token: re.Match[str]) -> str:
    return token[0] if token[0].startswith('"') else f"{Decimal(token[0]):f}.0"


def _check_whole_numbers(value: Any, what: str) -> None:
    """Refuse what other languages' 64 bits, and PostgreSQL's bigint, do not hold."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            _check_whole_numbers(part, what)
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InvalidArgument(
            f"{what}: {shortened(value)} has more than 64 bits, which not every reader of JSON keeps exactly",
            advice=f"{_NOT_ENQUEUED} Annotate the parameter with Decimal or str.",
        )


def shortened(value: Any) -> str:
    """A value as it can be shown in an error."""
    text = str(value) if isinstance(value, int) and value.bit_length() < 200 else repr(value)[:80]
    return text if len(text) <= 60 else f"{text[:60]}..."
