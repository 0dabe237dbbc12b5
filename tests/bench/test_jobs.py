"""`pgq bench jobs`: its arithmetic, and a short run in which nothing is lost, done twice or dead."""

from __future__ import annotations

import json

import pytest

from pgq_py.bench.job_roles import padded
from pgq_py.bench.jobs import JobsParameters, percentile, quarters, run_jobs
from tests.bench.test_runs import as_json, databases
from tests.clusters import Cluster


def test_a_quarter_has_the_latency_of_what_was_due_in_it_and_the_throughput_of_what_was_done() -> None:
    on_time = [(100 + nth / 10, 0.01) for nth in range(30)]
    late = [(103 + nth / 10, 0.5) for nth in range(10)]
    found = quarters([*on_time, *late], 100, 4)
    assert [quarter.jobs_per_second for quarter in found] == [10, 10, 10, 5]
    assert [quarter.p95_ms for quarter in found] == [10, 10, 10, 500]
    assert [(quarter.jobs_per_second, quarter.p50_ms) for quarter in quarters([], 0, 4)] == [(0, 0)] * 4


def test_percentiles_are_of_values_that_were_measured() -> None:
    values = [nth / 1000 for nth in range(1, 101)]
    assert [percentile(values, percent) for percent in (1, 50, 95, 100)] == [1, 50, 95, 100]
    assert percentile([0.002], 95) == 2
    assert percentile([], 95) == 0


def test_payloads_have_the_size_asked_for() -> None:
    for size in (60, 120, 1000):
        payload = padded(1234567.125, size)
        assert len(payload) == size
        assert json.loads(payload)["due"] == 1234567.125
    assert json.loads(padded(1.5, 1))["due"] == 1.5


@pytest.mark.newest
@pytest.mark.slow
def test_a_short_run(pg: Cluster) -> None:
    parameters = JobsParameters(rate=200, seconds=2, pin_xmin=True, bounds=False)
    result = run_jobs(parameters, dsn=pg.server.dsn())
    assert [str(promise) for promise in result.promises if not promise.kept] == []
    assert (result.log.sent, result.log.done, result.log.twice) == (400, 400, 0)
    assert result.log.dead_tuples_by_table == {}
    assert result.table is not None
    assert (result.table.sent, result.table.done) == (400, 400)
    assert result.table.dead_tuples >= 400
    assert result.log.wal_bytes_per_job > 0
    found = as_json(result)
    assert len(found["log"]["quarters"]) == len(found["table"]["quarters"]) == 4
    assert databases(pg) == []
