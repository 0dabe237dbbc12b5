"""One application with consumers and jobs: `run`, `runner` and `pgq run` serve both."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pgq_py import Event, InvalidArgument, JobContext, NotAJobQueue, Settings
from pgq_py.app import AsyncPgQ, PgQ
from tests.clusters import Database
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


def effects(db: Database) -> list[Any]:
    return sorted(what for (what,) in db.rows("select what from effect"))


@pytest.fixture(autouse=True)
def _effect(db: Database) -> None:
    db.rows("create table effect (what text)")


def declare(app: Any) -> Any:
    def mirror(event: Event, tx: Any) -> None:
        tx.execute("insert into effect values (%s)", [f"event {event.data}"])

    def record(ctx: JobContext, what: str) -> None:
        ctx.connection.execute("insert into effect values (%s)", [f"job {what}"])

    app.consumer("orders", name="mirror", exactly_once=True)(mirror)
    return app.job("fresh", transactional=True, priority=70)(record)


def test_both_at_once_and_the_queue_is_created(pgq: PgQ, db: Database) -> None:
    pgq.create_queue("orders")
    record = declare(pgq)
    with pgq.runner() as runner:
        pgq.send("orders", "1")
        status = record.enqueue("2").status()
        assert status is not None
        assert status.priority == 70
        wait_until(lambda: effects(db) == ["event 1", "job 2"], 30)
    assert runner.failures == []


def test_jobs_alone_until_none_is_left(pgq: PgQ, db: Database) -> None:
    @pgq.job("emails", transactional=True)
    def record(ctx: JobContext, what: str) -> None:
        ctx.connection.execute("insert into effect values (%s)", [what])

    record.enqueue_many(map(str, range(20)))
    pgq.run(drain=True, slots=3)
    assert len(effects(db)) == 20


def test_an_async_application(quick: Settings, db: Database) -> None:
    async def main() -> None:
        async with AsyncPgQ(settings=quick) as app:
            await app.create_queue("orders")
            record = declare(app)
            runner = app.runner()
            running = asyncio.create_task(runner.run())
            try:
                await asyncio.to_thread(wait_until, lambda: db.rows("select 1 from pgq.get_consumer_info()"), 30)
                await app.send("orders", "1")
                await record.enqueue("2")
                await asyncio.to_thread(wait_until, lambda: effects(db) == ["event 1", "job 2"], 30)
            finally:
                runner.stop()
                await running

    asyncio.run(main())


def test_what_is_wrong_from_the_start(pgq: PgQ) -> None:
    with pytest.raises(InvalidArgument, match="no consumer"):
        pgq.run()

    @pgq.job("events")
    def mail() -> None: ...

    pgq.create_queue("events")
    with pytest.raises(NotAJobQueue):
        pgq.run(drain=True)
    with pytest.raises(InvalidArgument, match="slots"):
        pgq.run(slots=0)


SHOP = """
from pgq_py import PgQ, JobContext
pgq = PgQ()

@pgq.consumer("orders", name="mirror", exactly_once=True)
def mirror(event, tx):
    tx.execute("insert into effect values (%s)", [f"event {event.data}"])

@pgq.job("fresh", transactional=True)
def record(ctx: JobContext, what: str) -> None:
    ctx.connection.execute("insert into effect values (%s)", [f"job {what}"])
"""


def test_pgq_run_serves_both(pgq: PgQ, db: Database, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    pgq.create_queue("orders")
    command = [sys.executable, "-m", "pgq_py", "run", "shop:pgq"]
    surroundings = os.environ | {"PGQ_DSN": db.dsn, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=tmp_path, env=surroundings, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: db.rows("select 1 from pgq.get_consumer_info()"), 60, "the consumer being registered")
            pgq.send("orders", "1")
            pgq.enqueue("fresh", "record", {"what": "2"})
            wait_until(lambda: effects(db) == ["event 1", "job 2"], 60)
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, process.stderr.read() if process.stderr else ""
