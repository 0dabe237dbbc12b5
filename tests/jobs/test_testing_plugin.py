"""The testing helpers: what they do in one process, and as a plugin in a pytest of its own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgq_py import JobContext, JobProgress
from pgq_py.app import AsyncPgQ, PgQ
from pgq_py.testing import AppOnTestDatabase, on_database
from tests.clusters import Database

ROOT = Path(__file__).parents[2]


@pytest.fixture
def app() -> PgQ:
    """Somewhere else, until a test puts it on its database."""
    return PgQ("host=/nowhere")


@pytest.fixture
def jobs(app: PgQ, db: Database) -> Iterator[AppOnTestDatabase]:
    @app.job("emails", max_attempts=2)
    def mail(ctx: JobContext, address: str, copies: int = 1) -> int:
        ctx.progress(50, "half")
        if address == "bad":
            raise ValueError(address)
        if copies > 1:
            mail.enqueue(address, copies - 1)
        return copies

    with on_database(app, db.dsn) as found:
        found.mail = mail  # type: ignore[attr-defined]
        yield found


def test_an_application_is_put_on_a_database_and_back(app: PgQ, db: Database) -> None:
    @app.job("emails", priority=70)
    def mail(address: str) -> None: ...

    before = app.settings
    with on_database(app, db.dsn):
        status = mail.enqueue("a").status()
        assert status is not None
        assert status.priority == 70
    assert app.settings is before


def test_draining_runs_what_is_there_and_what_comes_of_it(jobs: Any) -> None:
    jobs.mail.enqueue_many([("a", 3), ("b", 1)])
    runs = jobs.drain()
    assert [run.error for run in runs] == [None] * 4
    assert {(run.queue, run.type, run.attempt) for run in runs} == {("emails", "mail", 1)}
    assert [job.state for job in jobs.enqueued("mail")] == ["completed"] * 4
    assert jobs.drain() == []


def test_failures_are_told_and_come_again_when_time_goes_by(jobs: Any) -> None:
    handle = jobs.mail.enqueue("bad")
    (run,) = jobs.drain()
    assert (run.id, run.attempt, repr(run.error)) == (handle.id, 1, "ValueError('bad')")
    assert jobs.drain() == []
    jobs.assert_enqueued("mail", state="retrying")
    jobs.advance(timedelta(hours=2))
    (run,) = jobs.drain()
    assert (run.id, run.attempt) == (handle.id, 2)
    jobs.assert_enqueued("mail", state="failed")


def test_asserting_what_was_enqueued(jobs: Any) -> None:
    jobs.mail.enqueue("a", copies=2)
    jobs.client.enqueue("emails", "other", {"deep": {"list": [1, 2], "more": None}})
    assert jobs.assert_enqueued("mail").type == "mail"
    jobs.assert_enqueued(jobs.mail, {"address": "a"}, queue="emails", state="pending", count=1)
    jobs.assert_enqueued("other", {"deep": {"list": [1, 2]}})
    jobs.assert_not_enqueued("mail", {"address": "b"})
    refusals: list[Callable[[], object]] = [
        lambda: jobs.assert_enqueued("mail", {"address": "b"}),
        lambda: jobs.assert_enqueued("mail", {"adress": "a"}),
        lambda: jobs.assert_enqueued("mail", count=2),
        lambda: jobs.assert_enqueued("mail", state="completed"),
        lambda: jobs.assert_enqueued("other", {"deep": {"list": [1]}}),
        lambda: jobs.assert_not_enqueued("other"),
    ]
    for refused in refusals:
        with pytest.raises(pytest.fail.Exception, match=r"mail|other"):
            refused()


def test_running_inline(jobs: Any) -> None:
    assert jobs.run_inline(jobs.mail, "a") == 1
    assert jobs.progress == [JobProgress(50, "half")]
    with pytest.raises(ValueError, match="bad"):
        jobs.run_inline(jobs.mail, address="bad")
    assert jobs.enqueued() == []


def test_a_transactional_job_inline(app: PgQ, db: Database) -> None:
    db.rows("create table effect (what text)")

    @app.job("emails", transactional=True)
    def record(ctx: JobContext, what: str) -> None:
        assert ctx.once(what)
        ctx.connection.execute("insert into effect values (%s)", [what])
        if what == "bad":
            raise ValueError(what)

    with on_database(app, db.dsn) as jobs:
        jobs.run_inline(record, "good")
        with pytest.raises(ValueError, match="bad"):
            jobs.run_inline(record, "bad")
    assert db.rows("select * from effect") == [("good",)]


def test_an_async_application(db: Database) -> None:
    app = AsyncPgQ("host=/nowhere")
    db.rows("create table effect (what text)")

    @app.job("emails", transactional=True)
    async def record(ctx: JobContext, what: str) -> str:
        assert await ctx.once_async(what)
        await ctx.connection.execute("insert into effect values (%s)", [what])
        if len(what) < 3:
            await record.enqueue(what + "!")
        return what

    async def main(jobs: AppOnTestDatabase) -> None:
        async with app:
            await record.enqueue("a")
            assert await jobs.run_inline_async(record, "inline") == "inline"
            runs = await asyncio.to_thread(jobs.drain)
            assert [(run.type, run.error) for run in runs] == [("record", None)] * 3
            await record.enqueue("last")

    with on_database(app, db.dsn) as jobs:
        asyncio.run(main(jobs))
        assert jobs.run_inline(record, "again") == "again"
        jobs.assert_enqueued(record, {"what": "last"}, state="pending")
    assert [what for (what,) in db.rows("select * from effect")] == ["inline", "a", "a!", "a!!", "again"]


PLUGIN_TEST = """
import psycopg, pytest
from pgq_py import PgQ

pgq = PgQ()

@pgq.job("emails")
def welcome(address: str) -> None: ...

@pytest.mark.parametrize("number", [1, 2])
def test_each_has_a_database_of_its_own(pgq_app, pgq_dsn, number):
    jobs = pgq_app(pgq)
    welcome.enqueue(f"{number}@b.c")
    jobs.assert_enqueued("welcome", {"address": f"{number}@b.c"}, count=1)
    assert [run.error for run in jobs.drain()] == [None]
    with psycopg.connect(pgq_dsn) as conn:
        print("database", conn.info.dbname)
"""


def test_as_a_plugin(db: Database, tmp_path: Path) -> None:
    (tmp_path / "test_shop.py").write_text(PLUGIN_TEST)
    command = [sys.executable, "-m", "pytest", "-p", "pgq_py.testing", "-q", "-s", f"--pgq-dsn={db.dsn}", str(tmp_path)]
    surroundings = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=surroundings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    names = [line.rpartition(" ")[2] for line in done.stdout.splitlines() if "database " in line]
    assert len(set(names)) == 2
    with psycopg.connect(db.dsn) as conn:
        left = conn.execute("select count(*) from pg_database where datname like 'pgq_test%'").fetchone()
    assert left == (0,)
