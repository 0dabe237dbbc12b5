"""All about one queue, or one consumer of it: what `pgq queue show` and `pgq consumer show` put together."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from psycopg import Connection

from pgq_py.client import Client
from pgq_py.client._sync import calls
from pgq_py.errors import QueueNotFound
from pgq_py.health import queries
from pgq_py.types import BatchInfo, ConsumerInfo, DelayInfo, QueueInfo, TickId

__all__ = [
    "ConsumerDetails",
    "Eviction",
    "Grant",
    "Policy",
    "QueueDetails",
    "QueueSettings",
    "consumer_details",
    "queue_details",
]


@dataclass(frozen=True, slots=True)
class Eviction:
    """A consumer that was removed for lagging: what it had finished, and how far behind it was."""

    queue_name: str
    consumer_name: str
    evicted_at: datetime
    last_tick: TickId
    lag: timedelta


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Settings as they were given, by the names that `set_queue_config` knows. None: on demand, never, or off."""

    rotation_period: timedelta | None
    retention: timedelta
    disable_insert: bool
    ticker_paused: bool
    external_ticker: bool
    ticker_max_count: int | None
    ticker_max_lag: timedelta | None
    ticker_idle_period: timedelta | None
    max_consumer_lag: timedelta | None
    max_retries: int


@dataclass(frozen=True, slots=True)
class Policy:
    """A retry policy in force; an empty `consumer_name` is for all that have none of their own."""

    consumer_name: str
    max_retries: int
    kind: str
    base: timedelta
    cap: timedelta
    jitter: float
    delays: list[timedelta] | None


@dataclass(frozen=True, slots=True)
class Grant:
    """What a role may do with this queue alone: `produce`, `consume` as one consumer, or `work` its jobs."""

    role: str
    may: str
    consumer: str | None


@dataclass(frozen=True, slots=True)
class QueueDetails:
    """Everything about one queue."""

    info: QueueInfo
    settings: QueueSettings
    delays: DelayInfo
    consumers: tuple[ConsumerInfo, ...]
    policies: tuple[Policy, ...]
    grants: tuple[Grant, ...]
    evictions: tuple[Eviction, ...]


@dataclass(frozen=True, slots=True)
class ConsumerDetails:
    """Everything about one consumer. `policy` is its own or the queue's; None: PgQ's defaults of this package."""

    info: ConsumerInfo
    batch: BatchInfo | None
    waiting_retries: int
    dead_letters: int
    policy: Policy | None
    roles: tuple[str, ...]


def queue_details(client: Client, queue: str) -> QueueDetails:
    """Needs the rights of pgq_admin. Raises QueueNotFound."""
    with client.transaction() as conn:
        info = client.queue_info(queue, conn=conn)
        delays = [delay for delay in client.delay_info(conn=conn) if delay.queue_name == queue]
        settings = calls.records(conn, QueueSettings, queries.QUEUE_SETTINGS, [queue])
        if not (delays and settings):
            raise QueueNotFound(f"no such queue: {queue}")  # dropped between two statements
        evictions = calls.records(conn, Eviction, queries.EVICTIONS)
        return QueueDetails(
            info,
            settings[0],
            delays[0],
            tuple(client.consumers(queue, conn=conn)),
            tuple(calls.records(conn, Policy, queries.RETRY_POLICIES, [queue])),
            _grants(conn, queue),
            tuple(eviction for eviction in evictions if eviction.queue_name == queue),
        )


def consumer_details(client: Client, queue: str, consumer: str) -> ConsumerDetails:
    """Needs the rights of pgq_admin. Raises QueueNotFound, ConsumerNotRegistered."""
    with client.transaction() as conn:
        client.queue_info(queue, conn=conn)
        info = client.consumer_info(queue, consumer, conn=conn)
        policies = {
            policy.consumer_name: policy for policy in calls.records(conn, Policy, queries.RETRY_POLICIES, [queue])
        }
        return ConsumerDetails(
            info,
            None if info.current_batch is None else client.batch_info(info.current_batch, conn=conn),
            calls.value(conn, queries.WAITING_RETRIES, [queue, consumer]),
            calls.value(conn, queries.DEAD_LETTER_COUNT, [queue, consumer]),
            policies.get(consumer, policies.get("")),
            tuple(grant.role for grant in _grants(conn, queue) if grant.consumer == consumer),
        )


def _grants(conn: Connection[Any], queue: str) -> tuple[Grant, ...]:
    """calls takes parameters by position alone; the queue stands twice."""
    return tuple(calls.records(conn, Grant, queries.GRANTS, [queue, queue]))
