"""Times and durations as a user types them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import typer

__all__ = ["DURATION", "duration_of", "time_of"]

DURATION = "such as 30s, 10m, 1h30m, 2d"

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)")


def duration_of(text: str, hint: str) -> timedelta:
    """`90`, `90s`, `1h30m`. A bare number is seconds. Anything else is wrong usage of the option `hint`."""
    total, end = 0.0, 0
    while part := _PART.match(text, end):
        if (part[2] or "s") not in _UNITS:
            break
        total += float(part[1]) * _UNITS[part[2] or "s"]
        end = part.end()
    if end == 0 or text[end:].strip():
        raise typer.BadParameter(f"{text!r} is not a duration, {DURATION}", param_hint=hint)
    try:
        return timedelta(seconds=total)
    except OverflowError:
        raise typer.BadParameter(f"{text!r} is too long", param_hint=hint) from None


def time_of(text: str, hint: str) -> datetime:
    """ISO 8601, of the local zone unless it says otherwise."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a time in ISO 8601", param_hint=hint) from None
    return time.astimezone() if time.tzinfo is None else time
