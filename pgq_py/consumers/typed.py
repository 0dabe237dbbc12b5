"""Typed events: an event's type chooses the Python type that its data is validated against, ahead of the handler.

What does not validate will not do so the next time either: it becomes a dead letter, with pydantic's explanation. A
type that is not among the declared ones may have been deployed at the producer's side first, so it is retried by
default; nothing is ever dropped silently, unless that is asked for.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, TypeAdapter, ValidationError

from pgq_py.errors import InvalidArgument
from pgq_py.outcomes import Discard, Retry
from pgq_py.types import Event

__all__ = ["SKIPPED", "TypedEvents", "Unknown", "UnknownEventType", "typed_events"]

Unknown: TypeAlias = Literal["retry", "dead", "skip", "raise"]
"""What happens to an event of a type that is not declared: comes again by policy, becomes a dead letter, is
acknowledged, or stops the consumer there until somebody does something."""

SKIPPED: Any = object()
"""Read from an event that is to be acknowledged without a call."""


class UnknownEventType(Exception):
    """An event of an undeclared type has come to a consumer that is to stop there."""


class TypedEvents:
    """Reads events. A declared type of `Event` leaves the event as it is."""

    def __init__(self, types: Mapping[str, Any], unknown: Unknown) -> None:
        if not types:
            raise InvalidArgument("types must declare at least one type of event")
        if unknown not in typing.get_args(Unknown):
            raise InvalidArgument(f"unknown must be 'retry', 'dead', 'skip' or 'raise', not {unknown!r}")
        self.unknown = unknown
        self._adapters = {name: None if kind is Event else TypeAdapter(kind) for name, kind in types.items()}

    def read(self, event: Event) -> Any:
        """What the handler gets for an event, or SKIPPED. Raises Retry or Discard for one that it does not get, and
        UnknownEventType."""
        if event.type not in self._adapters:
            return self._read_unknown(event)
        adapter = self._adapters[event.type]
        if adapter is None:
            return event
        try:
            return adapter.validate_json(event.data if event.data is not None else "null")
        except ValidationError as exc:
            raise Discard(f"data of an event of type {event.type!r} is not valid: {exc}") from None

    def _read_unknown(self, event: Event) -> Any:
        problem = f"unknown event type {event.type!r}; declared are {', '.join(map(repr, self._adapters))}"
        if self.unknown == "retry":
            raise Retry(reason=problem)
        if self.unknown == "dead":
            raise Discard(problem)
        if self.unknown == "raise":
            raise UnknownEventType(f"event {event.id}: {problem}")
        return SKIPPED


def typed_events(
    handler: Callable[..., Any], types: Mapping[str, Any] | None, event_type: str | None, unknown: Unknown
) -> TypedEvents | None:
    """What a decorator's arguments and the annotation of the handler's first parameter declare together."""
    kind = _annotated(handler)
    if types is not None and event_type is not None:
        raise InvalidArgument("give either types or event_type, not both")
    if types is not None:
        return TypedEvents(types, unknown)
    if event_type is not None:
        return TypedEvents({event_type: kind or Event}, unknown)
    if kind is not None:
        raise InvalidArgument(
            f"the handler takes a {kind.__name__}: say of which events, with event_type= or types=",
            advice="Nothing was started.",
        )
    return None


def _annotated(handler: Callable[..., Any]) -> Any:
    """The model or dataclass that the handler's first parameter takes, alone or in a list; None for anything else."""
    try:
        name = next(iter(inspect.signature(handler).parameters))
        hint = typing.get_type_hints(handler).get(name)
    except (NameError, StopIteration, TypeError, ValueError):
        return None
    if typing.get_origin(hint) is list:
        (hint,) = typing.get_args(hint)
    is_model = isinstance(hint, type) and (issubclass(hint, BaseModel) or dataclasses.is_dataclass(hint))
    return hint if is_model else None
