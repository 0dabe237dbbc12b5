"""What a handler says of events or a job that it could not handle: come again later, or be given up.

Both are exceptions, for a handler usually learns of it deep inside; a handler of whole batches may also return them.
Any other exception is a failure that nobody foresaw: then the retry policy decides.

    raise Retry(in_=timedelta(minutes=5), reason="the shop is closed")
    raise Discard("no such customer")
    return {bad: Discard("no such customer"), busy: Retry()}         # batch=True; the rest is acknowledged

Handlers of jobs raise the same two, and two more: `Snooze` and `JobCancelled`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

from pgq_py.errors import InvalidArgument

if TYPE_CHECKING:
    from pgq_py.types import Event, EventId

__all__ = ["Discard", "JobCancelled", "Outcome", "Retry", "Snooze"]


class _Chosen(Exception):
    """What both have: why, and for which events; `events=None` is all that the handler was called with."""

    def __init__(self, reason: str | None, events: Iterable[Event | EventId] | None) -> None:
        super().__init__(*([] if reason is None else [reason]))
        self.reason = reason
        self.events = None if events is None else tuple(events)


class Retry(_Chosen):
    """These events are to come again, to this consumer: after `in_`, or when the retry policy says.

    It counts as one of the policy's retries; when those are used up, the event becomes a dead letter instead. When
    `events` names some of a batch, the others are done, and what the handler wrote is kept.
    """

    def __init__(
        self,
        *,
        in_: timedelta | None = None,
        reason: str | None = None,
        events: Iterable[Event | EventId] | None = None,
    ) -> None:
        given: object = in_
        if given is not None and not (isinstance(given, timedelta) and given >= timedelta(0)):
            raise InvalidArgument(f"in_ must be a timedelta from 0 on, not {given!r}")
        super().__init__(reason, events)
        self.in_ = in_


class Discard(_Chosen):
    """These events are given up: they become dead letters at once, with this reason. `events` is as in `Retry`."""

    def __init__(self, reason: str | None = None, *, events: Iterable[Event | EventId] | None = None) -> None:
        super().__init__(reason, events)


Outcome: TypeAlias = Retry | Discard


class Snooze(Exception):
    """This job is to come again after `in_`, with no attempt counted; `JobContext.snooze` raises it."""

    def __init__(self, in_: timedelta) -> None:
        given: object = in_
        if not (isinstance(given, timedelta) and given >= timedelta(0)):
            raise InvalidArgument(f"in_ must be a timedelta from 0 on, not {given!r}")
        super().__init__(f"snoozed for {in_}")
        self.in_ = in_


class JobCancelled(Exception):
    """The job was asked to stop, and stops here; `JobContext.raise_if_cancelled` raises it. It is not retried."""
