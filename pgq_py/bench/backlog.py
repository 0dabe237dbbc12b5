"""Does a claim, or a look at one job, become slower with what waits? Two queues side by side, one with many jobs.

In turns the next n jobs of either queue are claimed, and completed, by one session; the time is that of the claim, as
the session sees it. The status is that of jobs at random, each asked for once, of all that the deep queue has.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any, Final

import psycopg

from pgq_py.bench.histogram import Percentiles
from pgq_py.bench.results import Line, Promise, Result, Spread
from pgq_py.bench.rounds import Progress, silent
from pgq_py.bench.targets import connect, target

__all__ = ["FEW", "BacklogParameters", "BacklogResult", "run_backlog"]

FEW: Final = 10_000
"""Jobs that the shallow queue has left at the end, at least."""

RATIO: Final = 1.2
STATUS_MS: Final = 2.0
_CHUNK: Final = 1_000
_ENQUEUE: Final = (
    "select count(*) from pgq.enqueue_many(%s, (select jsonb_agg(jsonb_build_object("
    "'type', 'bench', 'payload', repeat('x', 118))) from generate_series(1, 1000)))"
)


@dataclass(frozen=True, slots=True)
class BacklogParameters:
    """`pending` jobs wait in the deep queue. Without `bounds`, only a claim that is not full breaks a promise."""

    pending: int = 10_000_000
    turns: int = 100
    claims: tuple[int, ...] = (1, 10, 100)
    looks: int = 200
    bounds: bool = True


@dataclass(frozen=True, slots=True)
class BacklogResult(Result):
    """Times of a claim in ms by queue and jobs per claim ("deep, n = 10"), ratios of the two of each turn by n (deep /
    shallow), and the time of a look at the status of a job in the deep queue."""

    claim_ms: dict[str, Spread]
    ratios: dict[str, Spread]
    status: Percentiles
    fill_seconds: float

    def lines(self) -> list[Line]:
        return [
            *(Line.of(f"claim, {name}", spread, "ms") for name, spread in self.claim_ms.items()),
            *(Line.of(name, spread, "ratio") for name, spread in self.ratios.items()),
            *self.status.lines("status by id"),
            Line("filling the deep queue", self.fill_seconds, "s"),
        ]


def run_backlog(
    parameters: BacklogParameters | None = None, *, dsn: str | None = None, progress: Progress = silent
) -> BacklogResult:
    """Run the benchmark on a server of its own, or in a new database on the server of `dsn`."""
    chosen = parameters or BacklogParameters()
    claim_ms: dict[str, Spread] = {}
    ratios: dict[str, Spread] = {}
    with target(dsn) as place, connect(place.dsn) as conn:
        begin = perf_counter()
        ids = _fill(conn, "deep", chosen.pending, progress)
        fill_seconds = perf_counter() - begin
        _fill(conn, "shallow", FEW + chosen.turns * sum(chosen.claims), progress)
        asked = asked_for = 0
        for done, n in enumerate(chosen.claims):
            progress("claiming", done, len(chosen.claims))
            times: dict[str, list[float]] = {"deep": [], "shallow": []}
            for nth in range(chosen.turns):
                # in turns the first, for who comes second finds the caches warm
                for queue in ("deep", "shallow") if nth % 2 else ("shallow", "deep"):
                    taken, found = _claim(conn, queue, n)
                    times[queue].append(taken)
                    asked, asked_for = asked + found, asked_for + n
            claim_ms |= {f"{queue}, n = {n}": Spread.of(taken) for queue, taken in times.items()}
            ratios[f"deep / shallow, n = {n}"] = Spread.of_ratio(times["deep"], times["shallow"])
        progress("claiming", 1, 1)
        status = Percentiles.of(_look(conn, "deep", ids, chosen.looks))
        return BacklogResult(
            place.record("backlog", asdict(chosen)),
            promises=tuple(_promises(chosen, ratios, status, asked, asked_for)),
            claim_ms=claim_ms,
            ratios=ratios,
            status=status,
            fill_seconds=round(fill_seconds, 1),
        )


def _fill(conn: psycopg.Connection[Any], queue: str, count: int, progress: Progress) -> range:
    """Enqueue so many jobs, rounded up to thousands; returns their ids, which are without a gap here."""
    conn.execute("select pgq.create_job_queue(%s)", [queue])
    conn.execute("set synchronous_commit = off")
    chunks = -(-count // _CHUNK)
    for nth in range(chunks):
        conn.execute(_ENQUEUE, [queue])
        if nth % 100 == 0:
            progress(f"filling {queue}", nth, chunks)
    conn.execute("reset synchronous_commit")
    conn.execute("select pgq.ticker(%s)", [queue])
    progress(f"filling {queue}", chunks, chunks)
    query = "select pg_sequence_last_value(queue_event_seq::regclass) from pgq.queue where queue_name = %s"
    ((last,),) = conn.execute(query, [queue]).fetchall()
    return range(int(last) - chunks * _CHUNK + 1, int(last) + 1)


def _claim(conn: psycopg.Connection[Any], queue: str, n: int) -> tuple[float, int]:
    """Time of the claim in ms, and how many jobs it got."""
    begin = perf_counter()
    ((claim, token, ids),) = conn.execute("select * from pgq.claim(%s, null, %s)", [queue, n]).fetchall()
    taken = perf_counter() - begin
    conn.execute("select pgq.complete(%s, %s)", [claim, token])
    return taken * 1000, len(ids or ())


def _look(conn: psycopg.Connection[Any], queue: str, ids: range, looks: int) -> Iterator[float]:
    """Seconds that the status of each of some jobs took."""
    for job in random.Random(1).sample(ids, looks):
        begin = perf_counter()
        ((state,),) = conn.execute("select state from pgq.get_job(%s, %s)", [queue, job]).fetchall()
        assert state in ("pending", "completed"), state
        yield perf_counter() - begin


def _promises(
    parameters: BacklogParameters, ratios: dict[str, Spread], status: Percentiles, found: int, asked_for: int
) -> Iterator[Promise]:
    yield Promise("jobs claimed of those asked for", found, asked_for, at_least=True)
    if not parameters.bounds:
        return
    for n in parameters.claims:
        name = f"deep / shallow, n = {n}"
        yield Promise(f"time of a claim, {name}", ratios[name].median, RATIO, at_least=False)
    yield Promise("status by id p50_ms", status.p50_ms, STATUS_MS, at_least=False)
