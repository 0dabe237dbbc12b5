"""Every expected error: one sentence, an advice, its exit status, nothing on stdout, and never a traceback (`run` of
these tests sees to that)."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.cli.driving import Answer, Run, command, environment, run
from tests.clusters import Database

pytestmark = pytest.mark.newest


def _check(answer: Answer, status: int, *texts: str) -> None:
    assert (answer.status, answer.out) == (status, "")
    assert answer.err.startswith(("pgq: ", "Usage: pgq "))
    for text in texts:
        assert text in answer.err


@pytest.mark.parametrize("verb", ["install", "status", "queue ls", "ticker", "ticker --once", "uninstall --yes"])
def test_no_connection(verb: str) -> None:
    answer = run(*verb.split(), "--dsn", "host=/nonexistent user=app password=sesame")
    _check(answer, 3, "--dsn, PGQ_DSN")
    assert "sesame" not in answer.err


@pytest.mark.parametrize("verb", ["status", "queue ls", "consumer ls", "ticker --once", "upgrade"])
def test_no_schema(empty_db: Database, verb: str) -> None:
    _check(run(*verb.split(), dsn=empty_db.dsn), 4, "pgq install")


@pytest.mark.parametrize("verb", ["status", "queue create orders", "ticker"])
def test_an_old_schema(pgq: Run, db: Database, verb: str) -> None:
    db.rows("delete from pgq.migration where version = (select max(version) from pgq.migration)")
    _check(pgq(*verb.split()), 4, "older than this package", "pgq upgrade")


def test_a_schema_of_the_future(pgq: Run, db: Database) -> None:
    db.rows("insert into pgq.migration (version, name, checksum) values (9999, 'future', '')")
    _check(pgq("status"), 4, "newer than this package", "pip install --upgrade")


@pytest.mark.parametrize("verb", ["drop nosuch --yes", "pause nosuch", "rotate nosuch", "set nosuch retention 1"])
def test_an_unknown_queue(pgq: Run, verb: str) -> None:
    _check(pgq("queue", *verb.split()), 1, "queue")


@pytest.mark.parametrize("verb", ["", "nosuch", "queue", "queue nosuch", "queue create", "status --nosuch", "run shop"])
def test_wrong_usage(verb: str) -> None:
    assert run(*verb.split()).status == 2


def test_a_dsn_that_cannot_be_read() -> None:
    _check(run("status", "--dsn", "sesame"), 2, "--dsn")
    assert "sesame" not in run("status", "--dsn", "sesame").err
    from_environment = run("status", dsn="sesame")
    _check(from_environment, 1, "PGQ_")
    assert "sesame" not in from_environment.err


def test_a_privilege_that_is_missing(db: Database) -> None:
    db.rows("do $$ begin create role stranger login; exception when duplicate_object then null; end $$")
    answer = run("queue", "create", "orders", dsn=db.dsn_for("stranger"))
    _check(answer, 1, "permission denied")


def test_the_options_may_stand_before_the_verb(db: Database) -> None:
    db.rows("select pgq.create_queue('orders')")
    assert run("--dsn", db.dsn, "--json", "queue", "ls").json[0]["queue"] == "orders"
    assert run("--dsn", "host=/nonexistent", "queue", "ls", "--json", "--dsn", db.dsn).json


def test_a_reader_who_has_seen_enough(pgq: Run, db: Database) -> None:
    """As in `pgq queue ls | head -1`, when head is quicker."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        command("queue", "ls"), stdout=writer, stderr=subprocess.PIPE, env=environment(db.dsn), text=True, check=False
    )
    os.close(writer)
    assert done.returncode == 1
    assert done.stderr == ""
