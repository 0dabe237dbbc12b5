"""Chaos for the engine: everything that writes, reads and maintains a queue at once, and everything that goes wrong.

What was sent is known exactly: every writer inserts the event's payload into `sent` in the same transaction. What was
received is known exactly: every consumer inserts it into `got` in the transaction that acknowledges it. Both tables
survive a crash as well as the events do, so at the end they must be equal, and the primary key of `got` refuses a
second delivery at once.

Consumers are processes, for SIGKILL; everybody else is a thread. All of them treat a lost connection as ordinary.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import LiteralString

import psycopg
from psycopg import IsolationLevel, sql

from tests.concurrency.reading import QUEUE, Conn, drain, receive_some, rollback

LEVELS = (IsolationLevel.READ_COMMITTED, IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE)

SCHEMA: LiteralString = """
create table sent (
    data text primary key, txid xid8 not null default pg_current_xact_id(), kind text not null, due timestamptz);
create table got (
    consumer text, data text, ev_id bigint not null, at timestamptz not null default clock_timestamp(),
    primary key (consumer, data));
create table seen (consumer text, data text, primary key (consumer, data));
create table late (consumer text primary key, start pg_snapshot not null, finish pg_snapshot);
"""


class Stop(Exception):
    """The actor's time is over."""


@dataclass
class World:
    """What the actors share: where the database is, when to stop, what happened."""

    dsn: str
    slots: int = 3
    stop: threading.Event = field(default_factory=threading.Event)
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    serial: Iterator[int] = field(default_factory=lambda: iter(range(1, 10**9)))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, what: str, n: int = 1) -> None:
        with self.lock:
            self.counts[what] += n

    def payload(self, kind: str) -> str:
        with self.lock:
            return f"{kind}-{next(self.serial)}"

    def pause(self, longest: float) -> None:
        """Wait for a random time; a stopped world does not wait.

        Slow and fast times alternate: stalls of half a second, and rotations every few milliseconds.
        """
        fast = int(time.monotonic() / 2) % 2
        self.stop.wait(random.random() * (longest / 50 if fast else longest))


Actor = Callable[[World, Conn], None]


def forever(world: World, name: str, actor: Actor) -> None:
    """Repeat an actor until the world stops, with a new connection after every lost one."""
    conn: Conn | None = None
    while not world.stop.is_set():
        try:
            if conn is None:
                conn = psycopg.connect(world.dsn, autocommit=True, application_name=name)
            actor(world, conn)
        except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected) as exc:
            world.count(f"{name}: {exc.sqlstate}")
            rollback(conn)
        except (psycopg.OperationalError, psycopg.InterfaceError):
            world.count(f"{name}: disconnected")
            if conn is not None:
                conn.close()
            conn = None
            world.stop.wait(0.05)
        except Exception as exc:
            world.failures.append(f"{name}: {type(exc).__name__}: {exc}")
            world.stop.set()
    if conn is not None:
        conn.close()


# -- writers --------------------------------------------------------------------------------------------------------


def note(conn: Conn, data: str, kind: str) -> None:
    conn.execute("insert into sent (data, kind) values (%s, %s)", (data, kind))


def writer(world: World, conn: Conn) -> None:
    """insert_event at each isolation level, stalling between the snapshot and the insert, and before the end."""
    level = random.choice(LEVELS)
    kind = f"insert-{level.name.lower()}"
    conn.execute(sql.SQL("begin isolation level {}").format(sql.SQL(level.name.replace("_", " "))))
    conn.execute("select count(*) from pgq.queue")  # the snapshot is taken here
    world.pause(random.choice((0.0, 0.02, 0.5)))
    for _ in range(random.randint(1, 3)):
        data = world.payload(kind)
        conn.execute("select pgq.insert_event(%s, %s, %s)", (QUEUE, "chaos", data))
        note(conn, data, kind)
    _maybe_savepoint(world, conn)
    world.pause(random.choice((0.0, 0.02, 0.3)))
    conn.execute("rollback" if random.random() < 0.2 else "commit")
    world.count("written")


def _maybe_savepoint(world: World, conn: Conn) -> None:
    """A rolled-back savepoint: its event must not arrive, and its lock on the slot is gone with it."""
    if random.random() < 0.3:
        conn.execute("savepoint s")
        conn.execute("select pgq.insert_event(%s, 'never', 'rolled back')", (QUEUE,))
        conn.execute("rollback to savepoint s")


def producer(world: World, conn: Conn) -> None:
    """The generated function, one transaction per event, as fast as it goes."""
    name = conn.execute("select pgq.producer_function(%s)", (QUEUE,)).fetchone()
    call = sql.SQL("select pgq.{}('chaos', %s, null, null, null, null)").format(sql.Identifier(name[0] if name else ""))
    for _ in range(50):
        data = world.payload("produce")
        with conn.transaction():
            conn.execute(call, (data,))
            note(conn, data, "produce")
        world.pause(0.01)


def copier(world: World, conn: Conn) -> None:
    """COPY into a table asked for long before: delivered, or refused as a whole."""
    table = conn.execute("select pgq.current_event_table(%s)", (QUEUE,)).fetchone()
    target = sql.Identifier(*(table[0] if table else "").split("."))
    world.pause(random.choice((0.0, 0.6)))
    rows = [world.payload("copy") for _ in range(random.randint(1, 20))]
    try:
        with conn.transaction():
            with conn.cursor().copy(sql.SQL("copy {} (ev_type, ev_data) from stdin").format(target)) as copy:
                for data in rows:
                    copy.write_row(("chaos", data))
            for data in rows:
                note(conn, data, "copy")
        world.count("copied", len(rows))
    except psycopg.errors.SerializationFailure:
        world.count("refused copies")


def batcher(world: World, conn: Conn) -> None:
    rows = [world.payload("batch") for _ in range(random.randint(1, 20))]
    with conn.transaction():
        conn.execute("select pgq.send_batch(%s, 'chaos', %s::text[])", (QUEUE, rows))
        for data in rows:
            note(conn, data, "batch")
    world.pause(0.2)


def delayer(world: World, conn: Conn) -> None:
    """Events for later, some due before their transaction commits, some cancelled, some rolled back."""
    conn.execute(sql.SQL("begin isolation level {}").format(sql.SQL(random.choice(LEVELS).name.replace("_", " "))))
    for _ in range(random.randint(1, 10)):
        data = world.payload("delayed")
        row = conn.execute(
            "insert into sent (data, kind, due) values (%s, 'delayed', clock_timestamp() + random() * interval '1 s')"
            " returning due",
            (data,),
        ).fetchone()
        conn.execute("select pgq.insert_event_at(%s, %s, 'chaos', %s)", (QUEUE, row[0] if row else None, data))
    world.pause(random.choice((0.0, 0.02, 0.7)))
    conn.execute("rollback" if random.random() < 0.2 else "commit")
    _send_and_cancel(world, conn)
    world.pause(0.1)


def _send_and_cancel(world: World, conn: Conn) -> None:
    """Cancelled while it waits, it never comes; too late, it comes: never both, never neither."""
    data = world.payload("cancelled")
    with conn.transaction():
        note(conn, data, "delayed")
        row = conn.execute(
            "select pgq.insert_event_at(%s, clock_timestamp() + random() * interval '1 s', 'chaos', %s)", (QUEUE, data)
        ).fetchone()
    world.pause(1.0)
    with conn.transaction():
        done = conn.execute("select pgq.cancel_event(%s, %s)", (QUEUE, row[0] if row else None)).fetchone()
        if done == (1,):
            conn.execute("delete from sent where data = %s", (data,))
            world.count("cancelled")


def preparer(world: World, conn: Conn) -> None:
    """Two-phase commit: prepared transactions stay open for a while, across crashes too."""
    _finish_abandoned(conn)
    gid = world.payload("gid")
    conn.execute("begin")
    data = world.payload("prepared")
    conn.execute("select pgq.insert_event(%s, 'chaos', %s)", (QUEUE, data))
    note(conn, data, "prepared")
    conn.execute(sql.SQL("prepare transaction {}").format(sql.Literal(gid)))
    world.pause(0.4)
    verb = sql.SQL("rollback prepared {}" if random.random() < 0.2 else "commit prepared {}")
    conn.execute(verb.format(sql.Literal(gid)))
    world.count("prepared")


def _finish_abandoned(conn: Conn) -> None:
    """Commit what a lost session has left prepared: its lock holds up the slot, and rightly so."""
    for (gid,) in conn.execute(
        "select gid from pg_prepared_xacts where database = current_database() and prepared < now() - interval '1 s'"
    ).fetchall():
        with contextlib.suppress(psycopg.errors.UndefinedObject, psycopg.errors.ObjectNotInPrerequisiteState):
            conn.execute(sql.SQL("commit prepared {}").format(sql.Literal(gid)))


def staller(world: World, conn: Conn) -> None:
    """Hold a lock that every writer of a slot runs into after it has chosen that slot."""
    table = conn.execute("select pgq.current_event_table(%s)", (QUEUE,)).fetchone()
    target = sql.Identifier(*(table[0] if table else "").split("."))
    with contextlib.suppress(psycopg.errors.LockNotAvailable), conn.transaction():
        conn.execute("set local lock_timeout = '500ms'")
        conn.execute(sql.SQL("lock table {} in share row exclusive mode").format(target))
        world.count("stalls")
        world.pause(0.3)
    world.pause(0.5)


# -- ticks and maintenance ------------------------------------------------------------------------------------------


TICKS: tuple[LiteralString, ...] = (
    "select pgq.ticker(%s)",
    "select pgq.poke(%s)",
    "select pgq.ticker() + length(%s)",
    "select pgq.release(%s)",
    "select pgq.maint_retry_events() + length(%s)",
)


def ticker(world: World, conn: Conn) -> None:
    conn.execute(random.choice(TICKS), (QUEUE,))
    world.pause(0.02)


def rotator(world: World, conn: Conn) -> None:
    """Rotation of every ring as fast as it goes, by steps as a DBA would force them."""
    row = conn.execute("select pgq.rotate_queue(%s)", (QUEUE,)).fetchone()
    world.count(f"events {row[0] if row else None}")
    ring = random.choice(("cursor_ring", "tick_ring", "delay_1", "dead_ring"))
    row = conn.execute("select pgq._ring_step(%s, true)", (ring,)).fetchone()
    world.count(f"{ring} {row[0] if row else None}")
    world.pause(0.01)


# -- registrations --------------------------------------------------------------------------------------------------


def latecomer(world: World, conn: Conn) -> None:
    """Register while rotation runs, dawdling before the commit; read for a while; leave.

    All that was sent between the two snapshots, and not for later, must have arrived, see `faults`.
    """
    name = _left_behind(conn) or world.payload("late")
    with conn.transaction():
        conn.execute("select pgq.register_consumer(%s, %s)", (QUEUE, name))
        world.pause(0.3)
    conn.execute(
        "insert into late (consumer, start) values (%s, pg_current_snapshot()) on conflict do nothing", (name,)
    )
    until = time.monotonic() + random.random() * 2
    while time.monotonic() < until:
        receive_some(conn, name)
    row = conn.execute("select pg_current_snapshot()::text").fetchone()
    drain(conn, name, receive_some, delayed=False)
    with conn.transaction():
        conn.execute("update late set finish = %s where consumer = %s", (row[0] if row else None, name))
        conn.execute("select pgq.unregister_consumer(%s, %s)", (QUEUE, name))
    world.count("late registrations")


def _left_behind(conn: Conn) -> str | None:
    """A latecomer whose connection was lost: it goes on, or rotation would wait for it."""
    row = conn.execute(
        "select co_name from pgq.registration join pgq.consumer on co_id = sub_consumer where co_name like 'late-%'"
    ).fetchone()
    return row[0] if row else None


def seeker(world: World, conn: Conn) -> None:
    """Read, and go back again and again: to the earliest tick whose events are still there."""
    for _ in range(random.randint(1, 10)):
        receive_some(conn, "seeker", "seen", 1000)
    if random.random() < 0.2:
        conn.execute("select pgq.seek(%s, 'seeker', 'earliest')", (QUEUE,))
        world.count("seeks")
    world.pause(0.05)
