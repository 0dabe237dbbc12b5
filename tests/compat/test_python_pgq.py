"""Debian's python3-pgq, PgQ's own client, run with Debian's Python, on our schema."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pgq_py import schema
from tests.clusters import Database
from tests.compat.debian import PYTHON, needs
from tests.engine.support import QUEUE, Conn, column, create, force_tick, rows, send, value
from tests.waiting import wait_until

pytestmark = pytest.mark.newest

SCRIPT = """
import sys
import time

import pgq


class Worker(pgq.{base}):
    def process_event(self, db, ev):
        if ev.data.startswith("hang") and self.cf.get("hangs", ""):
            self.say(ev)
            time.sleep(3600)
        elif ev.data.startswith("retry") and not ev.retry:
            ev.tag_retry(0)
        else:
            self.say(ev)

    def say(self, ev):
        with open(self.cf.get("output"), "a") as out:
            print(ev.id, ev.retry or 0, ev.type, ev.data, sep="\\t", file=out)


Worker("worker", "source", sys.argv[1:]).start()
"""

CONFIGURATION = """
[worker]
job_name = {job}
source = {dsn}
queue_name = {queue}
pidfile =
logfile =
loop_delay = 0.05
use_skylog = 0
output = {output}
{more}
"""


class Worker:
    """One process of PgQ's client: its output is a line per event."""

    def __init__(self, db: Database, directory: Path, base: str, name: str, **more: str) -> None:
        needs("python3-pgq")
        self.output = directory / f"{name}.out"
        self._log = directory / f"{name}.log"
        self._script = directory / f"{base}.py"
        self._script.write_text(SCRIPT.format(base=base))
        self._ini = directory / f"{name}.ini"
        settings = {"job": "worker", "dsn": db.dsn, "queue": QUEUE, "output": self.output}
        lines = "\n".join(f"{key} = {setting}" for key, setting in more.items())
        self._ini.write_text(CONFIGURATION.format(**settings, more=lines))
        self.process: subprocess.Popen[bytes] | None = None

    def run(self, *options: str) -> subprocess.Popen[bytes]:
        environment = {"PATH": os.environ["PATH"], "HOME": str(self._ini.parent), "LC_ALL": "C.UTF-8"}
        with self._log.open("ab") as log:
            command = [PYTHON, str(self._script), str(self._ini), *options]
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=self._ini.parent)
        return self.process

    def do(self, *options: str) -> None:
        assert self.run(*options).wait(30) == 0, self.log

    @contextmanager
    def running(self) -> Iterator[None]:
        process = self.run()
        try:
            yield
            assert process.poll() is None, self.log
        finally:
            process.kill()
            process.wait(20)

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    @property
    def lines(self) -> list[tuple[str, int]]:
        """Payload and number of retries of each event that was done."""
        text = self.output.read_text() if self.output.exists() else ""
        parts = [line.split("\t") for line in text.splitlines()]
        return [(data, int(retry)) for _, retry, _, data in parts]


@pytest.fixture
def conn(db: Database) -> Conn:
    conn = db.connect()
    schema.install(conn, parts=["coop"])
    create(conn)
    return conn


def done(conn: Conn, *workers: Worker) -> list[tuple[str, int]]:
    """What the workers have done by now. Does, while it is asked again, what a ticker does."""
    value(conn, "select pgq.maint_retry_events()")
    value(conn, "select pgq.ticker()")
    for worker in workers:
        assert "Traceback" not in worker.log, worker.log
    return [line for worker in workers for line in worker.lines]


def test_a_consumer_with_retries(db: Database, conn: Conn, tmp_path: Path) -> None:
    worker = Worker(db, tmp_path, "Consumer", "worker")
    worker.do("--register")
    assert column(conn, "select consumer_name from pgq.get_consumer_info('q')") == ["worker"]
    send(conn, *(f"plain-{number}" for number in range(700)), *(f"retry-{number}" for number in range(20)))
    with worker.running():
        wait_until(lambda: len(done(conn, worker)) >= 720, 30, "the first events, and their retries")
        send(conn, *(f"more-{number}" for number in range(10)))
        wait_until(lambda: len(done(conn, worker)) >= 730, 30, "the rest")
    expected = [(f"plain-{number}", 0) for number in range(700)] + [(f"more-{number}", 0) for number in range(10)]
    assert Counter(worker.lines) == Counter(expected + [(f"retry-{number}", 1) for number in range(20)])
    worker.do("--unregister")
    assert rows(conn, "select * from pgq.get_consumer_info('q')") == []


@pytest.mark.parametrize("options", [{"pgq_lazy_fetch": "0"}, {"pgq_batch_collect_events": "5"}], ids=str)
def test_its_other_ways_to_read(db: Database, conn: Conn, tmp_path: Path, options: dict[str, str]) -> None:
    worker = Worker(db, tmp_path, "Consumer", "worker", **options)
    worker.do("--register")
    send(conn, "a", "b", "c", "d", "retry-e")
    with worker.running():
        wait_until(lambda: send(conn, "x") and len(done(conn, worker)) > 30, 30, "thirty events")
    assert {("a", 0), ("b", 0), ("c", 0), ("d", 0)} <= set(worker.lines)
    assert Counter(worker.lines)["retry-e", 1] <= 1


def test_cooperating_consumers_and_the_death_of_one(db: Database, conn: Conn, tmp_path: Path) -> None:
    """One hangs in its batch and is killed; the others take that batch over, and nothing is left."""
    more = {"consumer_name": "main", "subconsumer_timeout": "1 second"}
    hanging = Worker(db, tmp_path, "CoopConsumer", "s1", subconsumer_name="s1", hangs="1", **more)
    others = [Worker(db, tmp_path, "CoopConsumer", name, subconsumer_name=name, **more) for name in ("s2", "s3")]
    for worker in (hanging, *others):
        worker.do("--register")
    for number in range(3):
        send(conn, f"hang-{number}")
        force_tick(conn)
    with hanging.running():
        wait_until(lambda: hanging.lines, 30, hanging.log)
    held = hanging.lines[0][0]
    with others[0].running(), others[1].running():
        for number in range(60):
            send(conn, f"{'retry' if number % 10 == 0 else 'plain'}-{number}")
            force_tick(conn)
        wait_until(lambda: len(done(conn, *others)) >= 63, 60, "all events")
        found = Counter(done(conn, *others))
    assert found[held, 0] == 1
    expected = [(f"hang-{number}", 0) for number in range(3)]
    expected += [(f"retry-{number}", 1) if number % 10 == 0 else (f"plain-{number}", 0) for number in range(60)]
    assert found == Counter(expected)
    assert all(worker.lines for worker in others)
    assert "main.s1" not in column(conn, "select consumer_name from pgq.get_consumer_info('q')")
