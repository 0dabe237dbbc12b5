"""A batch with its events in one call, and the tick before it."""

from __future__ import annotations

from typing import Any, LiteralString

import pytest

from tests.clusters import Database
from tests.engine.support import (
    QUEUE,
    Conn,
    ack,
    begin,
    commit,
    configure,
    create,
    finish,
    force_tick,
    in_background,
    next_batch,
    refused,
    rollback,
    rotate_until,
    rows,
    send,
    send_and_tick,
    tick,
    value,
)
from tests.waiting import wait_until

COLUMNS = 9
ID, DATA = 9, 14


WAYS = ["composed", "generated", "peeked"]
_way = WAYS[0]


@pytest.fixture(params=WAYS, autouse=True)
def way(request: pytest.FixtureRequest) -> str:
    """open_batch_events, or the function that is generated for the queue, or that and opening: they do the same."""
    global _way
    _way = str(request.param)
    return _way


def opened(conn: Conn, at_once: int = 500, *, ticks: bool | None = False) -> tuple[Any, Any, list[Any]]:
    """Batch, whether its events are all there, and their data."""
    if _way == "composed":
        found = rows(conn, "select * from pgq.open_batch_events(%s, 'c', 100, %s, %s)", QUEUE, at_once, ticks)
    else:
        found = peek(conn, at_once, ticks=ticks, peek=_way == "peeked")
    if not found:
        return None, None, []
    *events, last = found
    if last[0] < 0:
        last = value(conn, "select pgq.open_peeked(%s, 'c', %s, %s, %s)", QUEUE, last[0], last[2], last[1]), *last[1:]
    assert all(row[:COLUMNS] == (None,) * COLUMNS for row in events)
    assert last[ID:] == (None,) * 10
    assert [row[ID] for row in events] == sorted(row[ID] for row in events)
    return last[0], last[8], [row[DATA] for row in events]


def peek(conn: Conn, at_once: int = 500, *, ticks: bool | None = False, peek: bool = True) -> list[Any]:
    """The rows of the queue's own function."""
    return rows(conn, f"select * from pgq.{opener(conn)}('c', 100, %s, %s, %s)", at_once, ticks, peek)


def newest(conn: Conn) -> int:
    return int(value(conn, "select last_tick_id from pgq.get_queue_info(%s)", QUEUE))


def opener(conn: Conn) -> str:
    return str(value(conn, "select pgq.opener_function(%s)", QUEUE))


@pytest.fixture
def conn(db: Database) -> Conn:
    own = db.connect()
    create(own, "c")
    return own


def test_few_events_come_with_their_batch(conn: Conn) -> None:
    assert opened(conn) == (None, None, [])
    send(conn, "a", "b")
    assert opened(conn) == (None, None, [])
    tick(conn)
    batch, whole, data = opened(conn)
    assert (whole, data) == (True, ["a", "b"])
    assert opened(conn) == (batch, True, ["a", "b"])
    assert rows(conn, "select ev_id, ev_txid, ev_data from pgq.get_batch_events(%s)", batch) == [
        (row[ID], row[11], row[DATA]) for row in rows(conn, "select * from pgq.open_batch_events(%s, 'c')", QUEUE)[:-1]
    ]
    ack(conn, batch, 1)
    assert opened(conn) == (batch, True, ["b"])
    finish(conn, batch)
    assert opened(conn) == (None, None, [])


def test_of_many_events_it_says_that_they_are_to_be_read_in_another_way(conn: Conn) -> None:
    send(conn, *"abcdef")
    tick(conn)
    batch, whole, data = opened(conn, 5)
    assert (whole, data) == (False, [])
    assert opened(conn, 0) == (batch, False, [])
    assert opened(conn, 7) == (batch, True, list("abcdef"))


def test_ids_say_little_about_how_many_they_are(db: Database, conn: Conn) -> None:
    """A bulk load that commits long after its ids were drawn: the first ones come, and it is not whole."""
    late = db.connect()
    begin(late)
    send(late, *map(str, range(10)))
    send(conn, "x")
    tick(conn)
    finish(conn, next_batch(conn))
    commit(late)
    tick(conn)
    _, whole, data = opened(conn, 5)
    assert (whole, data) == (False, [str(number) for number in range(5)])
    assert opened(conn, 11)[1:] == (True, [str(number) for number in range(10)])


def test_an_empty_window_and_events_in_two_slots(conn: Conn) -> None:
    value(conn, "select pgq.force_tick(%s)", QUEUE)
    batch, whole, data = opened(conn)
    assert (whole, data) == (True, [])
    finish(conn, batch)
    configure(conn, "rotation_period", "0")
    send(conn, "before")
    rotate_until(conn, "switched")
    send(conn, "behind")
    tick(conn)
    assert opened(conn)[1:] == (True, ["before", "behind"])


def test_it_ticks_for_an_event_that_was_announced(db: Database, conn: Conn) -> None:
    send(conn, "a")
    batch, _, data = opened(conn, ticks=True)
    assert data == ["a"]
    finish(conn, batch)
    newest = value(conn, "select last_tick_id from pgq.get_queue_info(%s)", QUEUE)
    assert opened(conn, ticks=True) == (None, None, [])
    assert value(conn, "select last_tick_id from pgq.get_queue_info(%s)", QUEUE) == newest
    # what an open transaction has drawn is no event yet, and one that began before is found when it is
    late = db.connect()
    begin(late)
    send(late, "late")
    assert opened(conn, ticks=True) == (None, None, [])
    send(conn, "b")
    batch, _, data = opened(conn, ticks=True)
    assert data == ["b"]
    finish(conn, batch)
    commit(late)
    assert opened(conn, ticks=True)[2] == ["late"]


def test_it_waits_for_nobody_who_ticks_and_ticks_no_paused_queue(db: Database, conn: Conn) -> None:
    send(conn, "a")
    other = db.connect()
    begin(other)
    value(other, "select pgq.ticker(%s)", QUEUE)
    assert opened(conn, ticks=True) == (None, None, [])
    rollback(other)
    value(conn, "select pgq.pause_queue(%s)", QUEUE)
    assert opened(conn, ticks=True) == (None, None, [])
    value(conn, "select pgq.resume_queue(%s)", QUEUE)
    configure(conn, "ticker_max_count", "2")
    configure(conn, "ticker_max_lag", "1 hour")
    assert opened(conn, ticks=True) == (None, None, [])
    send(conn, "b")
    assert opened(conn, ticks=True)[2] == ["a", "b"]


def test_waiting_for_another_worker_it_holds_up_no_tick(db: Database, conn: Conn, way: str) -> None:
    send_and_tick(conn, 1)
    worker = db.connect()
    begin(worker)
    batch = next_batch(worker)
    send(conn, "a")
    if way == "peeked":
        # nobody can know of a batch whose opening is not committed; its end is what counts
        *_, (batch_too, upto, last, *_) = peek(conn)
        finish(worker, batch)
        commit(worker)
        with refused("PQ003"):
            value(conn, "select pgq.ack_peeked(%s, 'c', %s, %s, %s)", QUEUE, batch_too, last, upto)
        return
    waiting = in_background(lambda: opened(db.connect(), ticks=True))
    stuck: LiteralString = "wait_event = 'transactionid' and datname = current_database()"
    wait_until(lambda: value(conn, "select count(*) from pg_stat_activity where " + stuck))
    begin(conn)
    conn.execute("set local lock_timeout = '5s'")
    assert tick(conn) is not None
    commit(conn)
    finish(worker, batch)
    commit(worker)
    assert waiting.result(30)[2] == ["a"]


def test_a_rolled_back_tick_takes_its_batch_along(conn: Conn) -> None:
    send(conn, "a")
    begin(conn)
    assert opened(conn, ticks=True)[2] == ["a"]
    rollback(conn)
    assert opened(conn) == (None, None, [])
    assert opened(conn, ticks=True)[2] == ["a"]


def test_what_was_peeked_at_is_acknowledged_or_opened_once(conn: Conn) -> None:
    send(conn, "a")
    *_, (batch, upto, last, *_) = peek(conn, ticks=True)
    assert batch < 0
    assert value(conn, "select current_batch from pgq.get_consumer_info(%s, 'c')", QUEUE) is None
    assert [row[DATA] for row in peek(conn)] == ["a", None]  # nothing has moved
    send(conn, "b")
    tick(conn)
    assert [row[DATA] for row in peek(conn)] == ["a", "b", None]
    arguments = QUEUE, batch, last, upto
    with conn.transaction(force_rollback=True):
        real = value(conn, "select pgq.open_peeked(%s, 'c', %s, %s, %s)", *arguments)
        assert rows(conn, "select ev_data from pgq.get_batch_events(%s)", real) == [("a",)]
        assert [row[DATA] for row in peek(conn)] == ["a", None]
        with refused("PQ003"), conn.transaction():
            value(conn, "select pgq.ack_peeked(%s, 'c', %s, %s, %s)", *arguments)
        finish(conn, real)
        with refused("PQ003"), conn.transaction():
            value(conn, "select pgq.open_peeked(%s, 'c', %s, %s, %s)", *arguments)
    assert value(conn, "select pgq.ack_peeked(%s, 'c', %s, %s, %s)", *arguments) == 1
    for call in ("ack", "open"):
        now = upto, upto + 1
        for wrong in (
            (batch, last, upto),
            (batch, *now),
            (batch - 1, last, upto + 1),
            (None, *now),
            (batch - 1, upto, None),
        ):
            with refused("PQ003"):
                value(conn, f"select pgq.{call}_peeked(%s, 'c', %s, %s, %s)".encode(), QUEUE, *wrong)  # type: ignore[arg-type]
    assert [row[DATA] for row in peek(conn)] == ["b", None]


def test_a_consumer_that_was_moved_does_not_acknowledge_what_it_peeked_at(conn: Conn) -> None:
    send_and_tick(conn, 1)
    send_and_tick(conn, 1)
    *_, (batch, upto, last, *_) = peek(conn)
    value(conn, "select pgq.seek(%s, 'c', 'latest')", QUEUE)
    value(conn, "select pgq.seek(%s, 'c', 'earliest')", QUEUE)
    with refused("PQ003"):
        value(conn, "select pgq.ack_peeked(%s, 'c', %s, %s, %s)", QUEUE, batch, last, upto)
    assert len(peek(conn)) == 3


def test_nor_does_one_that_was_registered_anew_further_back(conn: Conn) -> None:
    """Its positions begin with one again."""
    first = newest(conn)
    for _ in range(2):
        send_and_tick(conn, 1)
    value(conn, "select pgq.register_consumer_at(%s, 'new', %s)", QUEUE, first + 1)
    *_, (batch, upto, last, *_) = rows(conn, f"select * from pgq.{opener(conn)}('new', 100, 500, false, true)")
    value(conn, "select pgq.unregister_consumer(%s, 'new')", QUEUE)
    value(conn, "select pgq.register_consumer_at(%s, 'new', %s)", QUEUE, first)
    for call in ("ack", "open"):
        with refused("PQ003"):
            value(conn, f"select pgq.{call}_peeked(%s, 'new', %s, %s, %s)".encode(), QUEUE, batch, last, upto)  # type: ignore[arg-type]
    assert len(rows(conn, f"select * from pgq.{opener(conn)}('new', 100, 500, false, true)")) == 3


def test_peeking_holds_up_no_tick_and_waits_for_nobody(db: Database, conn: Conn) -> None:
    """More than comes at once is left to the parts, which wait for another worker of the consumer."""
    send(conn, *"abc")
    worker = db.connect()
    begin(worker)
    value(worker, "select pgq.next_batch(%s, 'c')", QUEUE)
    value(worker, "select sub_id from pgq.registration for update")
    begin(conn)
    conn.execute("set local lock_timeout = '5s'")
    assert peek(conn, 2, ticks=True) == []
    commit(conn)
    rollback(worker)
    assert opened(conn, 4, ticks=True)[2] == ["a", "b", "c"]


def test_what_is_refused(conn: Conn) -> None:
    for call in ("0, 1", "null, 1", "1, -1", "1, null"):
        with refused("PQ006"):
            conn.execute(f"select pgq.open_batch_events('q', 'c', {call})".encode())
    with refused("PQ002"):
        conn.execute("select pgq.open_batch_events('q', 'nobody', i_tick => true)")
    with refused("PQ001"):
        conn.execute("select pgq.open_batch_events('nothing', 'c', i_tick => true)")


def test_a_transaction_that_stays_open_elsewhere_delays_nothing(db: Database, conn: Conn) -> None:
    writer = db.connect()
    begin(writer)
    value(writer, "select pg_current_xact_id()")
    for data in "abc":
        send(conn, data)
        batch, _, found = opened(conn, ticks=True)
        assert found == [data]
        finish(conn, batch)
    commit(writer)
    assert opened(conn, ticks=True) == (None, None, [])


def test_in_a_rush_it_ticks_for_new_ids_alone(db: Database, conn: Conn, way: str) -> None:
    late = db.connect()
    begin(late)
    send(late, "late")
    force_tick(conn)
    send(conn, "a")
    batch, _, data = opened(conn, ticks=None)
    if way == "composed":
        assert data == []
        return
    assert data == ["a"]
    finish(conn, batch)
    commit(late)
    assert opened(conn, ticks=None) == (None, None, [])
    assert opened(conn, ticks=True)[2] == ["late"]


def test_windows_are_merged_up_to_the_limit(conn: Conn) -> None:
    send_and_tick(conn, 3)
    assert opened(conn)[1:] == (True, ["1", "2", "3"])


def test_many_windows_are_not_merged_beyond_it(conn: Conn) -> None:
    send_and_tick(conn, 101)
    batch, whole, data = opened(conn)
    assert (whole, len(data)) == (True, 100)
    finish(conn, batch)
    assert opened(conn)[2] == ["101"]


def test_a_dropped_queue_leaves_no_function_behind(conn: Conn) -> None:
    query = "select count(*) from pg_proc where proname ~ '^open_[0-9]'"
    assert value(conn, query) == 1
    assert value(conn, "select queue_id from pgq.queue where queue_name = %s", QUEUE) == 1
    value(conn, "select pgq.drop_queue(%s, true)", QUEUE)
    assert value(conn, query) == 0
