"""Retries and dead letters: to the consumer that failed, by policy, settled once."""

from __future__ import annotations

from typing import LiteralString

import psycopg
import pytest
from psycopg.rows import TupleRow

from tests.clusters import Database
from tests.engine.support import (
    QUEUE,
    ack,
    begin,
    commit,
    configure,
    create,
    deliver,
    finish,
    in_background,
    next_batch,
    receive,
    refused,
    rows,
    send,
    step,
    tick,
    value,
)
from tests.waiting import wait_blocked, wait_until

Conn = psycopg.Connection[TupleRow]
NACK = "select retried, dead from pgq.nack(%s, 'c', %s, %s, 'why', %s::interval, %s)"
RELEASE = "select pgq.release(%s)"
LETTERS = "select consumer_name, reason, attempts, ev_data from pgq.dead_letter order by dl_id"


@pytest.fixture
def conn(db: Database) -> Conn:
    connection = db.connect()
    create(connection, "c", "other")
    return connection


def failing(conn: Conn, *data: str) -> tuple[int, list[int]]:
    """An open batch with these events."""
    ids = send(conn, *data)
    tick(conn)
    batch, _ = receive(conn)
    assert batch is not None
    return batch, ids


def nack(conn: Conn, batch: int, ids: list[int], after: str | None = "0 s", dead: bool = False) -> TupleRow:
    return rows(conn, NACK, QUEUE, batch, ids, after, dead)[0]


def turn(conn: Conn) -> None:
    """Evacuate the queue's delay ring; something new in the next slot makes it worth it."""
    ring = f"delay_{value(conn, 'select queue_id from pgq.queue')}"
    assert step(conn, ring) == "switched"
    for _ in range(3):
        value(conn, "select pgq.send(%s, 'filler', ''::text, deliver_in => interval '1 day')", QUEUE)
    assert [step(conn, ring) for _ in range(2)] == ["closed", "truncated"]


def again(conn: Conn) -> list[tuple[str, int]]:
    """What is redelivered, with its number of retries."""
    wait_until(lambda: value(conn, RELEASE, QUEUE))
    tick(conn)
    batch = next_batch(conn)
    found = rows(conn, "select ev_data, ev_retry from pgq.get_batch_events(%s)", batch)
    finish(conn, batch)
    return [(data, retry) for data, retry in found]


def test_a_failed_event_comes_again_to_its_consumer_alone(conn: Conn) -> None:
    batch, (bad, _) = failing(conn, "bad", "good")
    assert nack(conn, batch, [bad]) == (1, 0)
    assert ack(conn, batch) == 1
    assert deliver(conn, "other") == ["bad", "good"]
    assert again(conn) == [("bad", 1)]
    assert deliver(conn, "other") == []


def test_said_twice_it_counts_once_and_what_is_not_in_the_batch_is_refused(conn: Conn) -> None:
    """Scenario 7."""
    batch, (one, two) = failing(conn, "one", "two")
    assert nack(conn, batch, [one, one], "1 hour") == (1, 0)
    assert nack(conn, batch, [one, two], "1 hour") == (1, 0)
    for ids in ([one, 999], [999]):
        with refused("PQ006"):
            nack(conn, batch, ids)
    assert nack(conn, batch, [], None) == (0, 0)
    assert value(conn, "select count(*) from pgq.retry_queue") == 2
    ack(conn, batch)
    with refused("PQ003"):
        nack(conn, batch, [one])


def test_said_twice_across_a_turn_of_the_ring_it_counts_once(conn: Conn) -> None:
    batch, (one,) = failing(conn, "one")
    assert nack(conn, batch, [one], "1 hour") == (1, 0)
    turn(conn)
    assert nack(conn, batch, [one], "1 hour") == (0, 0)


def test_a_rolled_back_nack_is_none(db: Database, conn: Conn) -> None:
    batch, ids = failing(conn, "x")
    other = db.connect()
    begin(other)
    assert nack(other, batch, ids) == (1, 0)
    other.rollback()
    assert value(conn, "select count(*) from pgq.retry_queue") == 0
    assert receive(conn) == (batch, ["x"])


def test_retries_used_up_make_a_dead_letter(conn: Conn) -> None:
    configure(conn, "max_retries", "2")
    batch, ids = failing(conn, "poison")
    for retry in (1, 2):
        assert nack(conn, batch, ids) == (1, 0)
        finish(conn, batch)
        wait_until(lambda: value(conn, RELEASE, QUEUE))
        tick(conn)
        batch = next_batch(conn)
        assert rows(conn, "select ev_retry from pgq.get_batch_events(%s)", batch) == [(retry,)]
    assert nack(conn, batch, ids) == (0, 1)
    assert nack(conn, batch, ids) == (0, 0)
    finish(conn, batch)
    assert rows(conn, LETTERS) == [("c", "why", 3, "poison")]


def test_a_policy_of_its_own(conn: Conn) -> None:
    value(
        conn,
        "select pgq.set_retry_policy(%s, 'c', 3, 'list', i_jitter => 0,"
        " i_delays => array['1 min', '1 hour']::interval[])",
        QUEUE,
    )
    policy = "pgq._retry_policy((select queue_id from pgq.queue), %s)"
    delays: LiteralString = f"select pgq._retry_delay({policy}, n) from generate_series(1, 3) n"
    assert [str(d) for (d,) in rows(conn, delays, "c")] == ["0:01:00", "1:00:00", "1:00:00"]
    for (delay,), base in zip(rows(conn, delays, "other"), (5, 10, 20), strict=True):
        assert 0.9 * base <= delay.total_seconds() <= 1.1 * base
    batch, ids = failing(conn, "x")
    nack(conn, batch, ids, None)
    assert value(
        conn, "select due - clock_timestamp() between interval '50 s' and interval '1 min' from pgq.delayed_event"
    )


@pytest.mark.parametrize(
    "arguments",
    ["i_max_retries => -1", "i_kind => 'never'", "i_base => interval '-1 s'", "i_jitter => 2", "i_kind => 'list'"],
)
def test_impossible_policies_are_refused(conn: Conn, arguments: str) -> None:
    with refused("PQ006"):
        conn.execute(f"select pgq.set_retry_policy('{QUEUE}', {arguments})".encode())


def test_pgqs_own_calls(conn: Conn) -> None:
    batch, (one, _) = failing(conn, "one", "two")
    retry = "select pgq.event_retry(%s, %s, 0)"
    assert [value(conn, retry, batch, one) for _ in range(2)] == [1, 0]
    with refused("PQ006", "event not found"):
        value(conn, retry, batch, 999)
    assert value(conn, "select pgq.batch_retry(%s, 0)", batch) == 1
    finish(conn, batch)
    assert again(conn) == [("one", 1), ("two", 1)]
    with refused("PQ003"):
        value(conn, "select pgq.batch_retry(%s, 0)", batch)
    raw = "select pgq.event_retry_raw(%s, 'c', now(), 666, now(), 0, 'raw', 'data', null, null, null, null)"
    assert value(conn, raw, QUEUE) == 666
    assert rows(conn, "select ev_id, ev_retry, ev_type from pgq.retry_queue") == [(666, 0, "raw")]
    assert again(conn) == [("data", 0)]


def test_a_dead_letter_is_replayed_once_to_who_gave_it_up(db: Database, conn: Conn) -> None:
    """Scenario 8: two sessions at the same time; one event, and an error for the second."""
    batch, ids = failing(conn, "x")
    assert nack(conn, batch, ids, None, True) == (0, 1)
    ack(conn, batch)
    assert deliver(conn, "other") == ["x"]
    letter = value(conn, "select dl_id from pgq.dead_letter")
    replay = "select pgq.dlq_replay(%s)"
    first, second = db.connect(), db.connect()
    begin(first)
    assert value(first, replay, letter) == ids[0]
    waiting = in_background(lambda: value(second, replay, letter))
    wait_blocked(conn, second.info.backend_pid)
    commit(first)
    with pytest.raises(psycopg.Error) as caught:
        waiting.result(30)
    assert caught.value.sqlstate == "PQ013"
    assert deliver(conn) == ["x"]
    assert deliver(conn, "other") == []
    assert rows(conn, LETTERS) == []


def test_replay_and_purge_by_filter(conn: Conn) -> None:
    batch, ids = failing(conn, *"abcd")
    nack(conn, batch, ids, None, True)
    ack(conn, batch)
    letters = [number for (number,) in rows(conn, "select dl_id from pgq.dead_letter order by 1")]
    assert value(conn, "select pgq.dlq_purge(i_dl_ids => %s)", letters[:1]) == 1
    assert value(conn, "select pgq.dlq_purge(i_older_than => interval '1 hour')") == 0
    assert value(conn, "select pgq.dlq_replay_all(%s, 'other')", QUEUE) == 0
    assert value(conn, "select pgq.dlq_replay_all(%s, i_type => 't')", QUEUE) == 3
    assert deliver(conn) == ["b", "c", "d"]
    assert value(conn, "select pgq.dlq_purge()") == 0


def test_dead_letters_outlive_consumer_and_queue(conn: Conn) -> None:
    """What only the consumer was to get becomes a dead letter: waiting for a retry, or back in the log and unread."""
    batch, ids = failing(conn, "buried", "waiting", "back", "read")
    assert nack(conn, batch, [ids[0]], None, True) == (0, 1)
    assert nack(conn, batch, [ids[1]], "1 hour") == (1, 0)
    assert nack(conn, batch, [ids[2]]) == (1, 0)
    ack(conn, batch)
    wait_until(lambda: value(conn, RELEASE, QUEUE))
    assert value(conn, "select pgq.unregister_consumer(%s, 'c')", QUEUE) == 1
    expected = [
        ("c", "why", 1, "buried"),
        ("c", "its consumer was unregistered", 1, "waiting"),
        ("c", "its consumer was unregistered", 1, "back"),
    ]
    assert rows(conn, LETTERS) == expected
    assert value(conn, "select pgq.drop_queue(%s, true)", QUEUE) == 1
    assert [step(conn, "dead_ring") for _ in range(2)] == ["switched", "closed"]
    assert rows(conn, LETTERS) == expected
    letter = value(conn, "select min(dl_id) from pgq.dead_letter")
    with refused("PQ001"):
        value(conn, "select pgq.dlq_replay(%s)", letter)
    assert value(conn, "select pgq.dlq_purge(%s)", QUEUE) == 3
    assert step(conn, "dead_ring") == "truncated"
    assert rows(conn, LETTERS) == []
    assert [step(conn, "dead_ring") for _ in range(3)] == ["switched", "closed", "truncated"]
    assert value(conn, "select count(*) from pgq.dead_ring") == 0


def test_a_thousand_retries_are_back_within_one_release(conn: Conn) -> None:
    """Scenario 10: PgQue's maintenance moves twenty a minute."""
    with conn.transaction():
        ids = value(
            conn, "select pgq.send_batch(%s, 't', array(select n::text from generate_series(1, 1000) n))", QUEUE
        )
    tick(conn)
    batch = next_batch(conn)
    assert nack(conn, batch, ids) == (1000, 0)
    finish(conn, batch)
    wait_until(lambda: value(conn, RELEASE, QUEUE) == 1000)
    assert [int(data) for data in deliver(conn)] == list(range(1, 1001))


def test_a_retry_of_what_seek_brought_back_counts_once(conn: Conn) -> None:
    """After a seek back, an event and its retry are in one batch: the later one counts."""
    batch, ids = failing(conn, "x")
    nack(conn, batch, ids)
    ack(conn, batch)
    wait_until(lambda: value(conn, RELEASE, QUEUE))
    tick(conn)
    value(conn, "select pgq.seek(%s, 'c', 'earliest')", QUEUE)
    batch = value(conn, "select batch_id from pgq.open_batch(%s, 'c')", QUEUE)
    assert rows(conn, "select ev_retry from pgq.get_batch_events(%s) order by 1 nulls first", batch) == [(None,), (1,)]
    assert nack(conn, batch, ids, "1 hour") == (1, 0)
    assert value(conn, "select ev_retry from pgq.retry_queue") == 2
