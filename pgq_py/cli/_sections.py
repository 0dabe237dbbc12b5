"""The sections of `pgq status`, and the columns that other verbs share with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pgq_py.cli._job_columns import LANES, STATS, WORKERS
from pgq_py.cli._output import Column, duration, ident, seconds, size
from pgq_py.health import Eviction, Health, Problem
from pgq_py.types import ConsumerInfo, DelayInfo, QueueInfo, RingBlocker, RingInfo

__all__ = ["DELAYS", "EVICTIONS", "Section", "sections_of"]

Section = tuple[str, Sequence[Column[Any]], Sequence[Any]]

_CONSUMERS = (
    Column[ConsumerInfo]("queue", lambda c: c.queue_name),
    Column[ConsumerInfo]("consumer", lambda c: c.consumer_name),
    Column[ConsumerInfo]("pending_events", lambda c: c.pending_events),
    Column[ConsumerInfo]("position_age_seconds", lambda c: seconds(c.lag), duration),
    Column[ConsumerInfo]("last_seen_seconds", lambda c: seconds(c.last_seen), duration),
    Column[ConsumerInfo]("last_tick", lambda c: ident(c.last_tick)),
    Column[ConsumerInfo]("open_batch", lambda c: ident(c.current_batch)),
)
DELAYS = (
    Column[DelayInfo]("queue", lambda d: d.queue_name),
    Column[DelayInfo]("delayed", lambda d: d.delayed),
    Column[DelayInfo]("retries", lambda d: d.retries),
    Column[DelayInfo]("next_due", lambda d: d.next_due),
    Column[DelayInfo]("dead_letters", lambda d: d.dead_letters),
)
EVICTIONS = (
    Column[Eviction]("queue", lambda e: e.queue_name),
    Column[Eviction]("consumer", lambda e: e.consumer_name),
    Column[Eviction]("evicted_at", lambda e: e.evicted_at),
    Column[Eviction]("last_tick", lambda e: ident(e.last_tick)),
    Column[Eviction]("lag_seconds", lambda e: seconds(e.lag), duration),
)
_RINGS = (
    Column[RingInfo]("ring", lambda r: r.ring),
    Column[RingInfo]("queue", lambda r: r.queue_name),
    Column[RingInfo]("generation", lambda r: r.generation),
    Column[RingInfo]("closed", lambda r: r.closed),
    Column[RingInfo]("slots", lambda r: r.slots),
    Column[RingInfo]("bytes", lambda r: r.bytes, size),
    Column[RingInfo]("switched_at", lambda r: r.switched_at),
    Column[RingInfo]("skipped", lambda r: r.skipped, quiet=True),
)
_BLOCKERS = (
    Column[RingBlocker]("slot", lambda b: b.slot),
    Column[RingBlocker]("pid", lambda b: b.pid),
    Column[RingBlocker]("prepared", lambda b: b.gid),
    Column[RingBlocker]("user", lambda b: b.usename),
    Column[RingBlocker]("database", lambda b: b.datname),
    Column[RingBlocker]("application", lambda b: b.application_name),
    Column[RingBlocker]("mode", lambda b: b.mode),
    Column[RingBlocker]("age_seconds", lambda b: seconds(b.age), duration),
)
_PROBLEMS = (
    Column[Problem]("kind", lambda p: p.kind),
    Column[Problem]("problem", lambda p: p.message),
    Column[Problem]("advice", lambda p: p.advice),
    Column[Problem]("mend", lambda p: p.mend),
)


def sections_of(health: Health) -> list[Section]:
    """In the order in which they are shown."""
    return [
        ("queues", _queue_columns(health), health.queues),
        ("consumers", _CONSUMERS, health.consumers),
        ("jobs", STATS, health.jobs.stats),
        ("lanes", LANES, health.jobs.lanes),
        ("workers", WORKERS, health.jobs.workers),
        ("rings", _RINGS, health.rings),
        ("blockers", _BLOCKERS, health.blockers),
        ("evictions", EVICTIONS, health.evictions),
        ("problems", _PROBLEMS, health.problems),
    ]


def _queue_columns(health: Health) -> tuple[Column[QueueInfo], ...]:
    later = {delay.queue_name: delay for delay in health.delays}

    def of(queue: QueueInfo) -> DelayInfo:
        """Nothing, for a queue that was created while we looked."""
        return later.get(queue.queue_name) or DelayInfo(queue.queue_name, 0, 0, None, 0)

    return (
        Column("queue", lambda q: q.queue_name),
        Column("events_waiting", health.waiting),
        Column("tick_due", lambda q: q.queue_name in health.due),
        Column("last_tick", lambda q: ident(q.last_tick_id)),
        Column("tick_age_seconds", lambda q: seconds(q.ticker_lag), duration),
        Column("events_per_second", lambda q: None if q.ev_per_sec is None else round(q.ev_per_sec, 1)),
        Column("delayed", lambda q: of(q).delayed, quiet=True),
        Column("retries", lambda q: of(q).retries, quiet=True),
        Column("next_due", lambda q: of(q).next_due),
        Column("dead_letters", lambda q: of(q).dead_letters, quiet=True),
        Column("paused", lambda q: q.queue_ticker_paused, quiet=True),
        Column("external_ticker", lambda q: q.queue_external_ticker, quiet=True),
        Column("rotation_period_seconds", lambda q: seconds(q.queue_rotation_period), duration),
    )
