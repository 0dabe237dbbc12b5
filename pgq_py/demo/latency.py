"""How long events took, in bounded memory however long the demo runs: an HDR histogram, exact to three digits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pgq_py.errors import PgqError

__all__ = ["Latency"]

_LONGEST_US = 3_600_000_000


class Latency:
    """Recorded by one thread, and read by any."""

    def __init__(self) -> None:
        self._histogram = _new_histogram()

    def record(self, seconds: Iterable[float]) -> None:
        for value in seconds:
            self._histogram.record_value(min(max(round(value * 1e6), 1), _LONGEST_US))

    def milliseconds(self, percentile: float) -> float:
        """The latency that so many percent did not exceed; 0 when nothing was recorded."""
        return round(int(self._histogram.get_value_at_percentile(percentile)) / 1000, 3)

    def summary(self) -> dict[str, float]:
        """The usual percentiles: p50, p95, p99, p99.9."""
        return {f"p{percentile:g}": self.milliseconds(percentile) for percentile in (50, 95, 99, 99.9)}


def _new_histogram() -> Any:
    try:
        from hdrh.histogram import HdrHistogram
    except ImportError as exc:
        raise PgqError("the demo needs the package hdrhistogram", advice="`pip install 'pgq-py[demo]'`") from exc
    return HdrHistogram(1, _LONGEST_US, 3)
