"""Every verb's --json has a schema, and what it really answers has that shape.

`run` holds every answer of every test against its schema; here each verb is called once, so that none is left out.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from pgq_py.cli.schemas import SCHEMAS
from tests.cli.driving import Run, run
from tests.cli.shapes import validator, verb_of, verbs
from tests.clusters import Database

pytestmark = pytest.mark.newest

SILENT = {"run"}
"""Without an answer."""

ELSEWHERE = {"dev", "demo", "adopt"} | {verb for verb in verbs() if verb.startswith("bench ")}
"""Verbs that start a server, or need PgQ's: see test_dev, tests/test_demo, tests/compat, and a benchmark below."""

LIFE = """
install --dry-run
install
upgrade
queue create orders --slots 4 --retention '1 day'
queue set orders --max-retries 1 --max-consumer-lag '1 day'
consumer register orders mailer
queue grant orders pgq_writer --produce --consume mailer
queue ls
send orders '{"n": 1}' --type t
send orders x --in 1h
tail orders --no-follow
ticker --once
ticker --once --all-databases
SQL select pgq.next_batch('orders', 'mailer')
consumer ls
consumer show orders mailer
SQL select pgq.nack('orders', 'mailer', sub_batch, '{1}', 'no', i_dead => true) from pgq.subscription
SQL select pgq.finish_batch(sub_batch) from pgq.subscription
SQL insert into pgq.eviction values (1, 'gone', now(), 1, '1 hour')
queue show orders
queue create emails --jobs
jobs enqueue emails send '{"to": "a"}' --key k --tag t
jobs enqueue emails send --in 1h
jobs ls emails
jobs show emails 1
SQL select pgq.heartbeat('host:1:a', '{}')
SQL select pgq.progress(claim_id, token, job_id, 50, 'half') from pgq.take('emails', 'w', 1)
jobs ls emails --state running
SQL select pgq.fail(claim_id, token, ev_ids[1], 'no', null, false) from pgq.claim_ring where ev_ids = '{1}'
jobs stats
jobs retry emails 1
jobs cancel emails 1 2
jobs watch emails --until-done
worker ls
SQL select pgq.set_schedule('nightly', 'emails', 'send', '30 2 * * *')
cron ls
cron next nightly
cron run nightly
dlq ls
dlq show 1
dlq replay 1
dlq purge --all --yes
status
doctor
consumer seek orders mailer earliest
SQL create table accounts (id int primary key)
capture add orders accounts
capture ls
capture drop accounts
queue rotate orders
queue pause orders
queue resume orders
queue revoke orders pgq_writer --produce
consumer unregister orders mailer --yes
queue drop orders --yes
config show
uninstall --dry-run
uninstall --yes
"""


def test_there_is_a_schema_for_every_verb() -> None:
    families = {"bench" if verb.startswith("bench ") else verb for verb in verbs()} - SILENT
    assert set(SCHEMAS) == families


def test_every_verb_answers_in_its_shape(empty_db: Database) -> None:
    called = set()
    for line in LIFE.strip().splitlines():
        if line.startswith("SQL "):
            empty_db.connect().execute(line.removeprefix("SQL ").encode())
            continue
        args = shlex.split(line)
        answer = run(*args, "--json", dsn=empty_db.dsn)
        assert answer.status == 0 or args[0] in ("status", "doctor"), f"{line}: {answer.err}"
        assert answer.out, line
        called.add(verb_of(args))
    assert called == verbs() - SILENT - ELSEWHERE


def test_a_benchmark(tmp_path: Path) -> None:
    answer = run("bench", "produce", "--bulk", "10", "--rounds", "1", "--json", cwd=tmp_path)
    assert answer.status in (0, 1)  # ten events prove nothing
    assert answer.json["benchmark"] == "produce"


def test_what_is_not_documented_is_refused(pgq: Run) -> None:
    assert list(validator("queue create").iter_errors({"queue": "x", "created": True})) == []
    for wrong in ({"queue": "x"}, {"queue": "x", "created": 1}, {"queue": "x", "created": True, "more": 1}):
        assert list(validator("queue create").iter_errors(wrong))
    assert list(validator("dlq ls").iter_errors([{"id": 1}]))
