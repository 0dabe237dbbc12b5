"""Arguments checked at the door: what could only fail later, or elsewhere, fails here, with what is allowed."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any

from pgq_py.client.encoding import plain_text
from pgq_py.errors import InvalidArgument

__all__ = [
    "check_delay",
    "check_due",
    "check_items",
    "check_name",
    "check_positive",
    "check_seconds",
    "check_target",
    "check_target_text",
]

_LONGEST_DELAY = timedelta(days=3650)


def check_name(name: Any, what: str) -> str:
    """A queue's or consumer's name: a str that is not empty. The database knows the longest one."""
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"the {what}'s name must be a str of at least one character, not {name!r}")
    plain_text(name, f"the {what}'s name")
    return name


def check_positive(value: Any, what: str) -> int:
    """A whole number from 1 to 2147483647."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 0x7FFFFFFF:
        raise InvalidArgument(f"{what} must be a whole number from 1 to 2147483647, not {value!r}")
    return value


def check_seconds(value: Any, what: str) -> float:
    """A finite time in seconds, 0 included."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not (0 <= value < math.inf):
        raise InvalidArgument(f"{what} must be a number of seconds from 0 on, not {value!r}")
    return float(value)


def check_target(target: Any) -> int | str | datetime:
    """Where a consumer can be placed: a tick id, 'earliest', 'latest', or an aware time."""
    if isinstance(target, int) and not isinstance(target, bool):
        return target
    if isinstance(target, datetime) and target.tzinfo is not None:
        return target
    if target in ("earliest", "latest"):
        return str(target)
    raise InvalidArgument(
        f"a position is a tick id, 'earliest', 'latest' or a datetime with a time zone, not {target!r}"
    )


def check_target_text(target: Any) -> int | str | datetime:
    """The same where the database reads texts: a tick or a time as text will do as well."""
    return plain_text(target, "target") or "" if isinstance(target, str) else check_target(target)


def check_delay(delay: Any, what: str) -> timedelta:
    """A span of time from 0 to ten years."""
    if not isinstance(delay, timedelta) or not timedelta(0) <= delay <= _LONGEST_DELAY:
        raise InvalidArgument(f"{what} must be a timedelta from 0 to ten years, not {delay!r}")
    return delay


def check_due(at: Any, after: Any) -> tuple[datetime | None, timedelta | None] | None:
    """When to deliver: an aware time, or a delay; None for at once. The database knows the latest possible time."""
    if at is None:
        return None if after is None else (None, check_delay(after, "deliver_in"))
    if after is not None:
        raise InvalidArgument("give either deliver_at or deliver_in, not both")
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise InvalidArgument(f"deliver_at must be a datetime with a time zone, not {at!r}")
    return at, None


def check_items(events: Any) -> None:
    """A str or dict can be iterated, but hardly ever as a collection of events."""
    if isinstance(events, str | bytes | dict):
        raise InvalidArgument(f"events must be a collection of events, not one {type(events).__name__}: use send")
