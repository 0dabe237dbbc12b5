"""Values to and from rows: events are made without running Python code per row."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from psycopg import adapters
from psycopg.abc import Loader as AbstractLoader
from psycopg.adapt import Loader
from psycopg.pq import Format

from pgq_py.types import BatchId, Event, OpenBatch, RetryPolicy

__all__ = [
    "CHUNK_ROWS",
    "Received",
    "event_rows",
    "make_event",
    "opened",
    "read_lightly",
    "received",
    "retry_policy_parameters",
    "rows_to_ask",
]

CHUNK_ROWS = 500
"""Events made of an answer at a time, as many as stay in the processor's caches; and the size of the first answer."""

MOST_ROWS = 5_000
MOST_CHARACTERS = 4 * 1024 * 1024
"""The size of a later answer: large ones save round trips, but an answer is in memory as a whole."""

_BATCH_COLUMNS = 9
"""Columns of open_batch_events ahead of those of `Event`."""

make_event = partial(tuple.__new__, Event)
"""`Event._make` without its Python frame: the row is a sequence of the right length already."""


def _loader(name: str) -> type[AbstractLoader]:
    """psycopg's for this type, in binary."""
    found = adapters.get_loader(adapters.types[name].oid, Format.BINARY)
    assert found is not None
    return found


_NUMBER, _TIME = _loader("int8"), _loader("timestamptz")


class _InUtc(Loader):
    """psycopg's own loader of times. It takes UTC for granted where it is not told of a session."""

    format = Format.BINARY

    def __new__(cls, oid: int, context: object = None) -> Any:  # noqa: ARG004 - psycopg's protocol
        return _TIME(oid)

    def load(self, data: Any) -> Any:  # the protocol wants it; what is made above is of another class
        raise NotImplementedError


def read_lightly(cursor: Any) -> None:
    """Have a cursor read two types, in binary, in the cheapest way.

    xid8 as the number that it is: a detour through text costs the server a fifth. Times in UTC: to carry each into the
    session's time zone costs the client as much as all else that it does with an event.
    """
    cursor.adapters.register_loader("xid8", _NUMBER)
    cursor.adapters.register_loader("timestamptz", _InUtc)


def rows_to_ask(seen: Sequence[Event]) -> int:
    """How many events to ask for next, judging their size by some that were read."""
    characters = sum(len(event.data or "") for event in seen)
    return max(1, min(MOST_ROWS, MOST_CHARACTERS * len(seen) // (characters + 1))) if seen else CHUNK_ROWS


def event_rows(cursor: Any) -> Any:  # noqa: ARG001 - psycopg's protocol
    """psycopg row factory: rows in the columns of `Event` become Events."""
    return make_event


class Received(list[Event]):
    """The events that `receive` handed out, all of one batch; `batch_id` is None when there are none."""

    batch_id: BatchId | None = None


def received(rows: Sequence[tuple[Any, ...]]) -> Received:
    """From rows of batch_id and the columns of `Event`."""
    events = Received(make_event(row[1:]) for row in rows)
    if rows:
        events.batch_id = rows[0][0]
    return events


def opened(rows: Sequence[tuple[Any, ...]]) -> tuple[OpenBatch | None, list[Event] | None]:
    """The batch, and its events unless they are to be read in another way, from the rows of open_batch_events."""
    if not rows:
        return None, None
    *info, whole = rows[-1][:_BATCH_COLUMNS]
    return OpenBatch(*info), [make_event(row[_BATCH_COLUMNS:]) for row in rows[:-1]] if whole else None


def retry_policy_parameters(policy: RetryPolicy) -> list[Any]:
    """The columns of a policy, as set_retry_policy takes them."""
    delays = list(policy.delays) or None
    return [policy.max_retries, policy.kind, policy.base, policy.cap, policy.jitter, delays]
