"""`pgq demo`: it holds what it promises, says so when it does not, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from pgq_py.cli import _main
from pgq_py.cli import demo as cli_demo
from pgq_py.demo import Options, Result, proof, statements
from pgq_py.demo.place import Place
from pgq_py.demo.traffic import prepare_accounts
from tests.cli.driving import command, environment, run
from tests.clusters import Cluster, Database
from tests.waiting import wait_until

FACTS = proof.Facts(10, 5, {"mirror": 5, "counter": 5}, 0, 0, 7, 3, 0)


def _held(facts: proof.Facts, **changes: Any) -> set[str]:
    given = {"transactions": 5, "rotations": 1, "left": 0, "horizon_age": 5, **changes}
    return {promise.name for promise in proof.promises(facts, **given) if not promise.held}


def test_every_promise_can_fail() -> None:
    assert _held(FACTS) == set()
    assert _held(replace(FACTS, differences=1)) == {"mirror"}
    assert _held(replace(FACTS, accounts=0)) == {"mirror"}
    assert _held(replace(FACTS, applied={"mirror": 5, "counter": 4})) == {"delivery"}
    assert _held(replace(FACTS, applied={"mirror": 6, "counter": 5})) == {"delivery"}
    assert _held(FACTS, transactions=6, horizon_age=6) == {"delivery"}
    assert _held(replace(FACTS, job_differences=1)) == {"jobs"}
    assert _held(replace(FACTS, jobs=0)) == {"jobs"}
    assert _held(FACTS, rotations=0) == {"rotation"}
    assert _held(FACTS, left=1) == {"space"}
    assert _held(replace(FACTS, dead_tuples=1)) == {"bloat"}
    assert _held(FACTS, horizon_age=None) == {"horizon"}
    assert _held(FACTS, horizon_age=4) == {"horizon"}


@pytest.fixture
def accounts(empty_db: Database) -> psycopg.Connection[Any]:
    """pgbench's accounts and a mirror of them."""
    prepare_accounts(Place(empty_db.dsn, empty_db.server.bin_dir), 1)
    conn = empty_db.connect()
    conn.execute(statements.CREATE_TABLES)
    return conn


@pytest.mark.newest
@pytest.mark.parametrize(
    ("sabotage", "differences"),
    [
        ("select 1", 0),
        ("update demo.mirror set balance = balance + 1 where aid = 7", 2),
        ("delete from demo.mirror where aid in (7, 8)", 2),
        ("insert into demo.mirror values (-1, 0)", 1),
        ("update pgbench_accounts set abalance = 9 where aid <= 3", 6),
    ],
)
def test_a_mirror_that_differs_is_found(accounts: psycopg.Connection[Any], sabotage: str, differences: int) -> None:
    accounts.execute(sabotage.encode())
    assert proof.gather(accounts).differences == differences


@pytest.mark.newest
@pytest.mark.parametrize(
    ("sabotage", "differences"),
    [
        ("select 1", 0),
        ("insert into demo.receipts select job, aid, delta from demo.receipts limit 1", 1),
        ("delete from demo.receipts where job = 1", 1),
        ("update demo.receipts set delta = 9 where job = 1", 2),
        ("insert into pgbench_history (aid, delta) values (11, 1)", 0),
    ],
)
def test_a_job_that_took_effect_twice_or_never_is_found(
    accounts: psycopg.Connection[Any], sabotage: str, differences: int
) -> None:
    accounts.execute("insert into pgbench_history (aid, delta) values (10, 1), (10, 1), (20, 2)")
    accounts.execute("insert into demo.receipts values (1, 10, 1), (2, 10, 1), (3, 20, 2)")
    accounts.execute(sabotage.encode())
    assert proof.gather(accounts).job_differences == differences


def _result(facts: proof.Facts) -> Result:
    held = proof.promises(facts, transactions=5, rotations=1, left=0, horizon_age=5)
    return Result("18", 1.0, 1, 5, 5, 5.0, {"p50": 1.0}, 1, 0, 7, facts.differences == 0, facts.applied, 5, held)


@pytest.mark.newest
@pytest.mark.parametrize(("differences", "status"), [(0, 0), (2, 1)])
def test_the_exit_status_tells(monkeypatch: pytest.MonkeyPatch, differences: int, status: int) -> None:
    monkeypatch.setattr(cli_demo, "run_demo", lambda *_: _result(replace(FACTS, differences=differences)))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    answer = CliRunner().invoke(_main.app, ["demo"])
    assert answer.exit_code == status
    assert ("FAILED" in answer.stdout) is bool(status)
    machine = CliRunner().invoke(_main.app, ["demo", "--json"])
    assert machine.exit_code == status
    assert json.loads(machine.stdout)["mirror_equal"] is (status == 0)


def _leftovers(pid: int) -> list[Path]:
    """Directories of embedded servers that this process has started, by their watchdog's parent."""
    return [path for path in Path("/proc").glob("[0-9]*/cmdline") if _belongs(path, pid)]


def _belongs(cmdline: Path, pid: int) -> bool:
    try:
        stat = (cmdline.parent / "stat").read_text().rpartition(")")[2].split()
        return int(stat[1]) == pid and stat[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.newest
def test_on_an_embedded_server() -> None:
    answer = run("demo", "--seconds", "4", "--json", dsn="host=/nonexistent")  # PGQ_DSN is not where a demo belongs
    assert answer.status == 0, answer.out + answer.err
    assert answer.err == ""
    found = answer.json
    assert found["ok"]
    assert found["mirror_equal"] is True
    assert found["events"] == found["transactions"] == found["consumers"]["counter"] > 0
    assert found["events_per_second"] > 0
    assert 0 < found["jobs"] < found["transactions"]
    assert 0 < found["latency_ms"]["p50"] <= found["latency_ms"]["p99"]
    assert found["rotations"] >= 1
    assert found["dead_tuples"] == 0
    assert found["dead_tuples_elsewhere"] > 0
    assert all(promise["held"] for promise in found["promises"])


@pytest.mark.slow
def test_on_a_server_of_one_s_own(pg: Cluster) -> None:
    answer = run("demo", "--seconds", "2", "--clients", "2", "--dsn", pg.server.dsn())
    assert answer.status == 0, answer.out + answer.err
    assert answer.out.count("\nok ") == 7
    assert "filling pgbench's tables" in answer.err
    _nothing_is_left(pg)


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_it_leaves_nothing_behind(pg: Cluster, number: signal.Signals, status: int) -> None:
    working = "select count(*) from pg_stat_activity where application_name = 'pgbench' and state = 'active'"
    with (
        psycopg.connect(pg.server.dsn(), autocommit=True) as conn,
        subprocess.Popen(
            command("demo", "--seconds", "60", "--dsn", pg.server.dsn()),
            env=environment(None),
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        wait_until(lambda: _count(conn, working) and _count(conn, "select count(*) from pg_database where " + OWN), 60)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == status, err
    assert "Traceback" not in err
    _nothing_is_left(pg)


OWN = "datname like 'pgq\\_demo\\_%'"


def _count(conn: psycopg.Connection[Any], query: str) -> int:
    row = conn.execute(query.encode()).fetchone()
    return int(row[0]) if row else 0


def _nothing_is_left(pg: Cluster) -> None:
    with psycopg.connect(pg.server.dsn(), autocommit=True) as conn:
        assert _count(conn, "select count(*) from pg_database where " + OWN) == 0
        assert _count(conn, "select count(*) from pg_stat_activity where application_name like 'pgq demo%'") == 0


@pytest.mark.slow
@pytest.mark.newest
def test_interrupted_the_embedded_server_is_gone(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command("demo", "--seconds", "60"), env=environment(None), stderr=subprocess.PIPE, text=True
    )
    with process:
        wait_until(lambda: len(_leftovers(process.pid)) >= 3, 60, "postgres, its watchdog and pgbench")
        started = [int(path.parent.name) for path in _leftovers(process.pid)]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    wait_until(lambda: not any(_alive(pid) for pid in started), 20, "the end of all that the demo started")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_options() -> None:
    assert Options(seconds=60).rotation_period == 1.0
    assert Options(seconds=3).rotation_period == 0.5
    assert Options(clients=7).scale == 7
