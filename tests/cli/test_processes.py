"""`pgq ticker` and `pgq run`: started, seen to work, stopped by a signal."""

from __future__ import annotations

import json
import signal
from functools import partial
from pathlib import Path

import pytest

from tests.cli.driving import Run, background, run
from tests.clusters import Cluster, Database
from tests.waiting import wait_until

pytestmark = pytest.mark.newest

SHOP = """
from pgq_py import {facade}
pgq = {facade}()

@pgq.consumer("orders", name="mailer", exactly_once=True)
{handler}
"""
HANDLERS = {
    "PgQ": "def mail(event, tx): tx.execute('insert into mails values (%s)', [event.data])",
    "AsyncPgQ": "async def mail(event, tx): await tx.execute('insert into mails values (%s)', [event.data])",
}


def test_the_ticker_ticks_until_it_is_told_to_stop(db: Database) -> None:
    db.rows("select pgq.create_queue('orders'), pgq.insert_event('orders', 't', 'x')")
    with background("ticker", dsn=db.dsn) as process:
        wait_until(lambda: db.value("select last_tick_id > 1 from pgq.get_queue_info('orders')"), 20)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert out == ""
    assert "stopped after 1 ticks" in err


def test_the_ticker_once(pgq: Run, db: Database) -> None:
    db.rows("select pgq.create_queue('orders'), pgq.insert_event('orders', 't', 'x')")
    assert pgq("ticker", "--once", "--json").json == {"ticks": 1}
    again = pgq("ticker", "--once")
    assert (again.status, again.out) == (0, "")
    assert "made 0 ticks" in again.err
    assert pgq("ticker", "--interval", "1000").status == 1


@pytest.mark.parametrize("facade", ["PgQ", "AsyncPgQ"])
@pytest.mark.parametrize("how", ["environment", "option"])
def test_run_from_the_current_directory(db: Database, tmp_path: Path, facade: str, how: str) -> None:
    db.rows("create table mails (data text); select pgq.create_queue('orders')")
    (tmp_path / "shop.py").write_text(SHOP.format(facade=facade, handler=HANDLERS[facade]))
    options = ("--dsn", db.dsn) if how == "option" else ()
    dsn = db.dsn if how == "environment" else None
    with background("run", "shop:pgq", *options, dsn=dsn, cwd=tmp_path) as process:
        wait_until(lambda: db.value("select count(*) from pgq.get_consumer_info('orders')"), 20)
        db.rows("select pgq.insert_event('orders', 't', 'hello')")
        wait_until(lambda: db.rows("select data from mails") == [("hello",)], 20)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 0, err


JOBS = """
from pgq_py import PgQ
pgq = PgQ()

@pgq.job("emails")
def mail(number: int) -> None: print("mail", number)

@pgq.job("other")
def other() -> None: print("other")
"""


def test_run_until_no_job_is_left(pgq: Run, db: Database, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(JOBS)
    for queue in ("emails", "other"):
        db.rows("select pgq.create_job_queue(%s)", [queue])
    db.rows("select pgq.enqueue('emails', 'mail', jsonb_build_object('number', n)) from generate_series(1, 3) n")
    other = db.value("select id from pgq.enqueue('other', 'other')")
    options = ("--drain", "--slots", "1", "--gather", "0.01", "--queue", "emails=2.5")
    answer = run("run", "shop:pgq", *options, dsn=db.dsn, cwd=tmp_path)
    assert (answer.status, answer.out.split()) == (0, ["mail", "1", "mail", "2", "mail", "3"])
    assert db.value("select state from pgq.get_job('other', %s)", [other]) == "pending"
    answer = run("run", "shop:pgq", "--drain", "--queue", "other", dsn=db.dsn, cwd=tmp_path)
    assert (answer.status, answer.out) == (0, "other\n")


@pytest.mark.parametrize(
    ("options", "status", "text"),
    [
        (("--slots", "0"), 2, "--slots"),
        (("--gather", "-1"), 2, "--gather"),
        (("--queue", "emails=0"), 1, "the weight of 'emails' must be more than 0"),
        (("--queue", "nosuch"), 1, "nosuch"),
    ],
)
def test_run_with_impossible_options(
    db: Database, tmp_path: Path, options: tuple[str, ...], status: int, text: str
) -> None:
    (tmp_path / "shop.py").write_text(JOBS)
    answer = run("run", "shop:pgq", *options, dsn=db.dsn, cwd=tmp_path)
    assert (answer.status, answer.out) == (status, "")
    assert text in answer.err


def test_options_about_jobs_want_jobs(db: Database, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP.format(facade="PgQ", handler=HANDLERS["PgQ"]))
    answer = run("run", "shop:pgq", "--drain", dsn=db.dsn, cwd=tmp_path)
    assert (answer.status, answer.out) == (1, "")
    assert "declares no jobs" in answer.err


@pytest.mark.parametrize(
    ("module", "target", "text"),
    [
        (None, "nosuch:pgq", "No module named 'nosuch'"),
        ("import nosuch_library", "shop:pgq", "No module named 'nosuch_library'"),
        ("import nosuch_library", "shop:pgq", "shop.py, line 1: import nosuch_library"),
        ("x = 1\nraise KeyError('colour')", "shop:pgq", "shop.py, line 2: raise KeyError('colour')"),
        ("def broken(:", "shop:pgq", "SyntaxError"),
        ("x = 1", "shop:pgq", "has no attribute 'pgq'"),
        ("pgq = 1", "shop:pgq", "shop:pgq is a int"),
        ("import pgq_py\npgq = pgq_py.PgQ()", "shop:pgq", "there is no consumer to run"),
        ("import pgq_py\npgq = pgq_py.PgQ('sesame')", "shop:pgq", "dsn"),
    ],
)
def test_what_cannot_be_run(tmp_path: Path, module: str | None, target: str, text: str) -> None:
    if module is not None:
        (tmp_path / "shop.py").write_text(module)
    answer = run("run", target, cwd=tmp_path)
    assert (answer.status, answer.out) == (1, "")
    assert answer.err.startswith("pgq: ")
    assert text in answer.err


def test_run_says_what_is_missing_in_the_database(empty_db: Database, db: Database, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP.format(facade="PgQ", handler=HANDLERS["PgQ"]))
    statuses = [run("run", "shop:pgq", dsn=dsn, cwd=tmp_path).status for dsn in (empty_db.dsn, db.dsn, "host=/nowhere")]
    assert statuses == [4, 1, 3]


def test_every_database_of_a_server(private_cluster: Cluster) -> None:
    """Those that are there, and none of those without the schema."""
    with (
        private_cluster.database() as one,
        private_cluster.database() as two,
        private_cluster.database(installed=False),
    ):
        for db in (one, two):
            db.rows("select pgq.create_queue('orders'), pgq.insert_event('orders', 't', 'x')")
        once = run("ticker", "--once", "--all-databases", "--json", dsn=private_cluster.server.dsn())
        assert once.json == {"ticks": 2, "databases": 2}
        for db in (one, two):
            db.rows("select pgq.insert_event('orders', 't', 'y')")
        with background("ticker", "--all-databases", "--log-format", "json", dsn=one.dsn) as process:
            for db in (one, two):
                wait_until(partial(db.value, "select last_tick_id > 2 from pgq.get_queue_info('orders')"), 20)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=20)
        assert (process.returncode, out) == (0, "")
        log = [json.loads(line) for line in err.splitlines()]
        assert {f"database {db.name}: ticking" for db in (one, two)} <= {entry["message"] for entry in log}
        assert set(log[0]) == {"time", "level", "logger", "message", "thread"}


def test_status_again_and_again(db: Database) -> None:
    db.rows("select pgq.create_queue('orders')")
    with background("status", "--watch", "0.1", "--json", dsn=db.dsn) as process:
        assert process.stdout
        assert [json.loads(process.stdout.readline())["healthy"] for _ in range(2)] == [True, True]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    assert process.returncode == 130
    with background("status", "--watch", "0.1", dsn=db.dsn) as process:
        assert process.stdout
        lines = iter(process.stdout.readline, "")
        assert [next(line for line in lines if line.startswith("# queues")) for _ in range(2)]
    assert run("status", "5", dsn=db.dsn).status == 2


def test_status_in_place_on_a_terminal(terminal: Run, db: Database) -> None:
    db.rows("select pgq.create_queue('orders')")
    screen = terminal("status", "--watch", "0.1", typed="\x03", prompt="orders")
    assert screen.status == 130
    assert "healthy" in screen.plain
