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


@pytest.mark.parametrize(
    "verb",
    ["install", "status", "doctor", "queue ls", "ticker", "ticker --once", "tail x", "send x y", "uninstall --yes"],
)
def test_no_connection(verb: str) -> None:
    answer = run(*verb.split(), "--dsn", "host=/nonexistent user=app password=sesame")
    _check(answer, 3, "--dsn, PGQ_DSN")
    assert "sesame" not in answer.err


@pytest.mark.parametrize(
    "verb", ["status", "queue ls", "consumer ls", "dlq ls", "tail x", "send x y", "ticker", "upgrade"]
)
def test_no_schema(empty_db: Database, verb: str) -> None:
    _check(run(*verb.split(), dsn=empty_db.dsn), 4, "pgq install")


@pytest.mark.parametrize("verb", ["status", "queue create orders", "ticker"])
def test_an_old_schema(pgq: Run, db: Database, verb: str) -> None:
    db.rows("delete from pgq.migration where version = (select max(version) from pgq.migration)")
    _check(pgq(*verb.split()), 4, "older than this package", "pgq upgrade")


def test_a_schema_of_the_future(pgq: Run, db: Database) -> None:
    db.rows("insert into pgq.migration (version, name, checksum) values (9999, 'future', '')")
    _check(pgq("status"), 4, "newer than this package", "pip install --upgrade")


QUEUE = "select pgq.create_queue('orders')"
CONSUMER = f"{QUEUE}, pgq.register_consumer('orders', 'mailer')"
DISABLED = "pgq.set_queue_config('orders', 'disable_insert', 'true')"

# What was there, the command, what it says and what it advises: all with status 1.
FAILURES: list[tuple[str, str, tuple[str, ...]]] = [
    *(
        ("select", verb, ("queue",))
        for verb in (
            "queue show nosuch", "queue set nosuch retention 1", "queue pause nosuch", "queue resume nosuch",
            "queue rotate nosuch", "queue drop nosuch --yes", "queue grant nosuch pgq_writer --produce",
            "queue revoke nosuch pgq_writer --produce", "consumer ls nosuch", "consumer show nosuch mailer",
            "consumer register nosuch mailer", "consumer unregister nosuch mailer --yes",
            "consumer seek nosuch mailer earliest", "send nosuch x", "send nosuch x --in 1m", "send nosuch -f -",
            "tail nosuch --no-follow", "dlq replay --all --queue nosuch",
        )
    ),
    (QUEUE, "consumer show orders mailer", ("no such consumer", "pgq consumer register")),
    (QUEUE, "consumer unregister orders mailer --yes", ("no such consumer", "pgq consumer register")),
    (QUEUE, "consumer seek orders mailer latest", ("no such consumer", "pgq consumer register")),
    (CONSUMER, "consumer seek orders mailer 99", ("99", "earliest")),
    (CONSUMER, "consumer register orders mailer --at 1999-01-01", ("1999", "earliest")),
    (CONSUMER, "queue drop orders --yes", ("consumers still attached", "force")),
    (f"{QUEUE}, {DISABLED}", "send orders x", ("disallowed", "disable_insert")),
    (QUEUE, "queue set orders rotation_period soon", ("rotation_period", "interval")),
    (QUEUE, "queue set orders colour red", ("colour", "rotation_period")),
    (QUEUE, "queue set orders --max-retries many", ("max_retries", "0 to 1000000")),
    (QUEUE, "queue grant orders nobody_at_all --produce", ("nobody_at_all", "create role")),
    (QUEUE, "send orders x --at 2100-01-01", ("2100", "ten years")),
    (QUEUE, "send orders -f /dev/stdin", ("line 1 is not JSON", "Nothing was sent")),
    ("select", "queue create \x01", ("queue", "")),
    ("select", "dlq show 99", ("no such dead letter", "pgq dlq ls")),
    ("select", "dlq replay 99", ("no such dead letter", "replayed or purged")),
    ("select", "ticker --once --interval 1000", ("tick_interval", "0.001 to 60")),
]  # fmt: skip


@pytest.mark.parametrize("there", sorted({there for there, _, _ in FAILURES}))
def test_what_fails_says_why_and_what_to_do(db: Database, there: str) -> None:
    db.connect().execute(there.encode())
    for line, texts in [(line, texts) for state, line, texts in FAILURES if state == there]:
        answer = run(*line.split(), dsn=db.dsn, stdin=b"oops")
        _check(answer, 1, *texts)
        message, *advice = answer.err.splitlines()
        assert message.startswith("pgq: ")
        assert advice, line
        assert all(text.startswith("     ") for text in advice)


def test_a_transaction_in_the_way_of_rotation(pgq: Run, db: Database) -> None:
    db.rows("select pgq.create_queue('orders')")
    writer = db.connect(autocommit=False)
    writer.execute("select pgq.insert_event('orders', 't', 'y')")
    answers = [pgq("queue", "rotate", "orders") for _ in range(3)]
    _check(next(answer for answer in answers if answer.status), 1, "a transaction is inside", "pgq status")


def test_another_isolation_level(pgq: Run) -> None:
    serializable = {"PGOPTIONS": "-c default_transaction_isolation=serializable"}
    _check(pgq("queue", "create", "orders", env=serializable), 1, "READ COMMITTED")


@pytest.mark.parametrize(
    "verb", ["", "nosuch", "queue", "queue nosuch", "queue create", "status --nosuch", "run shop", "dlq show x"]
)
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
