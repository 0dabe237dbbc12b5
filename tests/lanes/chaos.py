"""Everything that may happen to a job queue, at once, with a count at the end.

Enqueuers of three isolation levels that commit late or not at all; workers that complete one by one or all at once, in
transactions of three levels, fail, snooze, give back, stall beyond their lease and finish all the same, or die; with
heartbeats and without; cancellations; rotation of every ring as fast as it goes; sessions terminated; the server
killed. Each job that was committed has its effect once, and none that was not.

By hand, for as long as you like:

    .venv/bin/python -m tests.lanes.chaos --minutes 10 --pg 18
"""

from __future__ import annotations

import argparse
import random
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import psycopg

from tests.clusters import Cluster, Database

QUEUE = "work"
LEVELS = ("read committed", "repeatable read", "serializable")

SCHEMA = """
    create table sent (job_id bigint primary key, key text, at timestamptz not null default clock_timestamp());
    create table effect (job_id bigint not null, worker text);
    create index on effect (job_id);
    create table cancelled (job_id bigint not null, outcome text);
    create table twice (key text, job_id bigint, other bigint);
"""

RETRYABLE = ("40001", "40P01", "55P03", "PQ020", "PQ022")
"""What a worker or an enqueuer meets and answers with a rollback."""

Conn = psycopg.Connection[Any]


class World:
    """What the actors share."""

    def __init__(self, dsn: str) -> None:
        self.dsn, self.stop, self.failures = dsn, threading.Event(), list[str]()
        self.counts: Counter[str] = Counter()
        self._names = count(1)

    def connect(self) -> Conn:
        return psycopg.connect(self.dsn, autocommit=True, application_name="chaos")

    def pause(self, most: float) -> None:
        self.stop.wait(random.random() * most)

    def worker_name(self) -> str:
        return f"worker {next(self._names)}"


Actor = Callable[[World, Conn], None]


def forever(world: World, name: str, actor: Actor) -> None:
    """Repeat an actor's life. Lost connections and what is answered with a rollback are part of it."""
    while not world.stop.is_set():
        try:
            with world.connect() as conn:
                while not world.stop.is_set():
                    actor(world, conn)
        except psycopg.Rollback:  # comes through when the connection was lost at that moment
            world.counts["connections lost"] += 1
        except psycopg.OperationalError as exc:
            world.counts["connections lost"] += 1
            if exc.sqlstate and not exc.sqlstate.startswith(("57", "08", "53", "40", "55")):
                world.failures.append(f"{name}: {exc!r}")
            world.pause(0.2)
        except Exception as exc:
            if getattr(exc, "sqlstate", None) not in RETRYABLE:
                world.failures.append(f"{name}: {type(exc).__name__} {getattr(exc, 'sqlstate', '')} {exc}")
                world.stop.set()


# -- enqueueing -----------------------------------------------------------------------------------------------------


def enqueuer(world: World, conn: Conn) -> None:
    """One transaction of a few jobs, that takes its time and commits, mostly."""
    level = random.choice(LEVELS)
    with suppress(psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected), conn.transaction():
        conn.execute(f"set transaction isolation level {level}".encode())
        for _ in range(random.randint(1, 4)):
            _enqueue_one(conn, level)
            if random.random() < 0.2:
                world.pause(0.3)
        if random.random() < 0.15:
            world.counts["enqueues rolled back"] += 1
            raise psycopg.Rollback
    world.pause(0.02)


def _enqueue_one(conn: Conn, level: str) -> None:
    key = f"k{random.randint(1, 20)}" if random.random() < 0.3 else None
    run_at = "now() + interval '200 ms'" if random.random() < 0.15 else "null"
    row = conn.execute(
        f"select * from pgq.enqueue('{QUEUE}', 't', '{{}}', %s, {run_at}, %s)".encode(),
        (random.choice((30, 100, 150, None)), key),
    ).fetchone()
    assert row is not None
    if row[1]:
        conn.execute("insert into sent values (%s, %s)", (row[0], key))
        if key and level == "read committed":
            _note_twice(conn, row[0], key)


def _note_twice(conn: Conn, job: int, key: str) -> None:
    """Whoever got a key sees that all others that had it are at their end."""
    conn.execute(
        "insert into twice select %(key)s, %(job)s, s.job_id from sent s where s.key = %(key)s and s.job_id <> %(job)s"
        " and not exists (select from effect e where e.job_id = s.job_id)"
        " and not exists (select from cancelled c where c.job_id = s.job_id)",
        {"key": key, "job": job},
    )


def bulk(world: World, conn: Conn) -> None:
    """Many at once, with keys that collide, also within the call."""
    n = random.randint(1, 100)
    with suppress(psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected), conn.transaction():
        conn.execute(f"set transaction isolation level {random.choice(LEVELS)}".encode())
        conn.execute(
            f"insert into sent select w.id, null from pgq.enqueue_many('{QUEUE}', (select jsonb_agg(jsonb_build_object("
            " 'type', 't', 'priority', (random() * 200)::int, 'key', case when g % 10 = 0"
            " then 'k' || (g % 20 + 1) end))"
            f" from generate_series(1, {n}) g)) w where w.created".encode()
        )
    world.pause(1)


def canceller(world: World, conn: Conn) -> None:
    """Cancel a few of the youngest."""
    with conn.transaction():
        conn.execute(
            f"insert into cancelled select c.* from pgq.cancel('{QUEUE}', array(select job_id from sent"
            " order by job_id desc offset (random() * 20)::int limit 3)) c"
            " where c.outcome in ('cancelled', 'cancel_requested')".encode()
        )
    world.pause(0.5)


# -- working --------------------------------------------------------------------------------------------------------


def worker(world: World, conn: Conn) -> None:
    """One incarnation of a worker, up to its end."""
    name = world.worker_name()
    beats = random.random() < 0.7
    held: list[int] = []
    if beats:
        _beat(conn, name, held)
    heart = threading.Thread(target=_heart, args=(world, name, held, end := threading.Event()), daemon=True)
    if beats:
        heart.start()
    try:
        for _ in range(random.randint(1, 60)):
            if world.stop.is_set() or not _work_one_claim(world, conn, name, held):
                break
    finally:
        end.set()
        if beats:
            heart.join(10)
    if random.random() < 0.5:
        conn.execute("select pgq.end_worker(%s)", (name,))
    else:
        world.counts["workers died"] += 1


def _heart(world: World, name: str, held: list[int], end: threading.Event) -> None:
    while not end.is_set() and not world.stop.is_set():
        with suppress(psycopg.Error), world.connect() as conn:
            while not end.wait(0.2) and not world.stop.is_set():
                _beat(conn, name, held)


def _beat(conn: Conn, name: str, held: list[int]) -> None:
    conn.execute("select * from pgq.heartbeat(%s, %s, interval '1 second')", (name, list(held)))


_dry: weakref.WeakKeyDictionary[Conn, int] = weakref.WeakKeyDictionary()
"""The last tick up to which a taker said that nothing waits; by connection, for a crash may take ticks along."""


def _claim(conn: Conn, name: str, n: int) -> tuple[int | None, int]:
    """In one of three ways: with something in hand, without, and what has just come."""
    if random.random() < 0.4:
        found = conn.execute("select pgq.taker_function(%s)", (QUEUE,)).fetchone()
        take = f"select claim_id, token, dry from pgq.{found[0] if found else ''}(%s, %s, %s, %s, %s)"
        hints = random.choice((30, 100, 100, 150)), random.random() < 0.7, _dry.get(conn)
        claim, token, dry = conn.execute(take.encode(), (name, n, *hints)).fetchone() or (None, 0, None)
        if dry is not None and random.random() < 0.9:
            _dry[conn] = dry
        return claim, token
    claim = f"select claim_id, token from pgq.claim('{QUEUE}', %s, %s, %s)"
    row = conn.execute(claim.encode(), (name, n, random.random() < 0.5)).fetchone()
    return row or (None, 0)


def _work_one_claim(world: World, conn: Conn, name: str, held: list[int]) -> bool:
    """Claim and do something with what comes; false when the worker died of it."""
    claim, token = _claim(conn, name, random.choice((1, 3, 20, 100)))
    if claim is None:
        world.pause(0.05)
        return True
    if random.random() < 0.02:
        world.counts["answers lost"] += 1
        return True  # and never heard of again: the next heartbeats give it back
    held.append(claim)
    try:
        return _live_through(world, conn, (claim, token), held)
    finally:
        if claim in held:
            held.remove(claim)


def _live_through(world: World, conn: Conn, mine: tuple[int, int], held: list[int]) -> bool:
    """What becomes of a claim; false when the worker died with it."""
    jobs = [r[0] for r in conn.execute("select job_id from pgq.claimed(%s, %s)", mine).fetchall()]
    fate = random.random()
    if fate < 0.05:
        world.counts["died with a claim"] += 1
        return False
    if fate < 0.1:
        world.counts["stalled"] += 1
        if random.random() < 0.5:
            held.remove(mine[0])
        world.stop.wait(random.uniform(0.8, 2.5))
    try:
        if fate < 0.5:
            _complete(world, conn, mine, jobs, None)
        else:
            for job in jobs:
                _finish_one(world, conn, *mine, job)
    except psycopg.Error as exc:
        if exc.sqlstate not in RETRYABLE:
            raise
        world.counts[f"refused {exc.sqlstate}"] += 1
        if exc.sqlstate != "PQ020":  # it has the claim still and must not forget it
            conn.execute("select pgq.release(%s, %s)", mine)
    return True


def _complete(world: World, conn: Conn, held: tuple[int, int], jobs: list[int], only: list[int] | None) -> None:
    """The effects of jobs, and their completion, in one transaction."""
    with conn.transaction():
        conn.execute(f"set transaction isolation level {random.choice(LEVELS)}".encode())
        if random.random() < 0.5:  # the snapshot is old by the time
            conn.execute("select count(*) from effect where job_id < 0")
            world.pause(0.01 if random.random() < 0.95 else 1.5)
        first = _complete_call(conn, held, only) if random.random() < 0.5 else None
        conn.cursor().executemany("insert into effect values (%s, 'w')", [(job,) for job in jobs])
        done = _complete_call(conn, held, only) if first is None else first
        if done != len(jobs):
            raise psycopg.Rollback  # some were finished before


def _complete_call(conn: Conn, held: tuple[int, int], only: list[int] | None) -> int:
    row = conn.execute("select pgq.complete(%s, %s, %s::bigint[])", (*held, only)).fetchone()
    assert row is not None
    return int(row[0])


def _finish_one(world: World, conn: Conn, claim: int, token: int, job: int) -> None:
    fate = random.random()
    if fate < 0.8:
        _complete(world, conn, (claim, token), [job], [job])
    elif fate < 0.9:
        conn.execute("select pgq.fail(%s, %s, %s, 'boom', %s)", (claim, token, job, f"{random.randint(0, 200)} ms"))
    elif fate < 0.95:
        conn.execute("select pgq.snooze(%s, %s, %s, '50 ms')", (claim, token, job))
    else:
        conn.execute("select pgq.release(%s, %s, array[%s]::bigint[])", (claim, token, job))


# -- around it ------------------------------------------------------------------------------------------------------


def recoverer(world: World, conn: Conn) -> None:
    row = conn.execute("select pgq.recover()").fetchone()
    assert row is not None
    world.counts["recovered"] += row[0]
    world.pause(0.3)


def ticker(world: World, conn: Conn) -> None:
    conn.execute(f"select pgq.ticker('{QUEUE}')".encode())
    conn.execute(f"select pgq.release('{QUEUE}')".encode())
    world.pause(0.05)


def rotator(world: World, conn: Conn) -> None:
    """A step of every ring, whether it is time or not."""
    for (ring,) in conn.execute("select ring_name from pgq.ring order by random()").fetchall():
        row = conn.execute("select pgq._ring_step(%s, true)", (ring,)).fetchone()
        assert row is not None
        kind = ring.rstrip("_0123456789")
        world.counts[f"{kind} {row[0]}"] += 1
    world.pause(0.02)


def watcher(world: World, conn: Conn) -> None:
    """Whoever looks at jobs sees something sensible and gets no error."""
    conn.execute("select * from pgq.get_job_stats()")
    conn.execute(f"select * from pgq.jobs('{QUEUE}', i_limit := 20)".encode())
    world.pause(0.5)


ACTORS: dict[str, tuple[int, Actor]] = {
    "enqueuer": (6, enqueuer),
    "bulk": (2, bulk),
    "worker": (8, worker),
    "canceller": (1, canceller),
    "recoverer": (2, recoverer),
    "ticker": (1, ticker),
    "rotator": (2, rotator),
    "watcher": (1, watcher),
}


def run(db: Database, seconds: float, *, crashes: int = 2) -> World:
    """Let all of it happen for so long, then work off what is left. Raises AssertionError."""
    with psycopg.connect(db.dsn, autocommit=True) as conn:
        conn.execute(SCHEMA)
        conn.execute(f"select pgq.create_job_queue('{QUEUE}')".encode())
        for name, setting in (("lease", "1 second"), ("max_losses", "100")):
            conn.execute(f"select pgq.set_job_config('{QUEUE}', %s, %s)".encode(), (name, setting))
        conn.execute(f"select pgq.set_retry_policy('{QUEUE}', null, 1000000)".encode())
    world = World(db.dsn)
    threads = [
        threading.Thread(target=forever, args=(world, f"{name} {i}", actor), daemon=True)
        for name, (number, actor) in ACTORS.items()
        for i in range(number)
    ]
    for thread in threads:
        thread.start()
    _go_wrong(db, world, seconds, crashes)
    world.stop.set()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "an actor hangs"
    assert not world.failures, world.failures[:5]
    _work_off(world)
    return world


def _go_wrong(db: Database, world: World, seconds: float, crashes: int) -> None:
    end = time.monotonic() + seconds
    crash_at = [end - seconds * (i + 1) / (crashes + 1) for i in range(crashes)]
    while time.monotonic() < end and not world.stop.is_set():
        if crash_at and time.monotonic() >= crash_at[-1]:
            crash_at.pop()
            db.server.crash()
            db.server.start()
            world.counts["server crashes"] += 1
        with suppress(psycopg.OperationalError), psycopg.connect(db.dsn, autocommit=True) as conn:
            conn.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'chaos'"
                " and datname = current_database() and pid <> pg_backend_pid() order by random() limit 1"
            )
        world.stop.wait(random.random())


def _work_off(world: World, seconds: float = 60) -> None:
    """One careful worker does all that is left."""
    deadline = time.monotonic() + seconds
    with world.connect() as conn:
        while True:
            conn.execute("select pgq.recover()")
            conn.execute(f"select pgq.release('{QUEUE}')".encode())
            conn.execute(f"select pgq.ticker('{QUEUE}')".encode())
            taken = conn.execute(f"select * from pgq.take('{QUEUE}', null, 1000)".encode()).fetchall()
            if taken:
                _complete(world, conn, taken[0][:2], [row[2] for row in taken], None)
            if taken:
                continue
            row = conn.execute("select pending, scheduled, retrying, running from pgq.get_job_stats()").fetchone()
            if row == (0, 0, 0, 0):
                return
            assert time.monotonic() < deadline, f"never done: {row}"


def faults(db: Database) -> list[str]:
    """What is lost, done twice, or invented. An empty list is the right answer."""
    queries = {
        "lost": "select job_id from sent s where not exists (select from effect e where e.job_id = s.job_id)"
        " and not exists (select from cancelled c where c.job_id = s.job_id)",
        "done twice": "select job_id from effect group by job_id having count(*) > 1",
        "done though cancelled": "select job_id from cancelled c where outcome = 'cancelled'"
        " and exists (select from effect e where e.job_id = c.job_id)",
        "invented": "select job_id from effect e where not exists (select from sent s where s.job_id = e.job_id)",
        "two with one key": "select job_id from twice",
        "dead letter": "select ev_id from pgq.dead_letter",
    }
    found = []
    with psycopg.connect(db.dsn, autocommit=True) as conn:
        for what, query in queries.items():
            found += [f"{what}: {row[0]}" for row in conn.execute(query.encode()).fetchall()]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=0.5)
    parser.add_argument("--pg", type=int, default=18)
    parser.add_argument("--crashes", type=int, default=2)
    args = parser.parse_args()
    with Cluster(args.pg) as cluster, cluster.database() as db:
        world = run(db, args.minutes * 60, crashes=args.crashes)
        with psycopg.connect(db.dsn) as conn:
            for table in ("sent", "effect", "cancelled"):
                row = conn.execute(f"select count(*) from {table}".encode()).fetchone()
                world.counts[table] = row[0] if row else 0
        for what, number in sorted(world.counts.items()):
            print(f"{number:8} {what}")
        wrong = faults(db)
        print(*wrong[:20], f"{len(wrong)} faults", sep="\n")
        raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
