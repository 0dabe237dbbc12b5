"""Our own adapters through every workload: they arrive at figures, and lose nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.harness.arena import Request
from benchmarks.harness.outcome import Outcome
from benchmarks.workloads import bloat, consume, idle, jobs, latency, produce, scale, wal
from tests.harness.conftest import documented

pytestmark = [pytest.mark.newest, pytest.mark.slow]

OURS = ("pgq-py", "pgq-py-jobs", "pgq-py-jobs-sql")

RUNS: dict[str, Callable[[Request], Outcome]] = {
    "produce": lambda request: produce.run(produce.Parameters(50, 50, 20, rounds=1), request),
    "consume": lambda request: consume.run(consume.Parameters(60, (1, 3), rounds=1), request),
    "latency": lambda request: latency.run(latency.Parameters((50.0,), 0.5, 0, rounds=1), request),
    "idle": lambda request: idle.run(idle.Parameters(0.5, 0.1), request),
    "wal": lambda request: wal.run(wal.Parameters(50, rounds=1), request),
    "bloat": lambda request: bloat.run(bloat.Parameters(50, 0.5, 1.5, 0.5, ("idle snapshot",)), request),
    "scale": lambda request: scale.run(scale.Parameters((1, 3), (1, 2), (0, 100), steps=3, warm_up=1), request),
    "jobs": lambda request: jobs.run(jobs.Parameters(100, (2,), (10,), rounds=1), request),
}


@pytest.mark.parametrize("workload", RUNS)
def test_the_log_and_jobs(workload: str, request_for: Callable[..., Request]) -> None:
    outcome = RUNS[workload](request_for(*OURS))
    found = documented(outcome)
    assert found["ok"], found["failures"] or [check for check in found["checks"] if not check["ok"]]
    can = "scale" if workload in ("scale", "consume") else "jobs" if workload == "jobs" else None
    expected = {"scale": {"pgq-py"}, "jobs": set(OURS[1:]), None: set(OURS)}[can]
    assert {figure["peer"] for figure in found["figures"]} == expected


def test_a_held_snapshot_leaves_no_dead_tuple(request_for: Callable[..., Request]) -> None:
    outcome = RUNS["bloat"](request_for(*OURS))
    for peer in OURS:
        assert outcome.runs(peer, "dead tuples at most, idle snapshot") == [0.0], peer
