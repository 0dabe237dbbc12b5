"""Durations as a histogram of bounded size, exact to three digits: `hdrhistogram`, which comes with the demo extra."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from pgq_py.bench.results import Line
from pgq_py.errors import PgqError

__all__ = ["Percentiles"]

_LONGEST_US = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of `count` durations, in milliseconds."""

    count: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Self:
        """All zero when there are none."""
        histogram = _new_histogram()
        for value in seconds:
            histogram.record_value(min(max(round(value * 1e6), 1), _LONGEST_US))
        if not histogram.total_count:
            return cls(0, 0, 0, 0, 0)
        at = [round(int(histogram.get_value_at_percentile(p)) / 1000, 3) for p in (50, 90, 99, 100)]
        return cls(int(histogram.total_count), *at)

    def lines(self, what: str) -> list[Line]:
        figures = {"p50": self.p50_ms, "p90": self.p90_ms, "p99": self.p99_ms, "max": self.max_ms}
        return [Line(f"{what}, {name}", value, "ms") for name, value in figures.items()]


def _new_histogram() -> Any:
    try:
        from hdrh.histogram import HdrHistogram
    except ImportError as exc:
        raise PgqError("this benchmark needs hdrhistogram", advice="`pip install 'pgq-py[demo]'`") from exc
    return HdrHistogram(1, _LONGEST_US, 3)
