"""The judgement behind `pgq status`: is the log healthy, and if not, who is to blame?

Three things go wrong with a log: nobody ticks, a consumer does not keep up, or a transaction holds up rotation. With
jobs it is one more: nobody works them. None of them can be told from one look. An event may be waiting because it was
sent a millisecond ago; a consumer that has just woken after an idle night stands at yesterday's tick. So where
something looks wrong, a second look is taken after a moment, and only what both have seen is a problem. A healthy log
is judged at once.

Ages are the database's own; a consumer's lag is that of the batch it holds, where it holds one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from time import sleep
from typing import Any

from psycopg import Connection

from pgq_py import schema
from pgq_py.client import Client
from pgq_py.client._sync import calls
from pgq_py.errors import BatchNotFound
from pgq_py.health import queries
from pgq_py.health.details import Eviction
from pgq_py.health.findings import Problem, quoted
from pgq_py.health.jobs import Jobs, job_problems, look_at_jobs
from pgq_py.types import ConsumerInfo, DelayInfo, QueueInfo, RingBlocker, RingInfo

__all__ = ["Health", "Limits", "examine"]


@dataclass(frozen=True)
class Limits:
    """How many seconds something may last before it is a problem."""

    ticker: float = 1.0
    consumer: float = 60.0
    rotation: float = 60.0
    jobs: float = 60.0


@dataclass(frozen=True, slots=True)
class Health:
    """One look at a database's log. `due` names the queues with events that no tick covers yet, `parts` what optional
    parts are installed."""

    version: str
    parts: tuple[str, ...]
    queues: tuple[QueueInfo, ...]
    consumers: tuple[ConsumerInfo, ...]
    rings: tuple[RingInfo, ...]
    blockers: tuple[RingBlocker, ...]
    delays: tuple[DelayInfo, ...]
    evictions: tuple[Eviction, ...]
    due: frozenset[str]
    jobs: Jobs
    problems: tuple[Problem, ...]

    @property
    def healthy(self) -> bool:
        return not self.problems

    def waiting(self, queue: QueueInfo) -> int:
        """About how many events no tick covers yet. The event sequence counts those rolled back as well, so on a queue
        that needs no tick it says nothing."""
        silent = queue.queue_ticker_paused or queue.queue_external_ticker
        return max(queue.ev_new or 0, 0) if silent or queue.queue_name in self.due else 0


def examine(client: Client, limits: Limits, *, wait: Callable[[float], None] = sleep) -> Health:
    """Look, and where something looks wrong look again after `limits.ticker` seconds.

    Raises what the client raises; the schema must be there.
    """
    first = _look(client, limits)
    if first.healthy:
        return first
    wait(limits.ticker)
    second = _look(client, limits)
    lasting = tuple(problem for problem in second.problems if _seen_before(problem, first.problems))
    return replace(second, problems=lasting)


def _seen_before(problem: Problem, earlier: Iterable[Problem]) -> bool:
    return any((problem.kind, problem.subject) == (other.kind, other.subject) for other in earlier)


def _look(client: Client, limits: Limits) -> Health:
    """What the database says now; every problem here is a suspicion."""
    with client.transaction() as conn:
        health = Health(
            version=client.version(conn=conn),
            parts=tuple(schema.parts(conn)),
            queues=tuple(client.queues(conn=conn)),
            consumers=tuple(client.consumers(conn=conn)),
            rings=tuple(client.rings(conn=conn)),
            blockers=tuple(client.ring_blockers(conn=conn)),
            delays=tuple(client.delay_info(conn=conn)),
            evictions=tuple(calls.records(conn, Eviction, queries.EVICTIONS)),
            due=frozenset(client.queues_due(conn=conn)),
            jobs=look_at_jobs(client, conn),
            problems=tuple(_no_release(conn)),
        )
    blocking = (blocker for blocker in health.blockers if _seconds(blocker.age, limits.rotation) >= limits.rotation)
    paused = [queue.queue_name for queue in health.queues if queue.queue_ticker_paused]
    problems = (
        *(_no_tick(queue) for queue in health.queues if queue.queue_name in health.due),
        *health.problems,
        *_lagging(client, health.consumers, health.queues, limits.consumer),
        *(_blocking(blocker) for blocker in blocking),
        *job_problems(health.jobs, paused, limits.jobs),
    )
    return replace(health, problems=problems)


def _no_tick(queue: QueueInfo) -> Problem:
    return Problem(
        "ticker",
        queue.queue_name,
        f"{queue.queue_name} at {queue.last_tick_id}",  # the next tick is another subject: the queue moves
        f"queue {queue.queue_name} has events waiting and nobody ticks",
        "Events are kept. Keep `pgq ticker` running; `pgq ticker --once` ticks now.",
        "pgq ticker",
    )


def _no_release(conn: Connection[Any]) -> Iterable[Problem]:
    for queue, since in calls.rows(conn, queries.RELEASES_OVERDUE):
        yield Problem(
            "ticker",
            queue,
            f"{queue} since {since}",
            f"queue {queue} has delayed events whose time has come, and nobody releases them",
            "Events are kept. Keep `pgq ticker` running; `pgq ticker --once` releases them now.",
            "pgq ticker",
        )


def _lagging(
    client: Client, consumers: Iterable[ConsumerInfo], queues: Iterable[QueueInfo], limit: float
) -> Iterable[Problem]:
    """Consumers behind the newest tick for longer than the limit. On a queue without events time alone is no lag."""
    newest = {queue.queue_name: queue.last_tick_id for queue in queues}
    for consumer in consumers:
        if newest.get(consumer.queue_name) == consumer.last_tick or _seconds(consumer.lag) < limit:
            continue
        lag = _batch_age(client, consumer)
        if lag >= limit:
            yield _behind(consumer, lag)


def _batch_age(client: Client, consumer: ConsumerInfo) -> float:
    """How old the newest events of its open batch are; without one, how old its position is."""
    if consumer.current_batch is not None:
        try:
            return _seconds(client.batch_info(consumer.current_batch).lag)
        except BatchNotFound:
            return 0.0  # finished meanwhile: it is alive, and the next look will tell
    return _seconds(consumer.lag)


def _behind(consumer: ConsumerInfo, lag: float) -> Problem:
    name = f"{consumer.queue_name}/{consumer.consumer_name}"
    since = (datetime.now().astimezone() - timedelta(seconds=lag)).isoformat(sep=" ", timespec="seconds")
    events = "" if consumer.pending_events is None else f", about {consumer.pending_events} events"
    forget = f"pgq consumer unregister {quoted(consumer.queue_name, consumer.consumer_name)}"
    return Problem(
        "consumer",
        consumer.queue_name,
        name,
        f"consumer {name} is {lag:.0f} s behind, since {since}{events}; last seen {_seconds(consumer.last_seen):.0f} s "
        "ago",
        "Its events are kept, and their slots cannot be emptied meanwhile. See that it runs, or forget it: "
        f"`{forget}`.",
        forget,
    )


def _blocking(blocker: RingBlocker) -> Problem:
    prepared = blocker.gid is not None
    who = f"prepared transaction {blocker.gid}" if prepared else f"process {blocker.pid}"
    where = ", ".join(text for text in (blocker.application_name, blocker.usename, blocker.datname) if text)
    age = "" if blocker.age is None else f" for {_seconds(blocker.age):.0f} s"
    gid = (blocker.gid or "").replace("'", "''")
    mend = f"rollback prepared '{gid}'" if prepared else f"select pg_terminate_backend({blocker.pid})"
    return Problem(
        "rotation",
        None,
        f"{blocker.slot} by {who}",
        f"{who} ({where}) has been inside slot {blocker.slot}{age}, so it cannot be emptied",
        f"Events are kept and delivered; the log grows. Let the transaction end, or end it: `{mend}`.",
        mend,
    )


def _seconds(value: timedelta | None, unknown: float = 0.0) -> float:
    return unknown if value is None else value.total_seconds()
