"""Do delays stay punctual, and do they leave nothing behind? Delayed events and retries, while a snapshot is held.

A queue that marks or deletes rows slows down while somebody holds an old snapshot (`pin_xmin`). Here delayed events are
sent at a steady rate, each due within a few seconds, and the consumer asks for some of them again. Lateness is the time
from due to the handler, which is when the release and its tick have been committed, and a little more. The delay ring
is made to rotate several times meanwhile, so that rotation has to carry along what is not due yet; copies are counted.

Beside it, on a queue of its own: what a nack costs per event, of few and of many events of one batch; and how long a
hundred thousand retries that are due at once take to be back in their queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import Any, Final

import psycopg

from pgq_py.app import PgQ
from pgq_py.bench.histogram import Percentiles
from pgq_py.bench.live import QUEUE, Processes, leader
from pgq_py.bench.nack import Backlog, NackTimes, measure_backlog, measure_nack
from pgq_py.bench.results import Line, Promise, Result
from pgq_py.bench.rounds import Progress, silent
from pgq_py.bench.targets import Target, connect, target
from pgq_py.bench.traces import Traces, traces, vacuum

__all__ = ["DelayParameters", "DelayResult", "run_delay"]

CONSUMER: Final = "consumer"
LATE_MS: Final = 50.0
FLAT: Final = 1.5
"""The median lateness of the last quarter may be so many times that of the first."""
COPIES: Final = 2.0
NACK_RATIO: Final = 1.5
BACKLOG_SECONDS: Final = 10.0

_COPIED = "select coalesce(sum(n_tup_ins), 0)::bigint from pg_stat_user_tables where relname like 'delay\\_%'"


@dataclass(frozen=True, slots=True)
class DelayParameters:
    """`rate` delayed events and `nack_rate` nacks a second. Each event is due within `delay` seconds.

    The delay ring rotates every `rotation_seconds`. `batch` events for the figure of nack, `backlog` due at once.
    """

    rate: float = 500.0
    nack_rate: float = 100.0
    seconds: float = 60.0
    pin_xmin: bool = False
    delay: float = 4.0
    rotation_seconds: float = 10.0
    batch: int = 10_000
    backlog: int = 100_000
    bounds: bool = True


@dataclass(frozen=True, slots=True)
class DelayResult(Result):
    """`lateness` of first deliveries, all and by quarter. `copies_per_event` counts what rotation carried along.

    `early` events came before they were due, which must not be; `rotations` are switches of the delay ring.
    """

    lateness: Percentiles
    lateness_by_quarter: tuple[Percentiles, ...]
    send: Percentiles
    sent: int
    handled: int
    early: int
    nacked: int
    rotations: int
    copies_per_event: float
    dead_tuples: int
    dead_tuples_by_table: dict[str, int]
    nack: NackTimes
    backlog: Backlog

    def lines(self) -> list[Line]:
        quarters = [Line(f"quarter {nr}, p50", q.p50_ms, "ms") for nr, q in enumerate(self.lateness_by_quarter, 1)]
        return [
            *self.lateness.lines("due to handled"),
            *quarters,
            *self.send.lines("sending"),
            Line("delayed events", self.sent, "events"),
            Line("nacks", self.nacked, "events"),
            Line("rotations of the delay ring", self.rotations, "switches"),
            Line("copies by rotation per event", self.copies_per_event, "rows"),
            Line("dead tuples in schema pgq", self.dead_tuples, "tuples"),
            *self.nack.lines(),
            *self.backlog.lines(),
        ]


@dataclass(frozen=True)
class _Seen:
    """Due time and lateness of each first delivery, by due time."""

    events: list[tuple[float, float]]
    spent: list[float]
    handled: int
    nacked: int


def run_delay(
    parameters: DelayParameters | None = None, *, dsn: str | None = None, progress: Progress = silent
) -> DelayResult:
    """Run the benchmark on a server of its own, or in a new database on the server of `dsn`."""
    chosen = parameters or DelayParameters()
    with target(dsn) as place, connect(place.dsn) as conn:
        _prepare(place, conn, chosen)
        before = traces(place.dsn, 0)
        with _pinned(place.dsn, chosen.pin_xmin):
            progress("delay", 0, 1)
            with Processes(place.dsn) as processes:
                seen = _measure(processes, conn, chosen)
            progress("delay", 1, 1)
            # the log takes every event twice, with each of its delays once in the ring
            after = traces(place.dsn, 2 * (len(seen.spent) + seen.nacked))
        (rows,) = conn.execute(_COPIED).fetchone() or (0,)
        times = measure_nack(place.dsn, chosen.batch, progress)
        backlog = measure_backlog(place.dsn, chosen.backlog, progress)
        return _result(place, chosen, seen, _Left(before, after, rows, times, backlog))


def _prepare(place: Target, conn: psycopg.Connection[Any], parameters: DelayParameters) -> None:
    """The queue, and a delay ring that rotates soon. Configuring updates a row; its trace goes."""
    with PgQ(place.dsn) as pgq:
        pgq.create_queue(QUEUE)
        pgq.register_consumer(QUEUE, CONSUMER)
    conn.execute(
        "update pgq.ring set ring_period = make_interval(secs => %s) where ring_kind = 'delay'",
        [parameters.rotation_seconds],
    )
    conn.execute("select pg_stat_force_next_flush()" if conn.info.server_version >= 150000 else "select")
    vacuum(place.dsn, 1)


@contextmanager
def _pinned(dsn: str, pin: bool) -> Iterator[None]:
    """Another session with a snapshot from before everything, which vacuum has to respect."""
    if not pin:
        yield
        return
    with connect(dsn) as conn:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with conn.transaction():
            conn.execute("select count(*) from pgq.queue")
            yield


def _measure(processes: Processes, conn: psycopg.Connection[Any], parameters: DelayParameters) -> _Seen:
    every = ceil(parameters.rate / parameters.nack_rate) if parameters.nack_rate else 0
    processes.ticker()
    consumer = processes.consumer(CONSUMER, every)
    leader(conn)
    producer = processes.producer(parameters.rate, parameters.seconds, parameters.delay)
    producer.report()
    sent = producer.report()
    consumer.tell(str(sent["sent"]))
    report = consumer.report()
    events = [(due, at - due) for due, _, at in report["first"]]
    return _Seen(events, sent["spent"], report["done"], report["nacked"])


@dataclass(frozen=True)
class _Left:
    before: Traces
    after: Traces
    delay_rows: int
    nack: NackTimes
    backlog: Backlog

    @property
    def rotations(self) -> int:
        ours = [ring for ring in self.after.generations if ring.startswith("delay_")]
        return sum(self.after.generations[ring] - self.before.generations[ring] for ring in ours)


def _result(place: Target, parameters: DelayParameters, seen: _Seen, left: _Left) -> DelayResult:
    count, delays = len(seen.events), len(seen.spent) + seen.nacked
    late = [lateness for _, lateness in seen.events]
    quarters = tuple(Percentiles.of(late[count * nr // 4 : count * (nr + 1) // 4]) for nr in range(4))
    found = DelayResult(
        place.record("delay", asdict(parameters)),
        promises=(),
        lateness=Percentiles.of(late),
        lateness_by_quarter=quarters,
        send=Percentiles.of(seen.spent),
        sent=len(seen.spent),
        handled=seen.handled,
        early=sum(lateness < 0 for lateness in late),
        nacked=seen.nacked,
        rotations=left.rotations,
        copies_per_event=round((left.delay_rows - delays) / max(delays, 1), 3),
        dead_tuples=sum(left.after.dead.values()),
        dead_tuples_by_table={name: dead for name, dead in left.after.dead.items() if dead},
        nack=left.nack,
        backlog=left.backlog,
    )
    return replace(found, promises=tuple(_promises(parameters, found)))


def _promises(parameters: DelayParameters, found: DelayResult) -> Iterator[Promise]:
    yield Promise("delayed events handled of those sent", found.handled, found.sent, at_least=True)
    yield Promise("events delivered early", found.early, 0, at_least=False)
    yield Promise("dead tuples in schema pgq", found.dead_tuples, 0, at_least=False)
    yield Promise("copies by rotation per event", found.copies_per_event, COPIES, at_least=False)
    yield Promise("retries back of the backlog", found.backlog.back, found.backlog.events, at_least=True)
    if not parameters.bounds:
        return
    yield Promise("lateness p99_ms", found.lateness.p99_ms, LATE_MS, at_least=False)
    first, last = found.lateness_by_quarter[0].p50_ms, found.lateness_by_quarter[-1].p50_ms
    ratio = round(last / first, 3) if first else 0.0
    yield Promise("median lateness, last quarter / first", ratio, FLAT, at_least=False)
    yield Promise("nack per event, of half a batch / of a twentieth", found.nack.ratio, NACK_RATIO, at_least=False)
    yield Promise("seconds of the backlog", found.backlog.seconds, BACKLOG_SECONDS, at_least=False)
