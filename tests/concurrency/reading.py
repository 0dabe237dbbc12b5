"""The consumers of the stress run: four ways to read, each recording what it got in the transaction that says so.

Their processes end only when they are killed, or when something is delivered twice, which the primary key of `got`
refuses.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable
from typing import Any, LiteralString

import psycopg

QUEUE = "chaos"

Conn = psycopg.Connection[Any]


def rollback(conn: Conn | None) -> None:
    if conn is not None:
        with contextlib.suppress(psycopg.Error):
            conn.rollback()


def record(conn: Conn, table: LiteralString, name: str, events: list[tuple[int, str]]) -> None:
    """Store what was received. `got` refuses to have anything twice; `seen` is for a consumer that goes back."""
    ids, data = [ev_id for ev_id, _ in events], [data for _, data in events]
    if table == "got":
        insert: LiteralString = "insert into got select %s, d, i from unnest(%s::text[], %s::bigint[]) e(d, i)"
    else:
        insert = (
            "insert into seen select distinct %s, d from unnest(%s::text[], %s::bigint[]) e(d, i)"
            " on conflict do nothing"
        )
    conn.execute(insert, (name, data, ids))


def receive_some(conn: Conn, name: str, table: LiteralString = "got", at_most: int = 100) -> int:
    """receive and ack, a part of a batch at a time, in one transaction with the effect."""
    with conn.transaction():
        rows = conn.execute(
            "select batch_id, ev_id, ev_data from pgq.receive(%s, %s, %s)", (QUEUE, name, random.randint(1, at_most))
        ).fetchall()
        if rows:
            failed = [ev_id for _, ev_id, _ in rows if name in CONSUMERS and random.random() < 0.03]
            if failed:
                nack(conn, name, rows[0][0], failed)
            record(conn, table, name, [(ev_id, data) for _, ev_id, data in rows if ev_id not in failed])
            conn.execute("select pgq.ack(%s, %s, %s)", (QUEUE, name, rows[0][0]))
    return len(rows)


def nack(conn: Conn, name: str, batch: int, failed: list[int]) -> None:
    """They come again soon, and are recorded then; said twice, it counts once."""
    said = "select retried from pgq.nack(%s, %s, %s, %s, 'chaos', %s)"
    delay = f"{random.randint(0, 500)} ms"
    if conn.execute(said, (QUEUE, name, batch, failed, delay)).fetchone() != (len(failed),):
        raise AssertionError("not all of the failed events will be retried")
    if conn.execute(said, (QUEUE, name, batch, failed, delay)).fetchone() != (0,):
        raise AssertionError("an event that waits for a retry already was taken again")


def take_batch(conn: Conn, name: str) -> int:
    """next_batch in one transaction; the effect and finish_batch in another, as PgQ's consumers do."""
    row = conn.execute("select pgq.next_batch(%s, %s)", (QUEUE, name)).fetchone()
    if row is None or row[0] is None:
        return 0
    with conn.transaction():
        events = conn.execute("select ev_id, ev_data from pgq.get_batch_events(%s)", (row[0],)).fetchall()
        if events and random.random() < 0.1:
            conn.execute("select pgq.event_retry(%s, %s, 0)", (row[0], events.pop()[0]))
        record(conn, "got", name, events)
        done = conn.execute("select pgq.finish_batch(%s)", (row[0],)).fetchone()
        if done != (1,):
            raise psycopg.errors.SerializationFailure("somebody else finished the batch")
    return len(events) or 1


def open_in_parts(conn: Conn, name: str) -> int:
    """open_batch, streamed by a cursor; progress is acknowledged every few events, each with its effect."""
    row = conn.execute(
        "select batch_id from pgq.open_batch(%s, %s, %s)", (QUEUE, name, random.choice((1, 50, 10000)))
    ).fetchone()
    if row is None or row[0] is None:
        return 0
    batch = row[0]
    query = conn.execute("select pgq.batch_event_sql(%s)", (batch,)).fetchone()
    events = conn.execute(f"select ev_id, ev_data from ({query[0] if query else ''}) e".encode()).fetchall()
    for part in (events[i : i + 7] for i in range(0, len(events), 7)):
        with conn.transaction():
            record(conn, "got", name, part)
            conn.execute("select pgq.ack(%s, %s, %s, %s)", (QUEUE, name, batch, part[-1][0]))
    conn.execute("select pgq.ack(%s, %s, %s)", (QUEUE, name, batch))
    return len(events) or 1


def open_with_events(conn: Conn, name: str) -> int:
    """The queue's own function, which may tick first; its events, if they are few, else the batch read in SQL."""
    row = conn.execute("select pgq.opener_function(%s)", (QUEUE,)).fetchone()
    call = f"select * from pgq.{row[0] if row else ''}(%s, %s, %s, %s, %s)".encode()
    numbers = random.choice((1, 50, 10000)), random.choice((1, 20, 500)), random.choice((True, None, False))
    found = conn.execute(call, (name, *numbers, random.choice((True, False)))).fetchall()
    if not found:
        return 0
    *rows, info = found
    with conn.transaction():
        events, batch = [(row[9], row[14]) for row in rows], info[0]
        peeked = (QUEUE, name, info[0], info[2], info[1])
        if batch < 0 and (not info[8] or random.random() < 0.5):
            ((batch,),) = conn.execute("select pgq.open_peeked(%s, %s, %s, %s, %s)", peeked).fetchall()
        if not info[8]:
            events = conn.execute("select ev_id, ev_data from pgq.get_batch_events(%s)", (batch,)).fetchall()
        record(conn, "got", name, events)
        if batch < 0:
            conn.execute("select pgq.ack_peeked(%s, %s, %s, %s, %s)", peeked)
        else:
            conn.execute("select pgq.ack(%s, %s, %s)", (QUEUE, name, batch))
    return len(events) or 1


CONSUMERS: dict[str, Callable[[Conn, str], int]] = {
    "batches": take_batch,
    "pieces": receive_some,
    "parts": open_in_parts,
    "small": open_with_events,
}


def consume_forever(dsn: str, name: str) -> None:
    """Body of a consumer process; it ends only when it is killed, or on a wrong delivery."""
    conn: Conn | None = None
    while True:
        try:
            if conn is None:
                conn = psycopg.connect(dsn, autocommit=True, application_name=f"consumer {name}")
            if CONSUMERS[name](conn, name) == 0:
                time.sleep(0.01)
        except psycopg.errors.SerializationFailure:
            rollback(conn)
        except (psycopg.OperationalError, psycopg.InterfaceError):
            conn = None
            time.sleep(0.05)


def drain(conn: Conn, name: str, take: Callable[[Conn, str], int], *, delayed: bool = True) -> None:
    """Take everything that a consumer has left; with `delayed`, wait for that too."""
    while True:
        try:
            conn.execute("select pgq.release(%s)", (QUEUE,))
            conn.execute("select pgq.ticker(%s)", (QUEUE,))
            waiting = conn.execute("select count(*) from pgq.delayed_event").fetchone()
            if take(conn, name) == 0 and (not delayed or waiting == (0,)):
                return
        except psycopg.errors.SerializationFailure:
            rollback(conn)
