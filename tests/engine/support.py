"""The engine's vocabulary for tests: short names for its functions, and sessions that are in the middle of something.

Everything goes through SQL, as for any user; the typed client has its own tests. A connection is one session, in
autocommit mode: transactions are opened and ended with plain `begin` and `commit`, so that a test reads like the
interleaving that it proves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any, LiteralString, TypeVar

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import TupleRow

from tests.waiting import wait_blocked

Conn = psycopg.Connection[TupleRow]
T = TypeVar("T")

QUEUE = "q"
BEGIN: dict[str, LiteralString] = {
    "read committed": "begin isolation level read committed",
    "repeatable read": "begin isolation level repeatable read",
    "serializable": "begin isolation level serializable",
}
OLD_SNAPSHOTS = ("repeatable read", "serializable")


def rows(conn: Conn, query: LiteralString | sql.Composed, *params: Any) -> list[TupleRow]:
    """All rows of a statement; none for a statement that returns nothing."""
    cur = conn.execute(query, params or None)
    return cur.fetchall() if cur.description else []


def value(conn: Conn, query: LiteralString | sql.Composed, *params: Any) -> Any:
    """The one value of a statement."""
    ((result,),) = rows(conn, query, *params)
    return result


def column(conn: Conn, query: LiteralString | sql.Composed, *params: Any) -> list[Any]:
    """The first column of a statement."""
    return [row[0] for row in rows(conn, query, *params)]


def begin(conn: Conn, level: str = "read committed") -> None:
    """Begin a transaction and, above READ COMMITTED, take its snapshot at once."""
    conn.execute(BEGIN[level])
    if level != "read committed":
        conn.execute("select count(*) from pgq.queue")


def commit(conn: Conn) -> None:
    conn.execute("commit")


def rollback(conn: Conn) -> None:
    conn.execute("rollback")


@contextmanager
def refused(sqlstate: str, text: str = "") -> Iterator[None]:
    """The block raises an error of the server with that SQLSTATE, and `text` in its message."""
    with pytest.raises(psycopg.Error) as caught:
        yield
    diag = caught.value.diag
    assert (diag.sqlstate, text in (diag.message_primary or "")) == (sqlstate, True), caught.value


# -- queues ---------------------------------------------------------------------------------------------------------


def create(conn: Conn, *consumers: str, queue: str = QUEUE, slots: int = 3) -> None:
    """A queue with its consumers."""
    assert value(conn, "select pgq.create_queue(%s, %s)", queue, slots) == 1
    for consumer in consumers:
        assert value(conn, "select pgq.register_consumer(%s, %s)", queue, consumer) == 1


def configure(conn: Conn, param: str, setting: str | None, queue: str = QUEUE) -> None:
    assert value(conn, "select pgq.set_queue_config(%s, %s, %s)", queue, param, setting) == 1


def send(conn: Conn, *data: str | None, queue: str = QUEUE) -> list[int]:
    """Send events; return their ids."""
    return [value(conn, "select pgq.insert_event(%s, 't', %s)", queue, item) for item in data]


def tick(conn: Conn, queue: str = QUEUE) -> Any:
    """Tick if one is due; return its id or None."""
    return value(conn, "select pgq.ticker(%s)", queue)


def send_and_tick(conn: Conn, times: int, queue: str = QUEUE) -> None:
    """One event and one tick after the other, each in a transaction of its own, without round trips."""
    body = sql.SQL(
        "begin for number in 1 .. {} loop"
        " perform pgq.insert_event({queue}, 't', number::text); commit; perform pgq.tick_now({queue}); commit;"
        " end loop; end"
    ).format(times, queue=queue)
    conn.execute(sql.SQL("do {}").format(body.as_string(conn)))


def force_tick(conn: Conn, queue: str = QUEUE) -> int:
    return int(value(conn, "select pgq.tick_now(%s)", queue))


def next_batch(conn: Conn, consumer: str = "c", queue: str = QUEUE) -> Any:
    return value(conn, "select pgq.next_batch(%s, %s)", queue, consumer)


def batch_data(conn: Conn, batch: int) -> list[str]:
    """Payloads of an open batch, in the order in which it delivers them."""
    return column(conn, "select ev_data from pgq.get_batch_events(%s)", batch)


def finish(conn: Conn, batch: int) -> None:
    assert value(conn, "select pgq.finish_batch(%s)", batch) == 1


def take(conn: Conn, consumer: str = "c", queue: str = QUEUE) -> list[str] | None:
    """One batch, taken and finished: its payloads, or None when nothing is waiting."""
    batch = next_batch(conn, consumer, queue)
    if batch is None:
        return None
    data = batch_data(conn, batch)
    finish(conn, batch)
    return data


def drain(conn: Conn, consumer: str = "c", queue: str = QUEUE) -> list[str]:
    """Payloads of everything that is waiting."""
    found: list[str] = []
    while (data := take(conn, consumer, queue)) is not None:
        found += data
    return found


def deliver(conn: Conn, consumer: str = "c", queue: str = QUEUE) -> list[str]:
    """Tick if one is due, and take everything that is waiting."""
    tick(conn, queue)
    return drain(conn, consumer, queue)


def receive(conn: Conn, consumer: str = "c", n: int = 100, queue: str = QUEUE) -> tuple[int | None, list[str]]:
    """The batch and the payloads that receive() hands out."""
    found = rows(conn, "select batch_id, ev_data from pgq.receive(%s, %s, %s)", queue, consumer, n)
    return (found[0][0] if found else None), [row[1] for row in found]


def ack(conn: Conn, batch: int | None, upto: int | None = None, consumer: str = "c", queue: str = QUEUE) -> int:
    return int(value(conn, "select pgq.ack(%s, %s, %s, %s)", queue, consumer, batch, upto))


# -- rings ----------------------------------------------------------------------------------------------------------


def event_ring(conn: Conn, queue: str = QUEUE) -> str:
    return f"event_{value(conn, 'select queue_id from pgq.queue where queue_name = %s', queue)}"


def rotate(conn: Conn, queue: str = QUEUE) -> str:
    """One forced step of a queue's ring."""
    return str(value(conn, "select pgq.rotate_queue(%s)", queue))


def rotated(conn: Conn, *expected: str, queue: str = QUEUE) -> None:
    """Forced steps of a queue's ring, each with that result."""
    assert [rotate(conn, queue) for _ in expected] == list(expected)


def rotate_until(conn: Conn, result: str, queue: str = QUEUE, most: int = 12) -> list[str]:
    """Forced steps of a queue's ring up to the first one with that result."""
    done: list[str] = []
    while len(done) < most:
        done.append(rotate(conn, queue))
        if done[-1] == result:
            return done
    raise AssertionError(f"no {result!r} in {done}")


def step(conn: Conn, ring: str) -> str:
    """One forced step of a global ring."""
    return str(value(conn, "select pgq._ring_step(%s, true)", ring))


def stepped(conn: Conn, ring: str, *expected: str) -> None:
    assert [step(conn, ring) for _ in expected] == list(expected)


def step_until(conn: Conn, ring: str, result: str, most: int = 12) -> list[str]:
    done: list[str] = []
    while len(done) < most:
        done.append(step(conn, ring))
        if done[-1] == result:
            return done
    raise AssertionError(f"no {result!r} in {done}")


def evacuate(conn: Conn, ring: str) -> None:
    """Move a global ring on by one slot: what is live in the current one is copied into the next."""
    stepped(conn, ring, "switched", "closed", "truncated")


def phase(conn: Conn, ring: str) -> int:
    return int(value(conn, "select pgq._phase(%s)", ring))


def slot(conn: Conn, ring: str, generation: int, slots: int = 3) -> sql.Identifier:
    """The table that holds a generation."""
    return sql.Identifier("pgq", f"{ring}_{generation % slots}")


def filled_slots(conn: Conn, ring: str) -> list[int]:
    """Numbers of the slots that are not of size 0."""
    found = rows(
        conn,
        "select substring(relname from '[0-9]+$')::int from pg_class where relnamespace = 'pgq'::regnamespace"
        " and relname ~ ('^' || %s || '_[0-9]+$') and relkind = 'r' and pg_relation_size(oid) > 0 order by 1",
        ring,
    )
    return [row[0] for row in found]


def ring_info(conn: Conn, ring: str, what: LiteralString) -> Any:
    query = sql.SQL("select {} from pgq.ring_info() where ring = {}").format(sql.Identifier(what), ring)
    return value(conn, query)


# -- sessions in the middle of something ----------------------------------------------------------------------------


def in_background(work: Callable[[], T]) -> Future[T]:
    """Run in a thread of its own; the result, or what it raised, is in the future."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as exc:
            future.set_exception(exc)

    Thread(target=run, daemon=True).start()
    return future


def waits_for_a_cursor(session: Conn, query: LiteralString, conn: Conn, mover: Conn) -> Future[list[TupleRow]]:
    """A statement in the middle: it has found a registration, and waits for `mover` where it reads the cursor.

    The cursors are in a closed slot, so in `mover`'s transaction the next step of their ring moves them on.
    """
    begin(session)  # what a session has yet to compile, it waits for at other places
    with suppress(psycopg.Error):
        rows(session, query)
    rollback(session)
    step_until(conn, "cursor_ring", "switched")
    stepped(conn, "cursor_ring", "closed")
    begin(mover)
    mover.execute("lock table pgq.cursor_ring in access exclusive mode")
    waiting = in_background(lambda: rows(session, query))
    wait_blocked(conn, session.info.backend_pid)
    return waiting
