"""What a benchmark hands back: figures with their spread, promises with what became of them, and the circumstances.

A result is one JSON object. `format` changes when a reader of it would have to.
"""

from __future__ import annotations

import statistics
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Self

from pgq_py.bench.machine import Machine, Server

__all__ = ["FORMAT", "Line", "Promise", "Result", "Run", "Spread"]

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Spread:
    """One measurement, taken several times: the median, the lowest and the highest, and all in the order taken."""

    median: float
    low: float
    high: float
    runs: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """Raises ValueError when there are none."""
        runs = tuple(_rounded(value) for value in values)
        if not runs:
            raise ValueError("no measurement, no spread")
        return cls(_rounded(statistics.median(runs)), min(runs), max(runs), runs)

    @classmethod
    def of_ratio(cls, upper: Sequence[float], lower: Sequence[float]) -> Self:
        """Of the ratios of two measurements taken in turns.

        Pairs, not medians, are divided: what slows the machine down for a while slows down both of a pair.
        """
        return cls.of(a / b for a, b in zip(upper, lower, strict=True))


@dataclass(frozen=True, slots=True)
class Promise:
    """A bound on a figure that must hold on every machine. `note` says what a reader of a broken one should know."""

    name: str
    measured: float
    bound: float
    at_least: bool
    note: str = ""

    @property
    def kept(self) -> bool:
        return self.measured >= self.bound if self.at_least else self.measured <= self.bound

    def __str__(self) -> str:
        relation = "at least" if self.at_least else "at most"
        text = f"{self.name}: {self.measured:g}, promised is {relation} {self.bound:g}"
        return f"{text} ({self.note})" if self.note else text


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table for people and pipes."""

    figure: str
    value: float
    unit: str
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, figure: str, spread: Spread, unit: str) -> Self:
        return cls(figure, spread.median, unit, spread.low, spread.high)


@dataclass(frozen=True, slots=True)
class Run:
    """The circumstances of a result."""

    benchmark: str
    started_at: datetime
    seconds: float
    parameters: dict[str, Any]
    machine: Machine
    server: Server


@dataclass(frozen=True, slots=True)
class Result(ABC):
    """What all results have in common; each benchmark adds its figures as fields."""

    run: Run
    promises: tuple[Promise, ...] = field(kw_only=True)

    @property
    def ok(self) -> bool:
        """Every promise was kept."""
        return all(promise.kept for promise in self.promises)

    @abstractmethod
    def lines(self) -> list[Line]:
        """The figures in the order in which they are shown."""

    def as_json(self) -> dict[str, Any]:
        """The whole result as one object for `json.dumps`."""
        figures = asdict(self)
        run, promises = figures.pop("run"), figures.pop("promises")
        for entry, promise in zip(promises, self.promises, strict=True):
            entry["kept"] = promise.kept
        started = self.run.started_at.isoformat(timespec="seconds")
        return {"format": FORMAT, **run, "started_at": started, "ok": self.ok, "promises": promises, **figures}


def _rounded(value: float) -> float:
    """Six significant digits: more would claim a precision that no clock here has."""
    return float(f"{value:.6g}")
