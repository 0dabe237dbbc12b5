"""What a consumer is, as its decorator states it, checked when it is stated."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pgq_py.client.checks import check_name, check_positive
from pgq_py.errors import InvalidArgument

__all__ = ["ConsumerSpec", "consumer_spec"]


@dataclass(frozen=True, slots=True)
class ConsumerSpec:
    """A handler and the subscription that feeds it.

    `max_events` bounds what one call (batch=True) and one transaction (exactly_once) take; None leaves it to the
    settings. A coroutine function is run in an event loop, every other handler in a thread.
    """

    queue: str
    name: str
    handler: Callable[..., Any]
    exactly_once: bool
    batch: bool
    max_events: int | None

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.handler)


def consumer_spec(
    handler: Callable[..., Any], queue: str, name: str, *, exactly_once: bool, batch: bool, max_events: int | None
) -> ConsumerSpec:
    """A checked ConsumerSpec.

    Handlers are called with the event, or the list of events of a batch; exactly-once ones also with the transaction
    that their writes belong into, without which the promise would be empty.
    """
    check_name(queue, "queue")
    check_name(name, "consumer")
    if max_events is not None:
        check_positive(max_events, "max_events")
    arguments = ("events" if batch else "event", *(("tx",) if exactly_once else ()))
    if not _takes(handler, len(arguments)):
        kind = "exactly-once handler" if exactly_once else "handler"
        raise InvalidArgument(f"the {kind} of {queue}/{name} must be a function of ({', '.join(arguments)})")
    return ConsumerSpec(queue, name, handler, exactly_once, batch, max_events)


def _takes(handler: Any, count: int) -> bool:
    try:
        inspect.signature(handler).bind(*range(count))
    except TypeError:
        return False
    return True
