"""Debian's pgqd, PgQ's own daemon, on our schema: it ticks, releases retries and rotates."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.clusters import Database
from tests.compat.debian import needs
from tests.engine.support import QUEUE, column, create, ring_info, rows, send, value
from tests.waiting import wait_until

pytestmark = [pytest.mark.newest, pytest.mark.slow]

CONFIGURATION = """
[pgqd]
logfile = {directory}/pgqd.log
pidfile = {directory}/pgqd.pid
base_connstr = host={host} port={port} user=postgres
initial_database = {dbname}
database_list = {dbname}
check_period = 1
ticker_period = 0.2
retry_period = 1
maint_period = 1
"""


@contextmanager
def pgqd(db: Database) -> Iterator[Path]:
    """The daemon on this one database, at work; the path of its log."""
    with tempfile.TemporaryDirectory(prefix="pgq-", dir="/tmp") as directory, _running(db, Path(directory)) as log:
        yield log


@contextmanager
def _running(db: Database, directory: Path) -> Iterator[Path]:
    server = conninfo_to_dict(db.dsn)
    file = directory / "pgqd.ini"
    values = {"host": server["host"], "port": server["port"], "dbname": db.name, "directory": directory}
    file.write_text(CONFIGURATION.format(**values), "utf-8")
    owner = Path(str(server["host"])).stat().st_uid  # who may enter the server's directory
    as_owner: dict[str, Any] = {"user": owner, "extra_groups": []} if os.geteuid() == 0 else {}
    if as_owner:
        os.chown(directory, owner, -1)
    process = subprocess.Popen(["/usr/bin/pgqd", "-q", str(file)], cwd="/", stderr=subprocess.DEVNULL, **as_owner)
    try:
        wait_until((directory / "pgqd.log").exists, 20)
        yield directory / "pgqd.log"
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait(20)


@dataclass
class Traffic:
    """A producer and a consumer, each with a session of its own; every fifth event has to come twice."""

    db: Database
    enough: threading.Event = field(default_factory=threading.Event)
    sent: list[str] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)

    def produce(self) -> None:
        with psycopg.connect(self.db.dsn, autocommit=True) as conn:
            while not self.enough.wait(0.005):
                data = f"{len(self.sent)}{' again' if len(self.sent) % 5 == 0 else ''}"
                send(conn, data)
                self.sent.append(data)

    def consume(self) -> None:
        with psycopg.connect(self.db.dsn, autocommit=True) as conn:
            while not self.enough.is_set() or len(self.finished) < len(self.sent):
                batch = value(conn, "select pgq.next_batch(%s, 'c')", QUEUE)
                if batch is None:
                    self.enough.wait(0.02)
                    continue
                with conn.transaction():
                    done = self._handle(conn, batch)
                    value(conn, "select pgq.finish_batch(%s)", batch)
                self.finished += done

    def _handle(self, conn: psycopg.Connection[Any], batch: int) -> list[str]:
        done = []
        for ev_id, retry, data in rows(conn, "select ev_id, ev_retry, ev_data from pgq.get_batch_events(%s)", batch):
            if data.endswith("again") and not retry:
                value(conn, "select pgq.event_retry(%s, %s, 1)", batch, ev_id)
            else:
                done.append(data)
        return done

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._guarded, args=[work]) for work in (self.produce, self.consume)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.enough.set()
            for thread in threads:
                thread.join(60)
        assert self.errors == []
        assert not any(thread.is_alive() for thread in threads), "the consumer waits for events that do not come"

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except BaseException as exc:
            self.errors.append(exc)


@pytest.fixture
def seconds(request: pytest.FixtureRequest) -> float:
    """15, or --minutes."""
    minutes: float | None = request.config.getoption("--minutes")
    return 15.0 if minutes is None else minutes * 60


@pytest.mark.timeout(900)
def test_it_ticks_retries_and_rotates_with_a_live_producer_and_consumer(db: Database, seconds: float) -> None:
    needs("pgqd")
    conn = db.connect()
    create(conn, "c")
    conn.execute("update pgq.queue set queue_rotation_period = '1 second'")
    traffic = Traffic(db)
    generation = ring_info(conn, "event_1", "generation")
    started = value(conn, "select clock_timestamp()")
    with pgqd(db) as log, traffic.running():
        wait_until(
            lambda: value(conn, "select clock_timestamp() - %s > %s * interval '1 s'", started, seconds), seconds + 60
        )
        assert ring_info(conn, "event_1", "generation") >= generation + 3, log.read_text()
        assert ring_info(conn, "event_1", "bytes") < 64 * 1024 * 1024
        traffic.enough.set()
        wait_until(lambda: len(traffic.finished) >= len(traffic.sent), 60, "the last retries")
        text = log.read_text()
    assert Counter(traffic.finished) == Counter(traffic.sent)
    assert len(traffic.sent) > 50 * seconds
    assert value(conn, "select max(tick_id) from pgq.tick where tick_queue > 0") > seconds
    assert "pgq version ok: 3." in text
    assert [line for line in text.splitlines() if "ERROR" in line or "WARNING" in line] == []
    assert column(conn, "select ev_data from pgq.retry_queue") == []
