"""Two results side by side: ratios alone, with their spread, and what else was different."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pgq_py.bench.compare import compare, differences
from pgq_py.cli._main import app
from pgq_py.errors import InvalidArgument

pytestmark = pytest.mark.newest

FACTS: dict[str, Any] = {
    "parameters": {"rounds": 3},
    "machine": {"cpus": 2, "load": 0.1},
    "server": {"version": "18", "settings": {"fsync": "on"}},
}


def own(low: float, median: float, high: float) -> dict[str, Any]:
    spread = {"median": median, "low": low, "high": high, "runs": [low, median, high]}
    rates = {"median": 5e5 * median, "low": 1, "high": 1, "runs": [1]}
    return {
        **FACTS,
        "benchmark": "produce",
        "ratios": {"send_many / raw_copy": spread},
        "events_per_second": {"send_many": rates},
    }


def beside_peers(low: float, high: float) -> dict[str, Any]:
    ratio = {"figure": "p50", "ours": "us", "theirs": "them", "median": (low + high) / 2, "low": low, "high": high}
    figures = [{"figure": "p50", "peer": peer, "better": "lower"} for peer in ("us", "them")]
    return {**FACTS, "kind": "peers", "workload": "latency", "figures": figures, "ratios": [ratio]}


def test_ratios_within_each_others_spread_are_the_same() -> None:
    (row,) = compare(own(0.7, 0.8, 0.9), own(0.8, 0.95, 1.0))
    assert (row.figure, row.verdict) == ("send_many / raw_copy", "same")
    assert row.change == pytest.approx(0.1875)


def test_what_is_better_depends_on_the_figure() -> None:
    assert compare(own(0.7, 0.8, 0.9), own(0.91, 1, 1.1))[0].verdict == "better"
    assert compare(own(0.91, 1, 1.1), own(0.7, 0.8, 0.9))[0].verdict == "worse"
    (row,) = compare(beside_peers(1.0, 1.2), beside_peers(0.5, 0.6))
    assert (row.figure, row.verdict) == ("p50: us / them", "better")


def test_promises_where_there_are_no_ratios() -> None:
    promises = [{"name": "p99", "measured": 5.0, "at_least": False}]
    a = {**FACTS, "benchmark": "latency", "promises": promises}
    b = {**FACTS, "benchmark": "latency", "promises": [{**promises[0], "measured": 7.0}]}
    assert compare(a, b)[0].verdict == "worse"


def test_different_benchmarks_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="cannot be compared"):
        compare(own(1, 1, 1), beside_peers(1, 1))


def test_what_else_was_different() -> None:
    other = own(1, 1, 1) | {
        "machine": {"cpus": 8, "load": 3},
        "server": {"version": "17", "settings": {"fsync": "off"}},
    }
    assert differences(own(1, 1, 1), other) == [
        "machine: cpus: 2 / 8",
        "server: version: 18 / 17",
        "setting fsync: on / off",
    ]


def test_the_command(tmp_path: Path) -> None:
    a, b, junk = tmp_path / "a.json", tmp_path / "b.json", tmp_path / "junk.json"
    a.write_text(json.dumps(own(0.7, 0.8, 0.9)))
    b.write_text(json.dumps(own(0.3, 0.4, 0.5)))
    junk.write_text("[]")
    answer = CliRunner().invoke(app, ["bench", "compare", str(a), str(b), "--json"])
    assert answer.exit_code == 1
    assert [row["verdict"] for row in json.loads(answer.stdout)] == ["worse"]
    assert CliRunner().invoke(app, ["bench", "compare", str(a), str(a)]).exit_code == 0
    assert CliRunner().invoke(app, ["bench", "compare", str(a), str(junk)]).exit_code != 0
