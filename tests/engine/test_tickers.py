"""Many queues and many tickers: a queue that fails, or that somebody has locked, is its own problem alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import LiteralString

import psycopg
import pytest

from tests.clusters import Database
from tests.engine.support import (
    Conn,
    begin,
    column,
    commit,
    create,
    deliver,
    drain,
    next_batch,
    refused,
    rollback,
    rotate_until,
    rows,
    send,
    value,
)


def _due(conn: Conn) -> list[str]:
    return column(conn, "select * from pgq.queues_due() order by 1")


def _corrupt(conn: Conn, queue: str) -> None:
    """A last tick from a cluster that is far ahead, as after restoring a dump."""
    conn.execute(
        "insert into pgq.tick_ring_1 select queue_id, 1000, now(), '900000000:900000000:', 0, 1, 1, true"
        " from pgq.queue where queue_name = %s",
        [queue],
    )


def test_one_failing_queue_does_not_stop_the_others(db: Database) -> None:
    warnings: list[tuple[str | None, str | None]] = []
    conn = db.connect()
    conn.add_notice_handler(lambda diag: warnings.append((diag.sqlstate, diag.message_primary)))
    for queue in ("a", "bad", "z"):
        create(conn, "c", queue=queue)
        send(conn, f"for {queue}", queue=queue)
    _corrupt(conn, "bad")
    assert _due(conn) == ["a", "bad", "z"]
    assert value(conn, "select pgq.ticker()") == 2
    ((sqlstate, message),) = warnings
    assert (sqlstate, str(message)[:30]) == ("PQ010", "queue bad: Invalid PgQ state: ")
    assert [drain(conn, queue=queue) for queue in ("a", "z")] == [["for a"], ["for z"]]
    for queue in ("a", "bad", "z"):
        assert rotate_until(conn, "closed", queue=queue)


def test_ticks_of_another_cluster_are_refused(db: Database) -> None:
    """No event would ever look new behind them: without a check, delivery would stop without a word."""
    conn = db.connect()
    create(conn, "c")
    send(conn, "x")
    _corrupt(conn, "q")
    for call in ("select pgq.ticker('q')", "select pgq.poke('q')", "select pgq.tick_now('q')"):
        with refused("PQ010", "Invalid PgQ state"):
            conn.execute(call.encode())
    assert next_batch(conn) is not None  # up to the bad tick, as it was there


def test_an_event_that_somebody_has_ticked_for_is_left_to_them(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    call = "select pgq.ticker_if_late('q', %s::interval)"
    last = value(conn, "select last_tick_id from pgq.get_queue_info('q')")
    send(conn, "a")
    assert value(conn, call, "1 minute") == 0
    assert value(conn, call, "0") == last + 1
    send(conn, "b")
    assert value(conn, call, None) == last + 2
    assert value(conn, call, None) is None
    assert drain(conn) == ["a", "b"]


def test_unknown_queues(db: Database) -> None:
    conn = db.connect()
    for query in (
        "select pgq.ticker(%s)",
        "select pgq.ticker_if_late(%s, null)",
        "select pgq.poke(%s)",
        "select pgq.tick_now(%s)",
    ):
        for queue in ("nosuch", "100% 'quoted'", None):
            with refused("PQ001", "no such queue"):
                conn.execute(query.encode(), [queue])


@pytest.mark.concurrency
@pytest.mark.parametrize("failing", [False, True], ids=["", "failing"])
def test_a_locked_queue_does_not_hold_up_the_others(db: Database, failing: bool) -> None:
    """Somebody has changed a setting and is at lunch, or is in the middle of a tick."""
    admin, conn = db.connect(), db.connect()
    for queue in ("a", "locked", "z", "bad"):
        create(conn, "c", queue=queue)
        send(conn, f"for {queue}", queue=queue)
    if failing:
        _corrupt(conn, "bad")
    begin(admin)
    value(admin, "select pgq.pause_queue('locked')")
    conn.execute("set lock_timeout = '5s'")
    assert value(conn, "select pgq.ticker()") == (2 if failing else 3)
    assert [drain(conn, queue=queue) for queue in ("a", "locked", "z")] == [["for a"], [], ["for z"]]
    rollback(admin)
    assert value(conn, "select pgq.ticker()") == 1
    assert drain(conn, queue="locked") == ["for locked"]


@pytest.mark.newest
@pytest.mark.slow
def test_ticks_of_many_queues_overflow_no_snapshot(db: Database) -> None:
    """Every subtransaction beyond the 64th that is remembered makes all snapshots slower, everywhere."""
    conn, observer = db.connect(), db.connect()
    if conn.info.server_version < 160000:
        pytest.skip("a server before 16 does not tell how many subtransactions a session has")
    queues = [f"q{number:02}" for number in range(70)]
    for queue in (*queues, "bad"):
        create(conn, queue=queue)
        send(conn, "x", queue=queue)
    _corrupt(conn, "bad")
    overflowed: LiteralString = (
        "select s.* from pg_stat_get_backend_idset() id, pg_stat_get_backend_subxact(id) s"
        " where pg_stat_get_backend_pid(id) = %s"
    )
    made = 0
    while (ticked := _tick_all(conn, observer, overflowed)) > 0:
        made += ticked
    assert made == len(queues)


def _tick_all(conn: Conn, observer: Conn, overflowed: LiteralString) -> int:
    begin(conn)
    made = int(value(conn, "select pgq.ticker()"))
    ((count, overflow),) = rows(observer, overflowed, conn.info.backend_pid)
    assert (count < 40, overflow) == (True, False)
    commit(conn)
    return made


@pytest.mark.concurrency
def test_ten_tickers_eight_producers_and_a_consumer(db: Database) -> None:
    """Each event arrives once, whoever ticks, and as soon as somebody has."""
    conn = db.connect()
    create(conn, "c")
    over = Event()

    def produce(number: int) -> list[str]:
        with psycopg.connect(db.dsn, autocommit=True) as session:
            for item in (sent := [f"{number}-{turn}" for turn in range(40)]):
                send(session, item)
            return sent

    def keep_ticking(number: int) -> int:
        with psycopg.connect(db.dsn, autocommit=True) as session:
            made = 0
            while not over.is_set():
                call: LiteralString = "select pgq.ticker('q')" if number % 2 else "select pgq.poke('q')"
                made += value(session, call) is not None
            return made

    with ThreadPoolExecutor(18) as pool:
        ticking = [pool.submit(keep_ticking, number) for number in range(10)]
        producing = [pool.submit(produce, number) for number in range(8)]
        found = []
        while not all(future.done() for future in producing):
            found += drain(conn)
        over.set()
        made = sum(future.result(30) for future in ticking)
    found += deliver(conn)
    assert sorted(found) == sorted(item for future in producing for item in future.result())
    assert made > 1


@pytest.mark.concurrency
def test_many_queues_are_ticked_in_one_go(db: Database) -> None:
    """Also while one of them is being dropped, and with a ring that has moved."""
    conn = db.connect()
    for number in range(5):
        create(conn, "c", queue=f"q{number}")
        send(conn, str(number), queue=f"q{number}")
    rotate_until(conn, "switched", queue="q1")
    assert value(conn, "select pgq.ticker()") == 5
    assert value(conn, "select pgq.ticker()") == 0
    assert [drain(conn, queue=f"q{number}") for number in range(5)] == [[str(number)] for number in range(5)]
