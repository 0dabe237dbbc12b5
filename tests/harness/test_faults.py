"""Every workload notices what a peer loses or doubles, measures a known time within bounds, and names who is absent."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from benchmarks.harness.arena import Request
from benchmarks.harness.catalog import Peer
from benchmarks.harness.outcome import Outcome
from benchmarks.harness.process import PeerProcess
from benchmarks.workloads import bloat, consume, jobs, latency, produce, wal
from tests.clusters import Cluster
from tests.harness import faulty
from tests.harness.conftest import documented
from tests.waiting import wait_until

pytestmark = [pytest.mark.newest, pytest.mark.slow]

Requests = Callable[..., Request]
FAULTY = "tests.harness.faulty:"

RUNS: dict[str, Callable[[Request], Outcome]] = {
    "produce": lambda request: produce.run(produce.Parameters(50, 50, 50, rounds=1), request),
    "consume": lambda request: consume.run(consume.Parameters(50, (1,), rounds=1), request),
    "jobs": lambda request: jobs.run(jobs.Parameters(100, (2,), (10,), rounds=1), request),
    "latency": lambda request: latency.run(latency.Parameters((100.0,), 0.5, 0, rounds=1), request),
    "wal": lambda request: wal.run(wal.Parameters(50, rounds=1), request),
    "bloat": lambda request: bloat.run(bloat.Parameters(50, 0.5, 1, 0.5, ("free",)), request),
}


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What never comes need not be waited for; only for a peer that loses, because an honest one may be slow."""
    from benchmarks.workloads.live import Live

    collect = Live.collect
    monkeypatch.setattr(Live, "collect", lambda live, patience=0: collect(live, min(patience, 3)))
    monkeypatch.setattr(wal, "PATIENCE", 2)


@pytest.mark.parametrize("workload", RUNS)
def test_an_honest_peer_has_figures(workload: str, request_for: Requests) -> None:
    outcome = RUNS[workload](request_for("Honest"))
    found = documented(outcome)
    assert found["ok"], found["failures"] or found["checks"]
    assert found["figures"]
    assert sum(check["sent"] for check in found["checks"]) > 0
    assert found["peers"][f"{FAULTY}Honest"]["present"] is True


@pytest.mark.usefixtures("short_patience")
@pytest.mark.parametrize("workload", [name for name in RUNS if name != "wal"])
def test_what_a_peer_loses_is_missed(workload: str, request_for: Requests) -> None:
    outcome = RUNS[workload](request_for("Loser"))
    assert not outcome.ok
    assert sum(check.missing for check in outcome.checks) > 0
    assert sum(check.doubled + check.foreign for check in outcome.checks) == 0
    documented(outcome)


@pytest.mark.usefixtures("short_patience")
def test_wal_does_not_end_for_what_never_comes(request_for: Requests) -> None:
    outcome = RUNS["wal"](request_for("Loser"))
    assert not outcome.ok
    assert "not all messages were received" in outcome.failures[0]["error"]


@pytest.mark.parametrize("workload", RUNS)
def test_what_a_peer_doubles_is_noticed(workload: str, request_for: Requests) -> None:
    outcome = RUNS[workload](request_for("Doubler"))
    assert not outcome.ok
    assert sum(check.doubled for check in outcome.checks) > 0
    assert sum(check.missing for check in outcome.checks) == 0


def test_a_known_time_is_measured_within_bounds(request_for: Requests) -> None:
    request = request_for("Sleeper")
    sending = produce.run(produce.Parameters(10, 10, 30, rounds=3), request)
    rates = sending.runs(f"{FAULTY}Sleeper", "single")
    assert len(rates) == 3
    assert all(20 < rate <= 100 for rate in rates)  # 10 ms and a commit each

    draining = jobs.run(jobs.Parameters(200, (1,), (1,), rounds=1), request)
    (rate,) = draining.runs(f"{FAULTY}Sleeper", "drain, 1 process, n = 1")
    assert 10 < rate <= 51  # 20 ms and two commits each

    waiting = latency.run(latency.Parameters((5.0,), 2, 0, rounds=1), request)
    (p50,) = waiting.runs(f"{FAULTY}Sleeper", "p50 at 5/s")
    assert 30 <= p50 < 300


def test_a_stall_is_charged_to_all_that_it_kept_waiting(request_for: Requests) -> None:
    """An open loop: with a closed one, a single message would have waited."""
    outcome = latency.run(latency.Parameters((60.0,), 3, 0, rounds=1), request_for("Staller"))
    (p50,), (p90,), (longest,) = (outcome.runs(f"{FAULTY}Staller", f"{name} at 60/s") for name in ("p50", "p90", "max"))
    assert longest >= 450
    assert p90 >= 100  # 30 of 180 messages were due during the stall
    assert p50 < 100


def test_a_peer_that_fails_is_reported_and_the_others_go_on(request_for: Requests) -> None:
    outcome = produce.run(produce.Parameters(20, 20, 5, rounds=1), request_for("Broken", "Honest"))
    assert not outcome.ok
    assert [failure["peer"] for failure in outcome.failures] == [f"{FAULTY}Broken"]
    assert "out of paper" in outcome.failures[0]["error"]
    assert outcome.measured("bulk") == [f"{FAULTY}Honest"]


def test_no_peer_is_left_to_measure(request_for: Requests) -> None:
    outcome = RUNS["latency"](request_for("Unready"))
    assert not outcome.ok
    assert "nobody at home" in outcome.failures[0]["error"]
    assert outcome.figure_names() == []


def test_an_absent_peer_is_absent_and_not_zero(request_for: Requests) -> None:
    found = documented(produce.run(produce.Parameters(20, 20, 5, rounds=1), request_for("Hermit", "Honest", "pgque")))
    assert found["ok"]
    assert "pip failed" in found["peers"][f"{FAULTY}Hermit"]["reason"]
    assert "--pgque-sql" in found["peers"]["pgque"]["reason"]
    assert {figure["peer"] for figure in found["figures"]} == {f"{FAULTY}Honest"}


def test_nothing_is_left_running(pg: Cluster) -> None:
    peer = Peer("parent", f"{FAULTY}Parent", faulty.Parent, Path(sys.executable))
    for how in (None, signal.SIGKILL):
        with PeerProcess(peer, pg.server.dsn(), {}) as process:
            pids = process.ask("background")
            assert len(pids) == 2
            if how is not None:
                os.kill(process.pid, how)
        wait_until(partial(all_gone, pids))


def all_gone(pids: list[int]) -> bool:
    """But for zombies."""
    found = [Path(f"/proc/{pid}/stat") for pid in pids]
    return all(path.read_text().rpartition(")")[2].split()[0] == "Z" for path in found if path.exists())


def test_nothing_is_left_on_the_server(pg: Cluster, request_for: Requests) -> None:
    RUNS["produce"](request_for("Honest"))
    with pg.database(installed=False) as database:
        assert database.rows("select datname from pg_database where datname like 'bench%'") == []
