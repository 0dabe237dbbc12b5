"""The stress run: all of chaos at once for a while, then the count.

By hand, for as long as you like:

    .venv/bin/python -m tests.concurrency.stress --minutes 10 --pg 18
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.process import BaseProcess

import psycopg
from psycopg import sql

from tests.clusters import Cluster, Database
from tests.concurrency.chaos import (
    SCHEMA,
    Actor,
    World,
    batcher,
    copier,
    delayer,
    forever,
    latecomer,
    preparer,
    producer,
    rotator,
    seeker,
    staller,
    ticker,
    writer,
)
from tests.concurrency.reading import CONSUMERS, QUEUE, consume_forever, drain, receive_some

_SPAWN = multiprocessing.get_context("spawn")

ACTORS: dict[str, tuple[int, Actor]] = {
    "writer": (6, writer),
    "producer": (2, producer),
    "copier": (2, copier),
    "batcher": (1, batcher),
    "delayer": (2, delayer),
    "preparer": (2, preparer),
    "staller": (1, staller),
    "ticker": (3, ticker),
    "rotator": (2, rotator),
    "latecomer": (1, latecomer),
    "seeker": (1, seeker),
}


def run(db: Database, seconds: float, *, crashes: int = 2) -> World:
    """Run all actors for so long, crash the server on the way, drain every consumer. Raises AssertionError."""
    _prepare(db)
    world = World(db.dsn)
    threads = [
        threading.Thread(target=forever, args=(world, f"{name} {i}", actor), daemon=True)
        for name, (number, actor) in ACTORS.items()
        for i in range(number)
    ]
    for thread in threads:
        thread.start()
    with _consumers(db) as processes:
        _go_wrong(db, world, processes, seconds, crashes)
        world.stop.set()
        for thread in threads:
            thread.join(60)
        dead = {name: p.exitcode for name, p in processes.items() if p.exitcode not in (None, -9)}
    assert not any(thread.is_alive() for thread in threads), "an actor hangs"
    assert not world.failures, world.failures
    assert not dead, f"consumers ended on their own, so something was delivered twice: {dead}"
    _finish_prepared(db)
    _drain_all(db, world)
    return world


def _prepare(db: Database) -> None:
    with psycopg.connect(db.dsn, autocommit=True) as conn:
        conn.execute(SCHEMA)
        conn.execute("select pgq.create_queue(%s)", (QUEUE,))
        conn.execute("select pgq.set_queue_config(%s, 'max_retries', '1000000')", (QUEUE,))
        for name in (*CONSUMERS, "seeker"):
            conn.execute("select pgq.register_consumer(%s, %s)", (QUEUE, name))


@contextmanager
def _consumers(db: Database) -> Iterator[dict[str, BaseProcess]]:
    processes: dict[str, BaseProcess] = {name: _spawn(db, name) for name in CONSUMERS}
    try:
        yield processes
    finally:
        for process in processes.values():
            process.kill()
            process.join()


def _spawn(db: Database, name: str) -> BaseProcess:
    process = _SPAWN.Process(target=consume_forever, args=(db.dsn, name), daemon=True)
    process.start()
    return process


def _go_wrong(db: Database, world: World, processes: dict[str, BaseProcess], seconds: float, crashes: int) -> None:
    """Kill consumers and sessions all the time, and the server now and then."""
    end = time.monotonic() + seconds
    crash_at = [end - seconds * (i + 1) / (crashes + 1) for i in range(crashes)]
    while time.monotonic() < end and not world.stop.is_set():
        if crash_at and time.monotonic() >= crash_at[-1]:
            crash_at.pop()
            db.server.crash()
            db.server.start()
            world.count("server crashes")
        name = random.choice(list(processes))
        if random.random() < 0.3:
            processes[name].kill()
            processes[name].join()
            assert processes[name].exitcode == -9, f"consumer {name} had ended on its own"
            processes[name] = _spawn(db, name)
            world.count("consumers killed")
        else:
            world.count("sessions terminated", _terminate_one(db))
        world.stop.wait(random.random())


def _terminate_one(db: Database) -> int:
    with psycopg.connect(db.dsn, autocommit=True) as conn:
        row = conn.execute(
            "select count(pg_terminate_backend(pid)) from (select pid from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid() order by random() limit 1) one"
        ).fetchone()
    return row[0] if row else 0


def _finish_prepared(db: Database) -> None:
    """What a lost connection or a crash has left prepared is committed: its events count as sent."""
    with psycopg.connect(db.dsn, autocommit=True) as conn:
        for (gid,) in conn.execute("select gid from pg_prepared_xacts where database = current_database()").fetchall():
            conn.execute(sql.SQL("commit prepared {}").format(sql.Literal(gid)))


def _drain_all(db: Database, world: World) -> None:
    with psycopg.connect(db.dsn, autocommit=True) as conn:
        for name, take in CONSUMERS.items():
            drain(conn, name, take)
        for (name,) in conn.execute("select consumer from late where finish is null").fetchall():
            drain(conn, name, receive_some)
        drain(conn, "seeker", partial(receive_some, table="seen"))
        for kind, number in conn.execute("select kind, count(*) from sent group by kind").fetchall():
            world.count(f"sent by {kind}", number)
        world.count("sent", sum(n for k, n in world.counts.items() if k.startswith("sent by")))


def faults(db: Database) -> list[str]:
    """What is lost, invented, or out of order. An empty list is the right answer."""
    found = []
    with psycopg.connect(db.dsn, autocommit=True) as conn:
        for name in CONSUMERS:
            for table, a, b in (("lost", "sent", "got"), ("invented", "got", "sent")):
                rows = conn.execute(
                    f"select data from {a} {'where consumer = %(n)s' if a == 'got' else ''} except"
                    f" select data from {b} {'where consumer = %(n)s' if b == 'got' else ''}".encode(),
                    {"n": name},
                ).fetchall()
                found += [f"{name}: {table} {data}" for (data,) in rows]
        rows = conn.execute(
            "select l.consumer, s.data from late l join sent s on not pg_visible_in_snapshot(s.txid, l.start)"
            " and coalesce(pg_visible_in_snapshot(s.txid, l.finish), true)"
            " where (l.finish is null or s.kind <> 'delayed')"
            " and not exists (select from got g where g.consumer = l.consumer and g.data = s.data)"
        ).fetchall()
        found += [f"{name}: lost {data}" for name, data in rows]
        rows = conn.execute("select consumer, s.data from sent s join got using (data) where at < due").fetchall()
        found += [f"{name}: too early {data}" for name, data in rows]
        rows = conn.execute("select data from sent except select data from seen").fetchall()
        found += [f"seeker: lost {data}" for (data,) in rows]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=0.5)
    parser.add_argument("--pg", type=int, default=18)
    parser.add_argument("--crashes", type=int, default=2)
    args = parser.parse_args()
    with Cluster(args.pg) as cluster, cluster.database() as db:
        world = run(db, args.minutes * 60, crashes=args.crashes)
        for what, number in sorted(world.counts.items()):
            print(f"{number:8} {what}")
        wrong = faults(db)
        print(*wrong[:20], f"{len(wrong)} faults", sep="\n")
        raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
