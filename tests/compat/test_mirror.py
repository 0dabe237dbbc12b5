"""pgbench's database, mirrored through the log into a second one while slots rotate and processes are killed."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from pgq_py.embedded import Server
from tests.clusters import Cluster, Database
from tests.compat.mirror import CONSUMER, QUEUE
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.crash, pytest.mark.newest, pytest.mark.timeout(240)]

SECONDS = 16
TABLES = ("pgbench_accounts", "pgbench_branches", "pgbench_tellers", "pgbench_history")
ROOT = Path(__file__).parents[2]


@dataclass
class World:
    """The two databases, and the processes that work on them."""

    server: Server
    source: Database
    target: Database
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    starts: int = 0
    switched: int = 0

    def start(self, name: str) -> None:
        """Start a process, again if it has died."""
        process = self.running.get(name)
        if process is not None and process.poll() is None:
            return
        self.starts += 1
        commands = {
            "mirror": [sys.executable, "-m", "tests.compat.mirror", self.source.dsn, self.target.dsn],
            "ticker": [sys.executable, "-m", "pgq_py", "ticker", "--dsn", self.source.dsn],
            # every other one empties the history first, as pgbench does without -n
            "pgbench": [str(self.server.tool("pgbench")), "-c4", "-T300", "-R200", *["-n"] * (self.starts % 2)],
        }
        env = self.server.client_env(self.source.name) if name == "pgbench" else None
        self.running[name] = subprocess.Popen(
            commands[name], cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def kill(self, name: str) -> None:
        self.running[name].kill()
        self.running[name].wait()

    def rotate(self, stop: threading.Event) -> None:
        """Turn the ring, as fast as it goes."""
        while not stop.is_set():
            try:
                with psycopg.connect(self.source.dsn, autocommit=True) as conn:
                    while not stop.wait(0.02):
                        (done,) = conn.execute("select pgq.rotate_queue(%s)", [QUEUE]).fetchone() or ("",)
                        self.switched += done == "switched"
            except psycopg.OperationalError:
                stop.wait(0.1)


@pytest.fixture
def world(private_cluster: Cluster) -> Iterator[World]:
    with private_cluster.database() as source, private_cluster.database(installed=False) as target:
        world = World(private_cluster.server, source, target)
        _fill(world)
        try:
            yield world
        finally:
            for process in world.running.values():
                process.kill()
                process.wait()


def _fill(world: World) -> None:
    """pgbench's tables in both databases, and every later change captured."""
    pgbench = [str(world.server.tool("pgbench")), "-i", "-q"]
    for database in (world.source, world.target):
        env = world.server.client_env(database.name)
        subprocess.run(pgbench, env=env, check=True, capture_output=True, timeout=60)
    world.source.rows("select pgq.create_queue(%s), pgq.register_consumer(%s, %s)", [QUEUE, QUEUE, CONSUMER])
    for table in TABLES:
        key = ["tid", "bid", "aid", "delta", "mtime"] if table == "pgbench_history" else None
        world.source.rows("select pgq.add_capture(%s, %s, %s::text[])", [QUEUE, table, key])
    world.target.rows("create table mirrored (tick bigint); insert into mirrored values (0)")


@contextmanager
def _rotating(world: World) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=world.rotate, args=[stop])
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _havoc(world: World, dice: random.Random) -> None:
    """Kill one of them, or end the connections of one kind."""
    victim = dice.choice(["mirror", "mirror", "ticker", "pgbench", "connection"])
    if victim != "connection":
        world.kill(victim)
        return
    kind = dice.choice(["pgbench", ""])
    query = (
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and application_name = %s and pid <> pg_backend_pid()"
    )
    world.source.rows(query, [kind])


def test_a_mirror_equals_its_source(world: World) -> None:
    dice = random.Random(7)
    with _rotating(world):
        end = time.monotonic() + SECONDS
        crashed = False
        # longer where the machine is slow: every slot is to be written to, truncated and written to again
        while (now := time.monotonic()) < end or (world.switched <= 5 and now < end + 60):
            for name in ("ticker", "mirror", "pgbench"):
                world.start(name)
            time.sleep(dice.uniform(0.8, 1.8))
            if not crashed and time.monotonic() > end - SECONDS / 2:
                world.server.crash()
                world.server.start()
                crashed = True
            _havoc(world, dice)
        world.kill("pgbench")
        wait_until(lambda: not _busy(world), what="the end of pgbench's transactions")
        for name in ("ticker", "mirror"):
            world.start(name)
        _await_mirror(world)

    assert world.switched > 5
    assert world.starts > 10
    for table in TABLES:
        rows = f"select t::text from {table} t order by 1"
        left, right = (_column(database, rows) for database in (world.source, world.target))
        assert left == right, table
        assert len(left) > 0
    assert world.source.value("select count(*) from pgbench_accounts where abalance <> 0") > 500


def _busy(world: World) -> int:
    query = "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'pgbench'"
    return int(world.source.value(query))


def _await_mirror(world: World) -> None:
    """Until the consumer has finished a tick that comes after all of it."""
    last = world.source.value("select pgq.tick_now(%s)", [QUEUE])
    done = "select last_tick from pgq.get_consumer_info(%s, %s)"
    wait_until(lambda: world.source.value(done, [QUEUE, CONSUMER]) >= last, 90, "the mirror to catch up")


def _column(database: Database, query: str) -> list[str]:
    with ExitStack() as stack:
        conn = stack.enter_context(psycopg.connect(database.dsn))
        return [str(row[0]) for row in conn.execute(query.encode())]
