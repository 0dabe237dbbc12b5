"""What this project wants to reach beside its peers: ratios, computed from the runs of one result, pair by pair.

A ratio is taken to every peer that has the figure; an aim is attached to the peer, or the best of several, that it was
set for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Final

from benchmarks.harness.outcome import Outcome, Ratio
from pgq_py.bench.results import Spread

__all__ = ["AIMS", "Aim", "ratios"]

_PYTHON_JOBS: Final = ("procrastinate", "pgqueuer-asyncpg", "pgqueuer-psycopg", "awa", "oban")
_QUICK: Final = ("oban", "pgqueuer-asyncpg", "pgmq-notify")


@dataclass(frozen=True, slots=True)
class Aim:
    """`figure` may end in `*`. Of several `theirs`, the best counts."""

    figure: str
    ours: str
    theirs: tuple[str, ...]
    bound: float
    at_least: bool


AIMS: Final = (
    Aim("bulk", "pgq-py", ("pgque",), 4, True),
    Aim("bulk", "pgq-py", ("pgq",), 2, True),
    Aim("pipelined", "pgq-py", ("pgq",), 1, True),
    Aim("read, 1 consumer*", "pgq-py", ("pgque",), 3, True),
    Aim("p50 at *", "pgq-py", _QUICK, 1.1, False),
    Aim("p99 at *", "pgq-py", _QUICK, 1.1, False),
    Aim("p50 at *", "pgq-py-jobs", _QUICK, 1.1, False),
    Aim("p99 at *", "pgq-py-jobs", _QUICK, 1.1, False),
    Aim("drain, best*", "pgq-py-jobs", _PYTHON_JOBS, 2, True),
    Aim("drain, best*", "pgq-py-jobs", ("pgmq",), 1, True),
    Aim("drain, best*", "pgq-py-jobs-sql", ("pgmq",), 1, True),
    Aim("WAL per job, in batches", "pgq-py-jobs-sql", ("pgmq",), 0.7, False),
    Aim("drain, best*", "pgq-py-jobs-sql", _PYTHON_JOBS, 2, True),
    Aim("WAL per event, in batches", "pgq-py", ("pgq",), 1.1, False),
    Aim("WAL per job, in batches", "pgq-py-jobs", ("pgmq",), 0.7, False),
)


def ratios(outcome: Outcome) -> Iterator[Ratio]:
    """All ratios of ours to each of the others, then those that an aim is set for."""
    for figure in outcome.figure_names():
        peers = outcome.measured(figure)
        for ours in (peer for peer in peers if outcome.peers[peer].get("kind") == "ours"):
            for theirs in peers:
                if outcome.peers[theirs].get("kind") != "ours" and (value := _of(outcome, figure, ours, theirs)):
                    yield Ratio(figure, ours, theirs, value)
            for aim in AIMS:
                if aim.ours == ours and _matches(aim.figure, figure) and (best := _best(outcome, figure, aim)):
                    value = _of(outcome, figure, ours, best)
                    if value is not None:
                        yield Ratio(figure, ours, best, value, aim.bound, aim.at_least)


def _matches(pattern: str, figure: str) -> bool:
    return figure.startswith(pattern[:-1]) if pattern.endswith("*") else figure == pattern


def _best(outcome: Outcome, figure: str, aim: Aim) -> str | None:
    found = {peer: median(outcome.runs(peer, figure)) for peer in aim.theirs if outcome.runs(peer, figure)}
    if not found:
        return None
    return max(found, key=found.__getitem__) if aim.at_least else min(found, key=found.__getitem__)


def _of(outcome: Outcome, figure: str, ours: str, theirs: str) -> Spread | None:
    """Pairs of the same turn; None when a turn is missing or a divisor zero."""
    upper, lower = outcome.runs(ours, figure), outcome.runs(theirs, figure)
    if len(upper) != len(lower) or not all(lower):
        return None
    return Spread.of_ratio(upper, lower)
