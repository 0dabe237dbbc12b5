"""receive and ack: a batch in pieces, each of them again until it is acknowledged, none skipped."""

from __future__ import annotations

from typing import LiteralString

import pytest

from tests.clusters import Database
from tests.engine.support import (
    Conn,
    ack,
    batch_data,
    begin,
    commit,
    create,
    drain,
    finish,
    force_tick,
    in_background,
    next_batch,
    receive,
    refused,
    rollback,
    rotate,
    rotated,
    send,
    step,
    tick,
    value,
)
from tests.waiting import wait_blocked


def _numbers(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last + 1)]


def _send_numbers(conn: Conn, first: int, last: int) -> list[int]:
    """Events with these numbers as data, in one window; their ids."""
    query: LiteralString = "select pgq.send_batch('q', 't', %s::text[])"
    ids: list[int] = value(conn, query, _numbers(first, last))
    tick(conn)
    return ids


def test_send_105_receive_100(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    _send_numbers(conn, 1, 105)
    batch, data = receive(conn)
    assert data == _numbers(1, 100)
    assert ack(conn, batch) == 0
    assert receive(conn) == (batch, _numbers(101, 105))
    assert ack(conn, batch) == 1
    assert receive(conn) == (None, [])


def test_the_same_again_until_it_is_acknowledged(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    _send_numbers(conn, 1, 10)
    first = receive(conn, n=3)
    _send_numbers(conn, 11, 12)
    assert receive(conn, n=3) == first
    assert receive(conn, n=5)[1] == _numbers(1, 5)
    assert receive(conn, n=2)[1] == _numbers(1, 2)
    assert ack(conn, first[0]) == 0  # what was handed out last
    assert receive(conn, n=100)[1] == _numbers(3, 10)
    assert ack(conn, first[0]) == 1
    assert receive(conn)[1] == _numbers(11, 12)


def test_an_acknowledgement_that_was_rolled_back(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    _send_numbers(conn, 1, 4)
    batch, _ = receive(conn, n=2)
    begin(conn)
    ack(conn, batch)
    assert receive(conn, n=2)[1] == ["3", "4"]
    rollback(conn)
    assert receive(conn, n=2) == (batch, ["1", "2"])


def test_acknowledge_up_to_an_event(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    ids = _send_numbers(conn, 1, 10)
    batch, _ = receive(conn, n=6)
    assert ack(conn, batch, ids[1]) == 0
    assert receive(conn, n=6) == (batch, _numbers(3, 8))
    for beyond in (ids[8], ids[9], ids[0], 0, 10**15):
        with refused("PQ006", f"cannot acknowledge up to event {beyond}"):
            ack(conn, batch, beyond)
    assert ack(conn, batch, ids[7]) == 0
    assert receive(conn, n=6)[1] == _numbers(9, 10)
    assert ack(conn, batch, ids[9]) == 0
    assert batch_data(conn, batch or 0) == []
    assert ack(conn, batch) == 1


def test_progress_is_part_of_every_way_to_read_on(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    ids = _send_numbers(conn, 1, 6)
    batch = next_batch(conn)
    assert ack(conn, batch, ids[1]) == 0
    assert next_batch(conn) == batch
    assert batch_data(conn, batch) == _numbers(3, 6)
    assert receive(conn, n=2) == (batch, ["3", "4"])
    assert ack(conn, batch) == 0
    assert value(conn, "select acked_ev_id from pgq.open_batch('q', 'c')") == ids[3]
    assert batch_data(conn, batch) == _numbers(5, 6)
    finish(conn, batch)
    assert receive(conn) == (None, [])


def test_a_batch_of_exactly_the_number_asked_for(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    _send_numbers(conn, 1, 4)
    batch, data = receive(conn, n=4)
    assert data == _numbers(1, 4)
    assert ack(conn, batch) == 0
    _send_numbers(conn, 5, 6)
    following, data = receive(conn, n=4)
    assert (following != batch, data) == (True, ["5", "6"])
    assert ack(conn, following) == 1


def test_an_empty_batch_is_not_an_empty_queue(db: Database) -> None:
    """Empty windows, before, between and after, are passed in one call."""
    conn = db.connect()
    create(conn, "c", "d")
    owner = value(conn, "select max(sub_id) from pgq.registration")
    for data in ("1", "2", "3"):
        force_tick(conn)
        value(conn, "select pgq.insert_event_raw('q', null, null, %s, 1, 't', 'd', null, null, null, null)", owner)
        tick(conn)
        send(conn, data)
        tick(conn)
        force_tick(conn)
    found = []
    while (received := receive(conn, n=1))[0]:
        found += received[1]
        assert ack(conn, received[0]) in (0, 1)
    assert found == ["1", "2", "3"]
    assert drain(conn, "d") == ["d", "1", "d", "2", "d", "3"]


def test_a_consumer_that_only_receives_lets_go_of_old_slots(db: Database) -> None:
    """Passing empty windows is progress, and is kept."""
    conn = db.connect()
    create(conn, "c")
    _send_numbers(conn, 1, 3)
    assert ack(conn, receive(conn)[0]) == 1
    rotated(conn, "switched", "closed", "waiting")
    newest = tick(conn)
    assert receive(conn) == (None, [])
    assert value(conn, "select last_tick from pgq.get_consumer_info('q', 'c')") == newest
    rotated(conn, "truncated")


def test_windows_are_merged_up_to_the_number_asked_for(db: Database) -> None:
    """Ten batches waiting need no ten calls."""
    conn = db.connect()
    create(conn, "c")
    for number in range(1, 11):
        _send_numbers(conn, number, number)
    assert receive(conn, n=7)[1] == _numbers(1, 7)
    assert ack(conn, receive(conn, n=7)[0]) == 0
    assert receive(conn, n=7)[1] == _numbers(8, 10)


def test_numbers_that_make_no_sense(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    for bad in (0, -5, None):
        with refused("PQ006", "must be positive"):
            value(conn, "select count(*) from pgq.receive('q', 'c', %s)", bad)


# -- whose batch ----------------------------------------------------------------------------------------------------


def test_the_batch_of_another_consumer_is_refused(db: Database) -> None:
    conn = db.connect()
    create(conn, "c", "d")
    create(conn, "c", queue="other")
    _send_numbers(conn, 1, 2)
    mine, _ = receive(conn)
    theirs, _ = receive(conn, "d")
    for consumer, queue, batch in (("c", "q", theirs), ("d", "q", mine), ("c", "other", mine), ("c", "q", None)):
        with refused("PQ003", "is not open for"):
            ack(conn, batch, consumer=consumer, queue=queue)
    assert [ack(conn, mine), ack(conn, theirs, consumer="d")] == [1, 1]
    for batch in (mine, theirs, 10**15):
        with refused("PQ003"):
            ack(conn, batch)
    assert receive(conn) == (None, [])


@pytest.mark.concurrency
def test_only_one_of_two_workers_acknowledges(db: Database) -> None:
    """Both have the same events; the second one learns that its batch is finished."""
    first, second, conn = db.connect(), db.connect(), db.connect()
    create(conn, "c")
    _send_numbers(conn, 1, 3)
    batch, data = receive(first)
    assert receive(second) == (batch, data)
    begin(first)
    assert ack(first, batch) == 1
    waiting = in_background(lambda: ack(second, batch))
    wait_blocked(conn, second.info.backend_pid)
    commit(first)
    with refused("PQ003"):
        waiting.result(30)


def test_progress_outlives_rotation_and_the_session(db: Database) -> None:
    """A killed consumer goes on in the middle of its batch, wherever rotation has carried its cursor and ticks."""
    conn = db.connect()
    create(conn, "c")
    _send_numbers(conn, 1, 2500)
    found = []
    for turn in range(25):
        worker = db.connect()
        batch, data = receive(worker, n=100)
        found += data
        assert ack(worker, batch) == 0
        receive(worker, n=50)  # handed out, and never acknowledged
        value(conn, "select pg_terminate_backend(%s, 5000)", worker.info.backend_pid)
        send(conn, f"later {turn}")
        tick(conn)
        rotate(conn)
        for ring in ("tick_ring", "cursor_ring") * 3:
            step(conn, ring)
    assert found == _numbers(1, 2500)
    assert len(drain(conn)) == 25
