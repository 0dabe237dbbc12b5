"""Values to and from rows: events are made without running Python code per row."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pgq_py.types import BatchId, Event, RetryPolicy

__all__ = ["Received", "event_rows", "received", "retry_policy_parameters"]

_make_event = partial(tuple.__new__, Event)
"""`Event._make` without its Python frame: the row is a sequence of the right length already."""


def event_rows(cursor: Any) -> Any:  # noqa: ARG001 - psycopg's protocol
    """psycopg row factory: rows in the columns of `Event` become Events."""
    return _make_event


class Received(list[Event]):
    """The events that `receive` handed out, all of one batch; `batch_id` is None when there are none."""

    batch_id: BatchId | None = None


def received(rows: Sequence[tuple[Any, ...]]) -> Received:
    """From rows of batch_id and the columns of `Event`."""
    events = Received(_make_event(row[1:]) for row in rows)
    if rows:
        events.batch_id = rows[0][0]
    return events


def retry_policy_parameters(policy: RetryPolicy) -> list[Any]:
    """The columns of a policy, as set_retry_policy takes them."""
    delays = list(policy.delays) or None
    return [policy.max_retries, policy.kind, policy.base, policy.cap, policy.jitter, delays]
