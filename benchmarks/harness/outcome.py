"""A workload's result: figures with their spread, checks, ratios, series; and its JSON.

The JSON is described by `benchmarks/result.schema.json`. Figures of one result may be compared with each other, and
with nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from time import perf_counter
from typing import Any, Final, Literal

from benchmarks.harness.catalog import Absent, Peer
from pgq_py.bench import machine
from pgq_py.bench.results import Spread

__all__ = ["FORMAT", "Check", "Outcome", "Ratio"]

FORMAT: Final = 1
Better = Literal["higher", "lower"]


@dataclass(frozen=True, slots=True)
class Check:
    """What was sent beside what was received. `missing` and `foreign` count messages, `doubled` further deliveries."""

    peer: str
    what: str
    sent: int
    received: int
    missing: int
    doubled: int
    foreign: int

    @property
    def ok(self) -> bool:
        return not (self.missing or self.doubled or self.foreign)

    @classmethod
    def of(cls, peer: str, what: str, first: int, count: int, *summaries: dict[str, Any]) -> Check:
        """`count` messages numbered from `first` were sent; `summaries` are of those who received them."""
        times: dict[int, int] = {}
        for summary in summaries:
            for low, high in summary["ranges"]:
                for number in range(low, high + 1):
                    times[number] = times.get(number, 0) + 1
            for number, often in summary["again"].items():
                times[int(number)] += often - 1
        mine = [often for number, often in times.items() if first <= number < first + count]
        return cls(
            peer=peer,
            what=what,
            sent=count,
            received=sum(times.values()),
            missing=count - len(mine),
            doubled=sum(mine) - len(mine),
            foreign=len(times) - len(mine),
        )


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ours to theirs, of runs taken in turns. `aim` is what this project wants to reach, `reached` whether it did."""

    figure: str
    ours: str
    theirs: str
    value: Spread
    aim: float | None = None
    at_least: bool = True

    @property
    def reached(self) -> bool | None:
        if self.aim is None:
            return None
        return self.value.median >= self.aim if self.at_least else self.value.median <= self.aim


@dataclass(slots=True)
class _Figure:
    peer: str
    figure: str
    unit: str
    better: Better
    runs: list[float]


@dataclass(slots=True)
class Outcome:
    """Collects what a workload finds out."""

    workload: str
    parameters: dict[str, Any]
    server: machine.Server
    peers: dict[str, dict[str, Any]] = field(default_factory=dict)
    ratios: list[Ratio] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    series: list[dict[str, Any]] = field(default_factory=list)
    failures: list[dict[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _figures: dict[tuple[str, str], _Figure] = field(default_factory=dict)
    _machine: machine.Machine = field(default_factory=machine.machine)
    _started: datetime = field(default_factory=lambda: datetime.now(UTC))
    _begin: float = field(default_factory=perf_counter)

    def present(self, peer: Peer, versions: dict[str, str]) -> None:
        cls = peer.adapter
        facts = {"title": cls.title, "kind": cls.kind, "framework": cls.framework, "practice": cls.practice}
        self.peers[peer.name] = {"present": True, **facts, "versions": versions}

    def absent(self, peer: Absent) -> None:
        self.peers[peer.name] = {"present": False, "title": peer.title, "reason": peer.reason}

    def add(self, peer: str, figure: str, value: float, unit: str, better: Better) -> None:
        """One run of a figure."""
        self._figures.setdefault((peer, figure), _Figure(peer, figure, unit, better, [])).runs.append(value)

    def fail(self, peer: str, what: str, error: str) -> None:
        """A peer that failed has no figure for that; whoever reads the result shall see why."""
        self.failures.append({"peer": peer, "what": what, "error": error[-4000:]})

    def runs(self, peer: str, figure: str) -> Sequence[float]:
        found = self._figures.get((peer, figure))
        return found.runs if found else ()

    def figure_names(self) -> list[str]:
        return list(dict.fromkeys(figure for _, figure in self._figures))

    def measured(self, figure: str) -> list[str]:
        """Peers that have it."""
        return [peer for peer, name in self._figures if name == figure]

    @property
    def ok(self) -> bool:
        """Nothing was lost or doubled, and nobody failed. Ratios are findings, not faults."""
        return all(check.ok for check in self.checks) and not self.failures

    def as_json(self) -> dict[str, Any]:
        """The result as one object for `json.dumps`."""
        return {
            "format": FORMAT,
            "kind": "peers",
            "workload": self.workload,
            "started_at": self._started.isoformat(timespec="seconds"),
            "seconds": round(perf_counter() - self._begin, 1),
            "ok": self.ok,
            "parameters": self.parameters,
            "machine": asdict(self._machine),
            "server": asdict(self.server),
            "peers": self.peers,
            "figures": list(_figures(self._figures.values())),
            "ratios": [_ratio(ratio) for ratio in self.ratios],
            "checks": [{**asdict(check), "ok": check.ok} for check in self.checks],
            "series": self.series,
            "failures": self.failures,
            "notes": self.notes,
        }


def _figures(figures: Iterable[_Figure]) -> Iterable[dict[str, Any]]:
    for found in figures:
        facts = {"peer": found.peer, "figure": found.figure, "unit": found.unit, "better": found.better}
        yield {**facts, **asdict(Spread.of(found.runs))}


def _ratio(ratio: Ratio) -> dict[str, Any]:
    facts: dict[str, Any] = {"figure": ratio.figure, "ours": ratio.ours, "theirs": ratio.theirs}
    if ratio.aim is not None:
        facts |= {"aim": ratio.aim, "at_least": ratio.at_least, "reached": ratio.reached}
    return {**facts, **asdict(ratio.value)}
