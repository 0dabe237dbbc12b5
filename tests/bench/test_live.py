"""Short runs of the live benchmarks: processes that really run, the shape of what they report, and what is no time.

How late anything is, a shared machine cannot promise; that nothing is lost, early, dead or written while idle, it can.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from pgq_py.bench import latency
from pgq_py.bench.armed import ArmedParameters, run_armed
from pgq_py.bench.backlog import BacklogParameters, run_backlog
from pgq_py.bench.delay import DelayParameters, DelayResult, run_delay
from pgq_py.bench.histogram import Percentiles
from pgq_py.bench.latency import SCENARIOS, LatencyParameters, Scenario, run_latency, seconds_until_back
from pgq_py.bench.live import Processes
from pgq_py.bench.loop import LoopParameters, run_loop
from pgq_py.bench.quiet import QuietParameters, processor_seconds, run_quiet
from pgq_py.cli import bench_live
from pgq_py.errors import PgqError
from tests.bench.test_runs import as_json, databases
from tests.clusters import Cluster

runner = CliRunner()


@pytest.mark.newest
@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_latency(pg: Cluster, scenario: Scenario) -> None:
    parameters = LatencyParameters(rate=50, seconds=2, scenario=scenario, bounds=False, warm_up=0.5)
    result = run_latency(parameters, dsn=pg.server.dsn())
    assert result.ok
    assert (result.sent, result.received) == (125, 125)
    assert result.latency.count == 100
    assert 0 < result.latency.p50_ms <= result.latency.p90_ms <= result.latency.p99_ms <= result.latency.max_ms
    assert (result.back_after is not None) <= (scenario == "failover")
    assert 1 <= result.ticks <= 125 + 5
    found = as_json(result)
    assert found["parameters"]["scenario"] == scenario
    assert [promise["name"] for promise in found["promises"]] == ["events received of those sent"]
    assert databases(pg) == []


@pytest.mark.newest
@pytest.mark.slow
def test_idle(pg: Cluster) -> None:
    result = run_quiet(QuietParameters(seconds=2, queues=3, settle=1, bounds=False), dsn=pg.server.dsn())
    assert result.ok
    assert result.ticks == 0
    assert 0 <= result.transactions < 100
    found = as_json(result)
    if sys.platform == "linux":
        assert set(found["cpu_percent_by_process"]) >= {"bench (client)", "bench ticker (server)", "consume (client)"}
        assert found["cpu_percent"] >= 0
    assert databases(pg) == []


@pytest.mark.newest
@pytest.mark.slow
def test_armed(pg: Cluster) -> None:
    result = run_armed(ArmedParameters(clients=4, seconds=0.2, rounds=3, bounds=False), dsn=pg.server.dsn())
    assert result.ok
    rates, ratios = result.events_per_second, result.ratios
    assert {name: len(spread.runs) for name, spread in rates.items()} == {"disarmed": 3, "expired": 3, "armed": 3}
    pairs = zip(rates["expired"].runs, rates["disarmed"].runs, strict=True)
    assert ratios["expired / disarmed"].runs == pytest.approx([a / b for a, b in pairs], rel=1e-4)
    found, share = result.promises
    assert found.measured == found.bound > 0
    assert share.measured == ratios["expired / disarmed"].median
    assert as_json(result)["parameters"]["clients"] == 4
    assert databases(pg) == []


@pytest.mark.newest
@pytest.mark.slow
def test_loop(pg: Cluster) -> None:
    result = run_loop(LoopParameters(4, 1, 1, (1, 10), bounds=False), dsn=pg.server.dsn())
    assert [str(promise) for promise in result.promises if not promise.kept] == []
    ways = [f"{way}, n = {n}" for n in (1, 10) for way in ("procedure", "function", "table")]
    assert list(result.jobs_per_second) == ways
    assert all(spread.low > 0 for spread in result.jobs_per_second.values())
    assert result.promises[-1].measured == result.promises[-1].bound > 0
    found = as_json(result)
    assert set(found["ratios"]) == {f"{way} / table, n = {n}" for n in (1, 10) for way in ("procedure", "function")}
    assert databases(pg) == []


@pytest.mark.newest
@pytest.mark.slow
def test_backlog(pg: Cluster) -> None:
    result = run_backlog(BacklogParameters(20_000, 5, (1, 10), looks=20, bounds=False), dsn=pg.server.dsn())
    assert [(promise.measured, promise.bound) for promise in result.promises] == [(2 * 5 * 11, 2 * 5 * 11)]
    assert list(result.claim_ms) == ["deep, n = 1", "shallow, n = 1", "deep, n = 10", "shallow, n = 10"]
    assert all(len(spread.runs) == 5 and spread.low > 0 for spread in result.claim_ms.values())
    assert result.status.count == 20
    assert set(as_json(result)["ratios"]) == {"deep / shallow, n = 1", "deep / shallow, n = 10"}
    assert databases(pg) == []


def delayed(pg: Cluster, seconds: int) -> DelayResult:
    parameters = DelayParameters(
        rate=1600 / seconds, nack_rate=320 / seconds, seconds=seconds, pin_xmin=True, delay=1,
        rotation_seconds=0.05, batch=200, backlog=500, bounds=False,
    )  # fmt: skip
    result = run_delay(parameters, dsn=pg.server.dsn())
    assert [str(promise) for promise in result.promises if not promise.kept] == []
    assert (result.sent, result.handled, result.early) == (1600, 1600, 0)
    assert result.nacked > 0
    return result


@pytest.mark.newest
@pytest.mark.slow
def test_delay(pg: Cluster) -> None:
    result = delayed(pg, 4)
    if not result.rotations:  # maintenance rests for a while where its rounds take long, as beside many other tests
        result = delayed(pg, 20)
    assert result.rotations > 0
    assert result.dead_tuples_by_table == {}
    assert result.backlog.back == 500
    found = as_json(result)
    assert [quarter["count"] for quarter in found["lateness_by_quarter"]] == [400] * 4
    assert found["nack"]["many"] == 100
    assert found["nack"]["ratio"] > 0
    assert databases(pg) == []


@pytest.mark.newest
@pytest.mark.slow
def test_a_missed_bound_is_exit_status_1_unless_bounds_are_off(pg: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(latency.BOUNDS, "plain", {"p50_ms": 0.0})
    command = ["latency", "--rate", "20", "--seconds", "1", "--dsn", pg.server.dsn()]
    done = runner.invoke(bench_live.app, [*command, "--json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["ok"] is False
    assert "promise broken: latency p50_ms" in done.stderr
    assert runner.invoke(bench_live.app, [*command, "--no-bounds"]).exit_code == 0


def test_an_outage_ends_with_ten_events_in_good_time() -> None:
    late = [(10 + nth / 10, 0.5) for nth in range(5)]
    good = [(10.5 + nth / 10, 0.001) for nth in range(12)]
    assert seconds_until_back([(9.9, 0.001), *late, *good], killed=9.95) == pytest.approx(0.55)
    assert seconds_until_back(good, killed=10.45) == 0.0
    assert seconds_until_back([*late, *good[:9]], killed=9.95) is None
    assert seconds_until_back([], killed=0) is None


def test_percentiles_are_in_milliseconds() -> None:
    found = Percentiles.of([0.001] * 98 + [0.01, 0.1])
    assert found.count == 100
    assert found.p50_ms == pytest.approx(1, rel=0.01)
    assert found.p99_ms == pytest.approx(10, rel=0.01)
    assert found.max_ms == pytest.approx(100, rel=0.01)
    assert Percentiles.of([]) == Percentiles(0, 0, 0, 0, 0)


def test_processor_time_is_known_on_linux_of_living_processes() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert processor_seconds(ended.pid) is None
    if sys.platform == "linux":
        assert (processor_seconds(os.getpid()) or 0) > 0


def test_a_process_that_ends_says_why() -> None:
    with Processes("host=/nonexistent") as processes, pytest.raises(PgqError, match="has ended") as failure:
        processes.consumer("consumer")
    assert "nonexistent" in failure.value.advice
