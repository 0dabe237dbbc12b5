"""The harness's own arithmetic: checks, ratios, schedules, rates, environments, pictures."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.aims import ratios
from benchmarks.harness.bystander import parse
from benchmarks.harness.catalog import PEERS, Peer, adapter, choose
from benchmarks.harness.environments import find_python
from benchmarks.harness.outcome import Check, Outcome
from benchmarks.harness.sampling import Sample
from benchmarks.harness.sizing import Sizing
from benchmarks.peers.load import arrivals, messages, summary
from benchmarks.pictures.report import write_report
from benchmarks.workloads import bloat
from benchmarks.workloads.jobs import rate_of
from pgq_py.bench.machine import Server
from tests.harness.conftest import documented

pytestmark = pytest.mark.newest

ABILITIES = {"single", "pipelined", "bulk", "read", "fanout", "jobs", "live", "scale"}


def outcome_of(workload: str = "produce", parameters: dict[str, Any] | None = None) -> Outcome:
    outcome = Outcome(workload, parameters or {}, Server("PostgreSQL 18", 180000, True, {"fsync": "on"}))
    for name in ("pgq-py", "pgque", "pgq", "raw"):
        outcome.present(Peer(name, PEERS[name], adapter(PEERS[name]), Path(sys.executable)), {"x": "1"})
    return outcome


def test_a_check_counts_what_is_missing_doubled_and_foreign() -> None:
    check = Check.of("x", "y", 10, 5, summary([10, 11, 11, 3]), summary([14, 10]))
    assert (check.sent, check.received, check.missing, check.doubled, check.foreign) == (5, 6, 2, 2, 1)
    assert not check.ok
    assert Check.of("x", "y", 0, 3, summary([2, 0]), summary([1])).ok


def test_messages_and_schedules_are_seeded() -> None:
    assert messages(5, 10, 1) == messages(5, 10, 1) != messages(5, 10, 2)
    assert [json.loads(message.text)["nr"] for message in messages(5, 3, 1)] == [5, 6, 7]
    offsets = arrivals(100, 20, 1)
    assert offsets == arrivals(100, 20, 1) == sorted(offsets)
    assert 1700 < len(offsets) < 2300
    assert offsets[-1] < 20


def test_a_rate_counts_from_when_all_workers_were_at_work() -> None:
    assert rate_of([[0, 1, 2, 3, 4]], 4) == 1
    assert rate_of([[0, 1, 2, 3, 4], [2, 2.5, 3, 3.5]], 4) == pytest.approx(5 / 2)
    # the second came when nearly all was done: counted from the first
    assert rate_of([[*range(10)], [8.9]], 10) == pytest.approx(1.0)
    assert rate_of([[], []], 10) == 0
    assert rate_of([[], [1, 2, 3]], 3) == 1


def test_a_slow_peer_gets_fewer_messages_in_every_turn_that_counts() -> None:
    sizing = Sizing(seconds=2)
    assert sizing.count("slow", "bulk", 1_000) == sizing.count("fast", "bulk", 1_000) == 100
    for peer, rate in (("slow", 50.0), ("fast", 90_000.0), ("dead slow", 0.1)):
        sizing.measured(peer, "bulk", rate)
    sizing.measured("slow", "bulk", 400.0)  # a later turn
    assert sizing.count("slow", "bulk", 1_000) == 100  # two seconds at its 50
    assert sizing.count("fast", "bulk", 1_000) == 1_000
    assert sizing.count("dead slow", "bulk", 1_000) == 10
    assert sizing.count("slow", "single", 5) == 5  # another figure has a warm-up of its own


def test_ratios_are_of_pairs_and_aims_of_the_best() -> None:
    outcome = outcome_of()
    for ours, theirs, pgq in ((100, 10, 40), (120, 40, 40)):
        outcome.add("pgq-py", "bulk", ours, "messages/s", "higher")
        outcome.add("pgque", "bulk", theirs, "messages/s", "higher")
        outcome.add("pgq", "bulk", pgq, "messages/s", "higher")
    found = {(ratio.theirs, ratio.aim): ratio for ratio in ratios(outcome)}
    assert found["pgque", None].value.runs == (10, 3)
    assert found["pgque", 4].reached is True
    assert found["pgq", 2].value.median == 2.75
    assert len(found) == 4


def test_every_peer_declares_itself() -> None:
    for name, reference in PEERS.items():
        cls = adapter(reference)
        assert cls.practice, name
        assert cls.title, name
        assert cls.can, name
        assert cls.can <= ABILITIES, name
        assert cls.kind in ("ours", "peer", "limit"), name
    with pytest.raises(KeyError):
        choose(["nobody"], ["bulk"])
    assert "procrastinate" not in choose(None, ["read"])


def test_an_interpreter_is_found_or_not() -> None:
    assert find_python((3, 11)) == Path(sys.executable)
    assert find_python((3, 99)) is None


def test_pgbench_log() -> None:
    log = "0 1 1500 0 1700000000 500000 12\n0 2 2500 0 1700000001 0\n0 3 25"
    assert parse(log) == [(1700000000.5, 1.5), (1700000001.0, 2.5)]


def series() -> Outcome:
    parameters = bloat.Parameters(10, 2, 4, 2, ("idle snapshot",))
    relations = {"public.jobs": (10, 5, 8192, 16384)}
    samples = [Sample(100.0 + nth, relations, 5 * nth, 24576, nth, 0, 0, 7) for nth in range(8)]
    times = [[100 + nth / 10, 100 + nth / 10 + 0.005] for nth in range(80)]
    rows = list(bloat.per_second(parameters, 100.0, times, samples, []))
    outcome = outcome_of("bloat", {"rate": 10, "before": 2, "during": 4, "after": 2})
    outcome.series.append(
        {
            "peer": "pgq-py",
            "scenario": "idle snapshot",
            "columns": list(bloat.COLUMNS),
            "rows": rows,
            "relations": bloat.relations(samples, 100.0),
        }
    )
    return outcome


def test_seconds_have_their_phase_and_what_happened_in_them() -> None:
    (found,) = documented(series())["series"]
    rows = [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]
    assert [row["phase"] for row in rows] == ["before"] * 2 + ["held"] * 4 + ["released"] * 2
    assert rows[3]["dead_tuples"] == 15
    assert rows[3]["received"] == pytest.approx(10, abs=1)
    assert rows[3]["p50_ms"] == pytest.approx(5)
    assert rows[3]["bystander_p50_ms"] is None
    assert found["relations"]["public.jobs"][2] == [2, 5, 24576]


def test_the_report_carries_its_pictures(tmp_path: Path) -> None:
    produced = outcome_of()
    for peer, rate in (("pgq-py", 300.0), ("pgque", 0.5)):
        produced.add(peer, "bulk <1>", rate, "messages/s", "higher")
    produced.fail("pgq", "bulk", "it <broke>")
    produced.checks.append(Check("pgq", "bulk", 10, 9, 1, 0, 0))
    scaled = outcome_of("scale")
    for value in (1, 100):
        scaled.add("pgq-py", f"claim, {value} queues", 1.0, "ms", "lower")
    for outcome in (produced, series(), scaled):
        (tmp_path / f"{outcome.workload}.json").write_text(json.dumps(documented(outcome)))
    page = write_report(tmp_path).read_text()
    assert page.count("data:image/png;base64,") == 3
    assert "http" not in page.replace("http-equiv", "")
    assert "it &lt;broke&gt;" in page
    assert "1 missing" in page
    for name in ("produce", "bloat-idle-snapshot", "scale-queues"):
        assert (tmp_path / "pictures" / f"{name}.png").stat().st_size > 5000
        assert "<svg" in (tmp_path / "pictures" / f"{name}.svg").read_text()
