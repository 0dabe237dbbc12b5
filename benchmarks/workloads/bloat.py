"""What does an old snapshot do to it?

A steady, seeded load runs through three phases: the horizon is free, then something holds it, then it is let go. Once a
second dead tuples and sizes of all relations of the peer's schemas are read, metadata included; what arrived in that
second gives throughput and latency; and a bystander who shares nothing with the queue but the server tells what the
neighbours feel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from statistics import fmean, median
from time import monotonic, sleep, time
from typing import Any

from benchmarks.harness.arena import Arena, Contestant, Request, solo
from benchmarks.harness.bystander import Bystander
from benchmarks.harness.horizons import HORIZONS, held
from benchmarks.harness.outcome import Check, Outcome
from benchmarks.harness.sampling import Sample, Sampler
from benchmarks.workloads.live import Live, Sent

__all__ = ["COLUMNS", "Parameters", "per_second", "run"]

COLUMNS = (
    "second", "phase", "dead_tuples", "bytes", "received", "p50_ms", "p99_ms", "bystander_p50_ms", "bystander_p99_ms",
    "vacuums", "vacuuming", "horizon_age", "catalog_dead_tuples",
)  # fmt: skip
_RELATIONS_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Parameters:
    """Messages a second; seconds before, during and after the horizon is held; how many jobs are claimed at a time."""

    rate: float = 400.0
    before: float = 30.0
    during: float = 120.0
    after: float = 60.0
    horizons: tuple[str, ...] = HORIZONS
    claim: int = 10

    @classmethod
    def of(cls, minutes: float, rate: float, horizons: tuple[str, ...]) -> Parameters:
        """`minutes` in the middle phase, a quarter of it before and half of it after."""
        seconds = minutes * 60
        return cls(rate, seconds / 4, seconds, seconds / 2, horizons)

    @property
    def total(self) -> float:
        return self.before + self.during + self.after


@dataclass(frozen=True, slots=True)
class _Seen:
    sent: Sent
    received: dict[str, Any]
    samples: Sequence[Sample]
    bystander: Sequence[tuple[float, float]]


def run(parameters: Parameters, request: Request) -> Outcome:
    """Every horizon with every peer."""

    def scenario(found: Arena, contestant: Contestant, horizon: str) -> None:
        _scenario(found, contestant, parameters, horizon)

    horizons = {horizon: horizon for horizon in parameters.horizons}
    return solo("bloat", "live", request, asdict(parameters), cases=horizons, run=scenario)


def _scenario(found: Arena, contestant: Contestant, parameters: Parameters, horizon: str) -> None:
    contestant.control.ask("prepare", consumers=1)
    seen = _load(found, contestant, parameters, horizon)
    found.outcome.checks.append(Check.of(contestant.name, horizon, 0, seen.sent.count, seen.received))
    rows = list(per_second(parameters, seen.sent.start, seen.received["times"], seen.samples, seen.bystander))
    found.outcome.series.append(
        {
            "peer": contestant.name,
            "scenario": horizon,
            "columns": list(COLUMNS),
            "rows": rows,
            "relations": relations(seen.samples, seen.sent.start),
        }
    )
    _figures(found.outcome, contestant.name, horizon, rows)


def _load(found: Arena, contestant: Contestant, parameters: Parameters, horizon: str) -> _Seen:
    bystander = Bystander(found.ground, contestant.dsn)
    with ExitStack() as stack:
        live = stack.enter_context(Live(contestant, parameters.claim))
        sampler = stack.enter_context(Sampler(contestant.dsn, contestant.peer.adapter.schemas))
        stack.enter_context(bystander)
        sent = live.send(0, parameters.rate, parameters.total, found.request.seed)
        _wait_until(sent.start + parameters.before)
        with held(horizon, found.ground, contestant.dsn):
            _wait_until(sent.start + parameters.before + parameters.during)
        _wait_until(sent.start + parameters.total)
        _, received = live.collect(patience=60)
    if sampler.error is not None:
        found.outcome.notes.append(f"{contestant.name}, {horizon}: sampling ended early: {sampler.error}")
    return _Seen(sent, received, sampler.samples, bystander.latencies)


def _wait_until(at: float) -> None:
    sleep(max(0.0, at - monotonic()))


def per_second(
    parameters: Parameters,
    start: float,
    times: Sequence[Sequence[float]],
    samples: Sequence[Sample],
    bystander: Sequence[tuple[float, float]],
) -> Iterator[list[Any]]:
    """One row a second, in `COLUMNS`; None where nothing was measured.

    A message belongs to the second in which it was meant to be sent for its latency, and to that in which it arrived
    for the throughput.
    """
    seconds = int(parameters.total)
    arrived = _buckets(((at - start, 0.0) for _, at in times), seconds)
    latency = _buckets(((due - start, (at - due) * 1000) for due, at in times), seconds)
    wall = time() - monotonic()
    beside = _buckets(((at - wall - start, ms) for at, ms in bystander), seconds)
    looks = {int(sample.at - start): sample for sample in samples if sample.at >= start}
    for second in range(seconds):
        sample = looks.get(second) or looks.get(second - 1)
        look = (sample.dead, sample.bytes) if sample else (None, None)
        rest = (sample.vacuums, sample.vacuuming, sample.horizon_age, sample.catalog_dead) if sample else (None,) * 4
        lags = (*_two(latency[second]), *_two(beside[second]))
        yield [second, _phase(parameters, second), *look, len(arrived[second]), *lags, *rest]


def _phase(parameters: Parameters, second: float) -> str:
    if second < parameters.before:
        return "before"
    return "held" if second < parameters.before + parameters.during else "released"


def _buckets(pairs: Iterator[tuple[float, float]], seconds: int) -> list[list[float]]:
    found: list[list[float]] = [[] for _ in range(seconds)]
    for at, value in pairs:
        if 0 <= at < seconds:
            found[int(at)].append(value)
    return found


def _two(values: list[float]) -> tuple[float | None, float | None]:
    """p50 and p99 of one second: few values, so they are ranked rather than counted."""
    if not values:
        return None, None
    ranked = sorted(values)
    return round(median(ranked), 3), round(ranked[min(len(ranked) - 1, int(len(ranked) * 0.99))], 3)


def relations(samples: Sequence[Sample], start: float) -> dict[str, list[list[int]]]:
    """Dead tuples and bytes by second of those relations that had most of either; the rest would only fill the file."""
    worst: dict[str, int] = {}
    for sample in samples:
        for name, (_, dead, heap, indexes) in sample.relations.items():
            worst[name] = max(worst.get(name, 0), dead * 100 + heap + indexes)
    shown = sorted(worst, key=worst.__getitem__, reverse=True)[:_RELATIONS_SHOWN]
    return {name: [list(_look(sample, name, start)) for sample in samples if sample.at >= start] for name in shown}


def _look(sample: Sample, name: str, start: float) -> tuple[int, int, int]:
    _, dead, heap, indexes = sample.relations.get(name, (0, 0, 0, 0))
    return int(sample.at - start), dead, heap + indexes


def _figures(outcome: Outcome, peer: str, horizon: str, rows: Sequence[list[Any]]) -> None:
    """A phase's last third stands for where it leads, its first third for where it began."""
    held_rows = [row for row in rows if row[1] == "held"]
    third = max(1, len(held_rows) // 3)
    early, late = held_rows[:third], held_rows[-third:]
    released = [row for row in rows if row[1] == "released"]

    def add(what: str, unit: str, values: list[Any], how: Any, better: Any = "lower") -> None:
        if kept := [value for value in values if value is not None]:
            outcome.add(peer, f"{what}, {horizon}", how(kept), unit, better)

    add("dead tuples at most", "tuples", [row[2] for row in rows], max)
    add("dead tuples at the end", "tuples", [row[2] for row in released[-3:]], min)
    add("size at most", "bytes", [row[3] for row in rows], max)
    add("received late", "messages/s", [row[4] for row in late], fmean, "higher")
    add("p99 early", "ms", [row[6] for row in early], median)
    add("p99 late", "ms", [row[6] for row in late], median)
    add("bystander p99 late", "ms", [row[8] for row in late], median)
    add("vacuums", "runs", [row[9] for row in rows], lambda found: found[-1] - found[0])
