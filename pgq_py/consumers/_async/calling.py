"""Calling a handler, and finding out for which of its events it failed.

Whatever a call ends in is one of three: it returns the failures of single events (most often none); CallFailed says
that all of its events failed; Interrupted, that nothing can be said of them now.
"""

from __future__ import annotations

import logging
from typing import Any

from pgq_py.consumers.failures import (
    CallFailed,
    Failures,
    Interrupted,
    answered,
    failure_of,
    is_nobodys_fault,
)
from pgq_py.consumers.spec import ConsumerSpec
from pgq_py.consumers.typed import SKIPPED, UnknownEventType
from pgq_py.outcomes import Discard, Retry
from pgq_py.types import Event

__all__ = ["AsyncCaller"]

logger = logging.getLogger("pgq_py.consumers")

NONE: Failures = {}


class AsyncCaller:
    """Calls the handler of one consumer."""

    def __init__(self, spec: ConsumerSpec) -> None:
        self._spec, self._handler, self._typed = spec, spec.handler, spec.typed
        self._name = f"{spec.queue}/{spec.name}"

    async def one(self, event: Event, *tx: Any) -> Failures:
        """Call it with one event."""
        failures: Failures = {}
        try:
            if self._typed is None:
                answer = await self._handler(event, *tx)
            else:
                values, readable = self._read([event], failures)
                if not readable:
                    return failures
                raw = {"event": event} if self._spec.with_event else {}
                answer = await self._handler(values[0], *tx, **raw)
            return NONE if answer is None else answered(answer, [event])
        except Exception as exc:
            raise self._judged(exc, [event]) from exc

    async def many(self, events: list[Event], *tx: Any) -> Failures:
        """Call it with a list of events, those left out that could not be read."""
        failures: Failures = {}
        try:
            values, readable = self._read(events, failures)
            if not readable:
                return failures
            raw = {"events": readable} if self._spec.with_event else {}
            answer = await self._handler(values, *tx, **raw)
            return failures | answered(answer, readable)
        except (Retry, Discard) as exc:
            if exc.events is None:
                raise self._judged(exc, events) from exc
            return failures | self._named(exc, events)
        except Exception as exc:
            raise self._judged(exc, events) from exc

    def _named(self, outcome: Retry | Discard, events: list[Event]) -> Failures:
        """An outcome raised for some of the events."""
        try:
            return answered(outcome, events)
        except Exception as exc:
            raise self._judged(exc, events) from exc

    def _read(self, events: list[Event], failures: Failures) -> tuple[list[Any], list[Event]]:
        """What the handler gets for the events that it gets something for, and these. Fills `failures`."""
        if self._typed is None:
            return events, events
        values, readable = [], []
        for event in events:
            try:
                value = self._typed.read(event)
            except (Retry, Discard) as outcome:
                logger.error("%s: event %s: %s", self._name, event.id, outcome)
                failures[event.id] = failure_of(outcome)
                continue
            if value is not SKIPPED:
                values.append(value)
                readable.append(event)
        return values, readable

    def _judged(self, exc: Exception, events: list[Event]) -> CallFailed | Interrupted:
        """Whose fault it is, and the log's entry about it."""
        which = f"event {events[0].id}" if len(events) == 1 else f"{len(events)} events from {events[0].id} on"
        if isinstance(exc, Retry | Discard):
            what = "to come again" if isinstance(exc, Retry) else "given up"
            logger.warning("%s: %s: %s: %s", self._name, which, what, exc)
            return CallFailed(failure_of(exc), chosen=True)
        if is_nobodys_fault(exc):
            logger.warning("%s: %s will come again: %r", self._name, which, exc)
        elif self._spec.on_error == "block" or isinstance(exc, UnknownEventType):
            logger.error("%s: stopped at %s, which will come again: %r", self._name, which, exc, exc_info=exc)
        else:
            logger.error("%s: the handler failed on %s: %r", self._name, which, exc, exc_info=exc)
            return CallFailed(failure_of(exc))
        return Interrupted(repr(exc))
