"""Short runs on every major: the shape of the results, and the promises that are not about time.

How fast anything is, a shared machine cannot promise; that nothing is lost, no tuple dies, an idle log writes nothing
and memory stays bounded, it can.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from pgq_py.bench import (
    ConsumeParameters,
    CycleParameters,
    ProduceParameters,
    Promise,
    Result,
    run_consume,
    run_cycle,
    run_produce,
)
from pgq_py.cli import bench
from tests.clusters import Cluster

TIMING = {
    "last sixth / first",
    "pages looked at, last sixth / first",
    "send_many / raw COPY",
    "streaming a batch / raw fetch",
}


def promises(result: Result) -> dict[str, Promise]:
    """The promises that must hold here."""
    return {promise.name: promise for promise in result.promises if promise.name not in TIMING}


def as_json(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(result.as_json()))
    assert found["server"]["private"] is False
    assert found["server"]["version"].startswith("PostgreSQL ")
    assert found["machine"]["cpus"] >= 1
    assert found["seconds"] > 0
    return found


def databases(pg: Cluster) -> list[str]:
    with pg.database(installed=False) as database:
        return [name for (name,) in database.rows("select datname from pg_database where datname like 'pgq_bench%'")]


def test_cycle(pg: Cluster) -> None:
    parameters = CycleParameters(
        cycles=60, consumers=2, pin_xmin=True, rotation_seconds=0, slot_kib=8, warm_up=10, maintenance_seconds=0.05
    )
    result = run_cycle(parameters, dsn=pg.server.dsn())
    assert [str(promise) for promise in promises(result).values() if not promise.kept] == []
    assert result.dead_tuples == 0
    assert result.dead_tuples_by_table == {}
    assert result.received == 70 * 2
    assert result.rotations_by_ring["event_1"] > 0
    found = as_json(result)
    assert [sixth["cycles"] for sixth in found["sixths"]] == [10] * 6
    assert set(found["sixths"][0]["steps_ms"]) == {"insert", "tick", "take", "read", "finish"}
    assert found["last_over_first"] == pytest.approx(
        found["sixths"][-1]["mean_ms"] / found["sixths"][0]["mean_ms"], rel=0.01
    )
    assert found["parameters"]["pin_xmin"] is True
    assert found["idle"]["poll_ms"]["median"] > 0
    assert databases(pg) == []


def test_cycle_without_a_pin(pg: Cluster) -> None:
    result = run_cycle(CycleParameters(cycles=12, consumers=1, warm_up=0), dsn=pg.server.dsn())
    assert result.dead_tuples == 0
    assert result.received == 12


@pytest.mark.newest
def test_produce(pg: Cluster) -> None:
    parameters = ProduceParameters(bulk=2_000, loop=200, single=200, commits=50, chunk=500, rounds=2)
    result = run_produce(parameters, dsn=pg.server.dsn())
    assert [str(promise) for promise in promises(result).values() if not promise.kept] == []
    found = as_json(result)
    rates = found["events_per_second"]
    assert set(rates) >= {"send_many_text", "send_many_json", "raw_copy", "send_autocommit", "send_in_transaction"}
    assert set(rates) >= {"send_pipelined", "loop_insert_event", "loop_produce", "loop_raw_insert"}
    assert all(len(spread["runs"]) == 2 for spread in rates.values())
    assert found["ratios"]["send_many_text / raw_copy"]["median"] > 0
    assert databases(pg) == []


@pytest.mark.newest
def test_consume(pg: Cluster) -> None:
    result = run_consume(ConsumeParameters(events=5_000, memory_events=20_000, rounds=1), dsn=pg.server.dsn())
    assert [str(promise) for promise in promises(result).values() if not promise.kept] == []
    found = as_json(result)
    assert found["ratios"]["stream / raw_fetch"]["median"] > 0
    assert found["memory"]["events"] == 20_000
    assert 0 < found["memory"]["start_mib"] <= found["memory"]["peak_mib"] < 200
    assert databases(pg) == []


# -- the command line -------------------------------------------------------------------------------------------------

runner = CliRunner()


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound that no machine can meet."""
    monkeypatch.setattr("pgq_py.bench.consume.FETCH_SHARE", 1e9)


CONSUME = ["consume", "--events", "1000", "--memory-events", "1000", "--rounds", "1"]


@pytest.mark.newest
@pytest.mark.usefixtures("broken")
def test_a_broken_promise_is_exit_status_1_with_the_reason_on_stderr(pg: Cluster) -> None:
    done = runner.invoke(bench.app, [*CONSUME, "--json", "--dsn", pg.server.dsn()])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["ok"] is False
    assert "promise broken: streaming a batch / raw fetch" in done.stderr
    assert "peak memory" not in done.stderr


@pytest.mark.newest
def test_a_pipe_gets_tab_separated_values(pg: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgq_py.bench.consume.FETCH_SHARE", 0.0)
    done = runner.invoke(bench.app, [*CONSUME, "--dsn", pg.server.dsn()])
    assert done.exit_code == 0
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert lines[0] == ["figure", "value", "unit", "low", "high"]
    assert {line[0]: line[2] for line in lines}["stream"] == "events/s"
    assert "kept: events read" in done.stderr


def test_wrong_usage_is_exit_status_2() -> None:
    assert runner.invoke(bench.app, ["cycle", "--cycles", "5"]).exit_code == 2
