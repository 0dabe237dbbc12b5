"""From what a handler raised or returned to what is said of its events in the database.

A failure is the event's own, so it alone comes again or is given up, and its neighbours are acknowledged. Not its own
are a lost connection, a deadlock, a serialization failure, a full disk: then nothing is said, and the events come again
uncounted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple, TypeAlias

from pgq_py.client.reasons import is_nobodys_fault, storable, traceback_text
from pgq_py.errors import InvalidArgument
from pgq_py.outcomes import Discard, Outcome, Retry
from pgq_py.types import Event, EventId

__all__ = ["CallFailed", "Failure", "Failures", "Interrupted", "answered", "failure_of", "grouped", "is_nobodys_fault"]


class Failure(NamedTuple):
    """What is said of a failed event: why, when it is to come again (None: by policy), or that it is given up."""

    reason: str
    retry_in: timedelta | None = None
    dead: bool = False


Failures: TypeAlias = dict[EventId, Failure]


class CallFailed(Exception):
    """A call of the handler failed for all of its events. If the handler `chose` that, there is no culprit to find."""

    def __init__(self, failure: Failure, *, chosen: bool = False) -> None:
        super().__init__(failure.reason)
        self.failure, self.chosen = failure, chosen


class Interrupted(Exception):
    """A call has no outcome, which is logged already: its events come again, uncounted, after a pause."""


def failure_of(exc: BaseException) -> Failure:
    """What an exception says of the events that the handler was called with."""
    if isinstance(exc, Retry):
        return Failure(_reason(exc), exc.in_)
    return Failure(_reason(exc), dead=isinstance(exc, Discard))


def answered(answer: Any, events: list[Event]) -> Failures:
    """What a handler returned, or raised for some events by name, as failures of these events.

    Raises InvalidArgument for an event that it was not called with, or an outcome that is none; and the outcome itself
    when it is about all of them.
    """
    if isinstance(answer, Retry | Discard):
        if answer.events is None:
            raise answer
        answer = dict.fromkeys(answer.events, answer)
    if not isinstance(answer, Mapping):
        return {}
    ids = {event.id for event in events}
    failures: Failures = {}
    for key, outcome in answer.items():
        event_id = key.id if isinstance(key, Event) else key
        if event_id not in ids:
            raise InvalidArgument(f"the handler answered for event {event_id}, with which it was not called")
        if outcome is not None:
            failures[event_id] = failure_of(_checked(outcome))
    return failures


def grouped(failures: Failures) -> Iterable[tuple[Failure, list[EventId]]]:
    """Events with the same failure together: one statement serves them all."""
    groups: dict[Failure, list[EventId]] = {}
    for event_id, failure in failures.items():
        groups.setdefault(failure, []).append(event_id)
    return groups.items()


def _checked(outcome: Any) -> Outcome:
    if isinstance(outcome, Retry | Discard):
        return outcome
    raise InvalidArgument(f"the outcome of an event is Retry(...), Discard(...) or None, not {outcome!r}")


def _reason(exc: BaseException) -> str:
    """What is kept with the dead letter: the handler's own words, else the traceback from the handler on."""
    if isinstance(exc, Retry | Discard):
        cause = exc.__cause__ or exc.__context__
        if exc.reason is not None:
            return storable(exc.reason)
        if cause is None:
            return f"the handler raised {type(exc).__name__}"
        exc = cause
    return traceback_text(exc)
