"""What a consumer is, as its decorator states it, checked when it is stated."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pgq_py.client.checks import check_name, check_positive
from pgq_py.consumers.typed import TypedEvents, Unknown, typed_events
from pgq_py.errors import InvalidArgument
from pgq_py.types import RetryPolicy

__all__ = ["ConsumerSpec", "consumer_spec"]


@dataclass(frozen=True, slots=True)
class ConsumerSpec:
    """A handler and the subscription that feeds it.

    `max_events` bounds what one call (batch=True) and one transaction (exactly_once) take; None leaves it to the
    settings. A coroutine function is run in an event loop, every other handler in a thread. `with_event` says that the
    handler of typed events takes the events themselves as well.
    """

    queue: str
    name: str
    handler: Callable[..., Any]
    exactly_once: bool
    batch: bool
    max_events: int | None
    retries: RetryPolicy | None = None
    on_error: Literal["retry", "block"] = "retry"
    on_evicted: Literal["stop", "register"] = "stop"
    typed: TypedEvents | None = None
    with_event: bool = False

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.handler)


def consumer_spec(
    handler: Callable[..., Any],
    queue: str,
    name: str,
    *,
    exactly_once: bool,
    batch: bool,
    max_events: int | None,
    retries: RetryPolicy | int | None = None,
    on_error: Literal["retry", "block"] = "retry",
    on_evicted: Literal["stop", "register"] = "stop",
    types: Mapping[str, Any] | None = None,
    event_type: str | None = None,
    unknown: Unknown | None = None,
) -> ConsumerSpec:
    """A checked ConsumerSpec.

    Handlers are called with the event, or the list of events of a batch; exactly-once ones also with the transaction
    that their writes belong into, without which the promise would be empty.
    """
    check_name(queue, "queue")
    check_name(name, "consumer")
    if max_events is not None:
        check_positive(max_events, "max_events")
    _check_choice("on_error", on_error, "retry", "block")
    _check_choice("on_evicted", on_evicted, "stop", "register")
    # Skipping ahead of an event, even to retry it, is what a consumer that blocks does not want.
    typed = typed_events(handler, types, event_type, unknown or ("raise" if on_error == "block" else "retry"))
    if unknown is not None and typed is None:
        raise InvalidArgument("unknown is about typed events: declare them with types= or event_type=")
    with_event = _check_handler(handler, f"{queue}/{name}", exactly_once, batch, typed)
    policy = None if retries is None else _policy(retries)
    return ConsumerSpec(
        queue, name, handler, exactly_once, batch, max_events, policy, on_error, on_evicted, typed, with_event
    )


def _check_choice(what: str, given: str, *possible: str) -> None:
    if given not in possible:
        raise InvalidArgument(f"{what} must be {' or '.join(map(repr, possible))}, not {given!r}")


def _policy(retries: Any) -> RetryPolicy:
    if isinstance(retries, RetryPolicy):
        return retries
    if isinstance(retries, bool) or not isinstance(retries, int):
        raise InvalidArgument(f"retries must be a RetryPolicy, a number or None, not {retries!r}")
    return RetryPolicy(max_retries=retries)


def _check_handler(
    handler: Callable[..., Any], whose: str, exactly_once: bool, batch: bool, typed: TypedEvents | None
) -> bool:
    """Whether a handler, of the right form, also takes the raw events by keyword."""
    what = "events" if batch else "event"
    arguments = (what, *(("tx",) if exactly_once else ()))
    if typed is not None and _takes(handler, len(arguments), what):
        return True
    if not _takes(handler, len(arguments)):
        kind = "exactly-once handler" if exactly_once else "handler"
        raise InvalidArgument(f"the {kind} of {whose} must be a function of ({', '.join(arguments)})")
    return False


def _takes(handler: Any, count: int, *keywords: str) -> bool:
    try:
        signature = inspect.signature(handler)
        signature.bind(*range(count), **dict.fromkeys(keywords))
    except TypeError:
        return False
    return all(word in signature.parameters for word in keywords)
