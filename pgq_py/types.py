"""The values that calls return.

They are plain and frozen. Every dataclass mirrors one database function: its fields are that function's columns, in
name and order, so that psycopg's `class_row` builds it and PgQ's documentation explains it. Times are aware datetimes,
of the database's clock.

Event alone is a NamedTuple: a batch has many thousands, and psycopg's rows become tuples at no cost.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, NewType, NoReturn

from pgq_py.errors import InvalidArgument
from pgq_py.outcomes import Discard, Retry

__all__ = [
    "BatchId",
    "BatchInfo",
    "CaptureInfo",
    "ConsumerInfo",
    "DeadLetter",
    "DeadLetterId",
    "DelayInfo",
    "Event",
    "EventId",
    "Nacked",
    "NewEvent",
    "OpenBatch",
    "QueueInfo",
    "RetryPolicy",
    "RingBlocker",
    "RingInfo",
    "Tick",
    "TickId",
    "Txid",
]

EventId = NewType("EventId", int)
BatchId = NewType("BatchId", int)
TickId = NewType("TickId", int)
DeadLetterId = NewType("DeadLetterId", int)
Txid = NewType("Txid", int)
"""A 64-bit transaction id of the cluster, epoch included."""


class Event(NamedTuple):
    """One event, in the column order of every function that returns events.

    `time` is in UTC. `txid` is the producer's top-level transaction; `retries` is None or 0 for a first delivery, else
    how many came before.
    """

    id: EventId
    time: datetime
    txid: Txid
    retries: int | None
    type: str | None
    data: str | None
    extra1: str | None = None
    extra2: str | None = None
    extra3: str | None = None
    extra4: str | None = None

    @property
    def json(self) -> Any:
        """`data` decoded as JSON on each access; None when there is no data.

        Raises json.JSONDecodeError when it is not JSON.
        """
        return None if self.data is None else json.loads(self.data)

    def retry(self, *, in_: timedelta | None = None, reason: str | None = None) -> NoReturn:
        """Leave the handler: the event is to come again, after `in_` or when the retry policy says (raises `Retry`).

        Called in a handler of batches, it speaks of the whole batch; raise `Retry(events=[...])` for some.
        """
        raise Retry(in_=in_, reason=reason)

    def dead(self, reason: str | None = None) -> NoReturn:
        """Leave the handler: the event is to become a dead letter (raises `Discard`). For batches, see `retry`."""
        raise Discard(reason)


class NewEvent(NamedTuple):
    """One event to be sent in bulk, where more than its data varies. A plain tuple in this order does as well.

    `data` is text, or a value that becomes JSON.
    """

    type: str | None
    data: Any
    extra1: str | None = None
    extra2: str | None = None
    extra3: str | None = None
    extra4: str | None = None


@dataclass(frozen=True, slots=True)
class Tick:
    """A point between committed transactions of one queue: any two bound a batch.

    `event_seq` is the newest event id known then.
    """

    tick_id: TickId
    tick_time: datetime
    tick_event_seq: int


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """A batch opened for a consumer (`next_batch_info`, `open_batch`): what is visible at `cur_tick_id` and was not at
    `prev_tick_id`.

    `position` is the last event id acknowledged inside the batch, None when none is.
    """

    batch_id: BatchId
    cur_tick_id: TickId
    prev_tick_id: TickId
    cur_tick_time: datetime
    prev_tick_time: datetime
    cur_tick_event_seq: int
    prev_tick_event_seq: int
    position: EventId | None = None


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """An open batch as seen from outside (`get_batch_info`). `lag` is the age of its newest tick."""

    queue_name: str
    consumer_name: str
    batch_start: datetime
    batch_end: datetime
    prev_tick_id: TickId
    tick_id: TickId
    lag: timedelta
    seq_start: int
    seq_end: int


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue's settings and pulse (`get_queue_info`).

    `ev_new` counts events since the last tick; `ev_per_sec` is recent and None when idle.
    """

    queue_name: str
    queue_ntables: int
    queue_cur_table: int
    queue_rotation_period: timedelta
    queue_switch_time: datetime
    queue_external_ticker: bool
    queue_ticker_paused: bool
    queue_ticker_max_count: int
    queue_ticker_max_lag: timedelta
    queue_ticker_idle_period: timedelta
    ticker_lag: timedelta | None
    ev_per_sec: float | None
    ev_new: int | None
    last_tick_id: TickId | None


@dataclass(frozen=True, slots=True)
class ConsumerInfo:
    """A consumer on a queue (`get_consumer_info`).

    `lag` is how old its position is, `last_seen` how long ago it called. A subconsumer without a batch has no position:
    `lag`, `last_tick` and `pending_events` are None.
    """

    queue_name: str
    consumer_name: str
    lag: timedelta | None
    last_seen: timedelta
    last_tick: TickId | None
    current_batch: BatchId | None
    next_tick: TickId | None
    pending_events: int | None


@dataclass(frozen=True, slots=True)
class CaptureInfo:
    """A table whose changes go into a queue (`get_captures`). Its name is as in SQL, quoted where need be."""

    queue_name: str
    table_name: str
    key_columns: list[str]
    ignored_columns: list[str]
    enabled: bool


@dataclass(frozen=True, slots=True)
class RingInfo:
    """A ring's state (`ring_info`): which generation is written, how often and why a rotation step was skipped.

    Global rings have no queue.
    """

    ring: str
    queue_name: str | None
    generation: int
    closed: bool
    slots: int
    bytes: int
    switched_at: datetime | None
    skipped: int


@dataclass(frozen=True, slots=True)
class RingBlocker:
    """Who keeps a rotation step from its lock (`ring_blockers`). A prepared transaction has a `gid` and no process."""

    ring: str
    slot: str
    pid: int | None
    gid: str | None
    usename: str | None
    datname: str | None
    application_name: str | None
    mode: str
    age: timedelta | None


@dataclass(frozen=True, slots=True)
class DelayInfo:
    """What of a queue waits for its time (`delay_info`): events, how many of them are retries, and when the next is due
    (None when nothing waits); and its dead letters."""

    queue_name: str
    delayed: int
    retries: int
    next_due: datetime | None
    dead_letters: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that a consumer gave up (view `pgq.dead_letter`): who, why, when, and after how many deliveries.

    It outlives its consumer and its queue, until it is replayed or purged.
    """

    dl_id: DeadLetterId
    queue_name: str
    consumer_name: str
    reason: str | None
    attempts: int
    failed_at: datetime
    ev_id: EventId
    ev_time: datetime | None
    ev_retry: int | None
    ev_type: str | None
    ev_data: str | None
    ev_extra1: str | None = None
    ev_extra2: str | None = None
    ev_extra3: str | None = None
    ev_extra4: str | None = None


class Nacked(NamedTuple):
    """What became of failed events: how many will come again, how many are dead letters now."""

    retried: int
    dead: int


_YEAR = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how soon a failed event comes again, before it becomes a dead letter.

    `kind` 'fixed' waits `base` each time; 'exponential' waits base, 2 base, 4 base, up to `cap`; 'list' waits as
    `delays` says, the last of them again and again. Each wait is longer or shorter by up to the part `jitter` of it.
    `max_retries=0` makes a dead letter of the first failure.
    """

    max_retries: int = 5
    kind: Literal["fixed", "exponential", "list"] = "exponential"
    base: timedelta = timedelta(seconds=5)
    cap: timedelta = timedelta(hours=1)
    jitter: float = 0.1
    delays: Sequence[timedelta] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "delays", tuple(self.delays))
        possible = {
            "max_retries must be a whole number from 0 to 1000000": 0 <= self.max_retries <= 1_000_000,
            "kind must be 'fixed', 'exponential' or 'list'": self.kind in {"fixed", "exponential", "list"},
            "base must be 0 to 365 days": timedelta(0) <= self.base <= _YEAR,
            "cap must be base to 365 days": self.kind != "exponential" or self.base <= self.cap <= _YEAR,
            "jitter must be 0 to 1": 0 <= self.jitter <= 1,
            "delays must be 1 to 100 for the kind 'list', none for others": (
                1 <= len(self.delays) <= 100 if self.kind == "list" else not self.delays
            ),
            "each of delays must be 0 to 365 days": all(timedelta(0) <= delay <= _YEAR for delay in self.delays),
        }
        for demand, met in possible.items():
            if not met:
                raise InvalidArgument(f"not a possible retry policy: {demand}")
