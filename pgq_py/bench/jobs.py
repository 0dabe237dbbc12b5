"""Do jobs stay as fast and as clean while somebody holds an old snapshot? On the log, and on the usual table beside it.

Jobs are enqueued at a steady rate, one by one, and workers in processes of their own claim and complete them. A table
of jobs updates and deletes a row for each, and as long as `pin_xmin` holds a snapshot none of the dead rows can be
removed: every claim has to step over more of them. The log appends. Both are run after each other on the same server,
under the same load and with the same loop of plain SQL; throughput and latency are told by quarters of the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from time import monotonic, sleep
from typing import Any, Final

import psycopg

from pgq_py.bench.histogram import Percentiles
from pgq_py.bench.job_ways import BASELINE, LOG, Way
from pgq_py.bench.live import Processes, leader
from pgq_py.bench.results import Line, Promise, Result
from pgq_py.bench.rounds import Progress, silent
from pgq_py.bench.targets import Target, connect, target

__all__ = ["JobsParameters", "JobsResult", "Quarter", "WayResult", "percentile", "quarters", "run_jobs"]

FLAT: Final = 1.1
"""Throughput and p95 of the last quarter may differ from the first by so much."""

JITTER_MS: Final = 1.0
"""By so much a p95 may move on any machine, whatever that is as a ratio."""

WAL_PER_JOB: Final = 700.0
"""Bytes, for a payload of 120."""

_WAL = "select (pg_current_wal_insert_lsn() - '0/0')::bigint"
_SETTLE: Final = 20.0


@dataclass(frozen=True, slots=True)
class JobsParameters:
    """`rate` jobs a second for `seconds`, with `payload_bytes` each, for `workers` processes that claim up to `batch`
    at a time, and look again after `pause` seconds when there was no whole batch."""

    rate: float = 800.0
    seconds: float = 60.0
    pin_xmin: bool = False
    workers: int = 2
    batch: int = 25
    payload_bytes: int = 120
    pause: float = 0.025
    baseline: bool = True
    bounds: bool = True


@dataclass(frozen=True, slots=True)
class Quarter:
    """A quarter of the time: jobs done in it per second, and the latency of those that were due in it, from when a job
    was meant to be enqueued to its end."""

    jobs_per_second: float
    p50_ms: float
    p95_ms: float


@dataclass(frozen=True, slots=True)
class WayResult:
    """One way. `dead_tuples` are those of schema pgq, or of the table; WAL is that of everything from enqueueing to the
    end, ticks included; `jobs_per_claim` is what the workers found when they looked."""

    sent: int
    done: int
    twice: int
    jobs_per_claim: float
    latency: Percentiles
    quarters: tuple[Quarter, ...]
    wal_bytes_per_job: float
    dead_tuples: int
    dead_tuples_by_table: dict[str, int]

    def lines(self, name: str) -> list[Line]:
        return [
            *self.latency.lines(f"{name}, due to done"),
            *(Line(f"{name}, quarter {nr}, p95", q.p95_ms, "ms") for nr, q in enumerate(self.quarters, 1)),
            *(Line(f"{name}, quarter {nr}", q.jobs_per_second, "jobs/s") for nr, q in enumerate(self.quarters, 1)),
            Line(f"{name}, WAL per job", self.wal_bytes_per_job, "bytes"),
            Line(f"{name}, jobs per claim", self.jobs_per_claim, "jobs"),
            Line(f"{name}, dead tuples", self.dead_tuples, "tuples"),
        ]


@dataclass(frozen=True, slots=True)
class JobsResult(Result):
    """The log, and the table when it was asked for."""

    log: WayResult
    table: WayResult | None

    def lines(self) -> list[Line]:
        return [*self.log.lines("log"), *(self.table.lines("table") if self.table else [])]


def run_jobs(
    parameters: JobsParameters | None = None, *, dsn: str | None = None, progress: Progress = silent
) -> JobsResult:
    """Run the benchmark on a server of its own, or in a new database on the server of `dsn`."""
    chosen = parameters or JobsParameters()
    ways = (LOG, BASELINE) if chosen.baseline else (LOG,)
    found: dict[str, WayResult] = {}
    with target(dsn) as place:
        for nth, way in enumerate(ways):
            progress("jobs", nth, len(ways))
            found[way.name] = _run(place, way, chosen)
        progress("jobs", len(ways), len(ways))
        record = place.record("jobs", asdict(chosen))
    result = JobsResult(record, promises=(), log=found["log"], table=found.get("table"))
    return replace(result, promises=tuple(_promises(chosen, result)))


def _run(place: Target, way: Way, parameters: JobsParameters) -> WayResult:
    with connect(place.dsn) as conn:
        conn.execute(way.prepare)
        with _pinned(place.dsn, parameters.pin_xmin):
            before = _number(conn, _WAL)
            with Processes(place.dsn) as processes:
                sent, reports = _measure(processes, conn, way, parameters)
            wal = _number(conn, _WAL) - before
            dead = _dead(conn, way, 0 if way is LOG else len(sent["spent"]))
    return _judged(parameters, sent, reports, wal, dead)


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


def _measure(
    processes: Processes, conn: psycopg.Connection[Any], way: Way, parameters: JobsParameters
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the producer and each of the workers report. The ticker runs in both ways, for it maintains the log."""
    processes.ticker()
    leader(conn)
    loop = {"way": way.name, "batch": parameters.batch, "pause": parameters.pause}
    workers = [processes.role("work", "pgq_py.bench.job_roles", **loop) for _ in range(parameters.workers)]
    for worker in workers:
        worker.hear()
    load = {"rate": parameters.rate, "seconds": parameters.seconds, "size": parameters.payload_bytes}
    producer = processes.role("enqueue", "pgq_py.bench.job_roles", way=way.name, **load)
    start = producer.report()
    sent = producer.report() | start
    for worker in workers:
        worker.tell("enough")
    return sent, [worker.report() for worker in workers]


def _number(conn: psycopg.Connection[Any], query: Any) -> int:
    row = conn.execute(query).fetchone()
    return int(row[0]) if row else 0


def _dead(conn: psycopg.Connection[Any], way: Way, least: int) -> dict[str, int]:
    """Dead rows by table, when the statistics have arrived, which may take a while after the sessions' end.

    How many a table must have is known, while a snapshot is held; the log is to have none, so it is given the time.
    """
    deadline = monotonic() + (_SETTLE if least else 2.0)
    while True:
        dead = {str(name): int(number) for name, number in conn.execute(way.dead).fetchall() if number}
        if (least and sum(dead.values()) >= least) or monotonic() > deadline:
            return dead
        sleep(0.1)


def _judged(
    parameters: JobsParameters, sent: dict[str, Any], reports: Sequence[dict[str, Any]], wal: int, dead: dict[str, int]
) -> WayResult:
    jobs = sorted((float(due), float(late)) for report in reports for due, late in report["done"])
    claims = sum(report["claims"] for report in reports)
    return WayResult(
        sent=sent["sent"],
        done=len(jobs),
        twice=len(jobs) - len({due for due, _ in jobs}),
        jobs_per_claim=round(len(jobs) / max(claims, 1), 2),
        latency=Percentiles.of(late for _, late in jobs),
        quarters=quarters(jobs, sent["start"], parameters.seconds),
        wal_bytes_per_job=round(wal / max(len(jobs), 1), 1),
        dead_tuples=sum(dead.values()),
        dead_tuples_by_table=dead,
    )


def quarters(jobs: Sequence[tuple[float, float]], start: float, seconds: float) -> tuple[Quarter, ...]:
    """Of (due, lateness). What is done after the time is over counts in no quarter's throughput."""
    span = seconds / 4
    found = []
    for nr in range(4):
        begin, end = start + nr * span, start + (nr + 1) * span
        late = sorted(lateness for due, lateness in jobs if begin <= due < end)
        done = sum(begin <= due + lateness < end for due, lateness in jobs)
        found.append(Quarter(round(done / span, 1), percentile(late, 50), percentile(late, 95)))
    return tuple(found)


def percentile(values: Sequence[float], percent: float) -> float:
    """In ms, of rising seconds: the smallest that so many percent do not exceed; 0 when there are none."""
    if not values:
        return 0.0
    rank = max(0, -(-len(values) * percent // 100) - 1)
    return round(values[int(rank)] * 1000, 3)


def _promises(parameters: JobsParameters, found: JobsResult) -> Iterator[Promise]:
    log, table = found.log, found.table
    yield Promise("jobs done of those enqueued", log.done, log.sent, at_least=True)
    yield Promise("jobs done twice", log.twice, 0, at_least=False)
    yield Promise("dead tuples in schema pgq", log.dead_tuples, 0, at_least=False)
    if table is not None:
        yield Promise("jobs of the table done of those enqueued", table.done, table.sent, at_least=True)
    if not parameters.bounds:
        return
    first, last = log.quarters[0], log.quarters[-1]
    share = round(last.jobs_per_second / first.jobs_per_second, 3) if first.jobs_per_second else 0.0
    yield Promise("throughput, last quarter / first", share, round(1 / FLAT, 3), at_least=True)
    yield Promise(
        "p95_ms of the last quarter", last.p95_ms, max(first.p95_ms * FLAT, first.p95_ms + JITTER_MS), at_least=False
    )
    if parameters.payload_bytes <= 120:
        yield Promise("bytes of WAL per job", log.wal_bytes_per_job, WAL_PER_JOB, at_least=False)
