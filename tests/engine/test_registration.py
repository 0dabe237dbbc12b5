"""Registering, moving and removing consumers, also while everybody else is at work."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any, LiteralString

import pytest

from tests.clusters import Database
from tests.engine.support import (
    Conn,
    batch_data,
    begin,
    column,
    commit,
    create,
    deliver,
    drain,
    finish,
    force_tick,
    in_background,
    next_batch,
    receive,
    refused,
    rollback,
    rotated,
    rows,
    send,
    step,
    take,
    tick,
    value,
)
from tests.waiting import wait_blocked


def _register(conn: Conn, consumer: str | None = "c", queue: str | None = "q") -> Any:
    return value(conn, "select pgq.register_consumer(%s, %s)", queue, consumer)


def _register_at(conn: Conn, at: int | None, consumer: str = "c") -> Any:
    return value(conn, "select pgq.register_consumer_at('q', %s, %s)", consumer, at)


def _seek(conn: Conn, target: Any, consumer: str = "c") -> Any:
    return value(conn, "select pgq.seek('q', %s, %s)", consumer, target)


def _ticked(conn: Conn, *data: str) -> list[int]:
    """An event and its tick, for each; the ids of the ticks."""
    return [(send(conn, item), tick(conn))[1] for item in data]


# -- registering ----------------------------------------------------------------------------------------------------


def test_a_consumer_starts_at_the_newest_tick(db: Database) -> None:
    conn = db.connect()
    create(conn)
    _ticked(conn, "before")
    send(conn, "not ticked yet")
    assert (_register(conn), _register(conn)) == (1, 0)
    assert deliver(conn) == ["not ticked yet"]
    assert _register(conn) == 0
    assert drain(conn) == []


def test_a_consumer_starts_at_a_given_tick(db: Database) -> None:
    conn = db.connect()
    create(conn)
    ticks = _ticked(conn, "1", "2", "3")
    assert _register_at(conn, ticks[0]) == 1
    assert drain(conn) == ["2", "3"]
    assert _register_at(conn, None) == 0  # stays
    assert drain(conn) == []
    assert _register_at(conn, ticks[1]) == 0  # moves
    assert drain(conn) == ["3"]
    for unknown in (0, -1, 999):
        with refused("PQ008", f"cannot reposition, tick not found: {unknown}"):
            _register_at(conn, unknown)


def test_unregistering(db: Database) -> None:
    conn = db.connect()
    create(conn, "c", "d")
    _ticked(conn, "1")
    batch = next_batch(conn)
    assert [value(conn, "select pgq.unregister_consumer('q', 'c')") for _ in range(2)] == [1, 0]
    assert value(conn, "select pgq.unregister_consumer('nosuch', 'c')") == 0
    with refused("PQ002", "Not subscriber to queue: q/c"):
        next_batch(conn)
    with refused("PQ003"):
        batch_data(conn, batch)
    assert value(conn, "select pgq.finish_batch(%s)", batch) == 0
    assert drain(conn, "d") == ["1"]
    assert _register(conn) == 1  # from the newest tick on, not from where it was
    assert drain(conn) == []


CALLS: list[LiteralString] = [
    "select pgq.next_batch(%s, %s)",
    "select pgq.next_batch_info(%s, %s)",
    "select pgq.next_batch_custom(%s, %s, null, null, null)",
    "select pgq.open_batch(%s, %s)",
    "select * from pgq.receive(%s, %s)",
    "select pgq.ack(%s, %s, 1)",
    "select pgq.seek(%s, %s, 1)",
    "select pgq.seek(%s, %s, now())",
    "select pgq.seek(%s, %s, 'latest')",
]


def test_unknown_queues_and_consumers(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    for call in CALLS:
        for queue, consumer, sqlstate in (("nosuch", "c", "PQ001"), ("q", "nosuch", "PQ002"), (None, None, "PQ001")):
            with refused(sqlstate, f"Not subscriber to queue: {queue or 'NULL'}/{consumer or 'NULL'}"):
                conn.execute(call, [queue, consumer])


def test_registering_on_an_unknown_queue(db: Database) -> None:
    conn = db.connect()
    for queue in ("nosuch", None):
        with refused("PQ001", "Event queue not created yet"):
            _register(conn, queue=queue)
    create(conn)
    for bad in (None, "", " padded ", "a\nb", "x" * 129):
        with refused("PQ006"):
            _register(conn, bad)


@pytest.mark.concurrency
def test_eight_parallel_first_registrations_while_others_consume(db: Database) -> None:
    """One is created, the others find it; nobody deadlocks, nobody sees a unique violation."""
    conn = db.connect()
    create(conn, "busy", "busier")
    sessions = [db.connect() for _ in range(8)]
    workers = {name: db.connect() for name in ("busy", "busier")}
    barrier = Barrier(10)

    def register(session: Conn) -> list[int]:
        barrier.wait(30)
        return [_register(session, f"new {turn}") for turn in range(10)]

    def work(name: str) -> list[str]:
        barrier.wait(30)
        found = []
        for turn in range(20):
            send(workers[name], f"{name} {turn}")
            found += deliver(workers[name], name)
        return found

    with ThreadPoolExecutor(10) as pool:
        working = [pool.submit(work, name) for name in workers]
        results = list(pool.map(register, sessions))
        found = [future.result(30) for future in working]
    sent = sorted(f"{name} {turn}" for name in workers for turn in range(20))
    assert [sorted(got + drain(conn, name)) for got, name in zip(found, workers, strict=True)] == [sent, sent]
    assert [sorted(turn) for turn in zip(*results, strict=True)] == [[0] * 7 + [1]] * 10
    assert value(conn, "select count(*) from pgq.get_consumer_info('q')") == 12


@pytest.mark.concurrency
def test_a_registration_whose_twin_rolls_back(db: Database) -> None:
    first, second, conn = db.connect(), db.connect(), db.connect()
    create(conn)
    begin(first)
    assert _register(first) == 1
    waiting = in_background(lambda: _register(second))
    wait_blocked(conn, second.info.backend_pid)
    rollback(first)
    assert waiting.result(30) == 1


# -- seeking --------------------------------------------------------------------------------------------------------


def test_seek_back_redelivers_and_seek_forward_skips(db: Database) -> None:
    conn = db.connect()
    create(conn, "c", "d")
    ticks = _ticked(conn, "1", "2", "3", "4")
    assert drain(conn) == ["1", "2", "3", "4"]
    assert _seek(conn, ticks[1]) == ticks[1]
    assert drain(conn) == ["3", "4"]
    assert _seek(conn, ticks[2], "d") == ticks[2]
    assert drain(conn, "d") == ["4"]
    assert _seek(conn, str(ticks[0])) == ticks[0]
    assert take(conn) == ["2"]
    assert _seek(conn, "latest") == ticks[3]
    assert drain(conn) == []
    assert _seek(conn, "earliest") == 1
    assert drain(conn) == ["1", "2", "3", "4"]


def test_seek_drops_the_open_batch(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    ticks = _ticked(conn, "1", "2")
    batch = next_batch(conn)
    _seek(conn, ticks[0])
    for gone in ("select pgq.ack('q', 'c', %s)", "select pgq.batch_event_sql(%s)"):
        with refused("PQ003"):
            conn.execute(gone.encode(), [batch])
    assert value(conn, "select pgq.finish_batch(%s)", batch) == 0
    received, data = receive(conn)
    assert (data, received != batch) == (["2"], True)


def test_seek_to_a_time(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    ticks = _ticked(conn, "1", "2", "3")
    times = column(conn, "select tick_time from pgq.tick order by tick_id")
    assert drain(conn) == ["1", "2", "3"]
    assert _seek(conn, times[2]) == ticks[1]
    assert drain(conn) == ["3"]
    middle = times[1] + (times[2] - times[1]) / 2
    assert _seek(conn, middle) == ticks[0]
    assert drain(conn) == ["2", "3"]
    assert _seek(conn, middle.isoformat()) == ticks[0]
    assert _seek(conn, "infinity") == ticks[2]
    for before in ("2001-01-01", "-infinity"):
        with refused("PQ008", "no position at or before"):
            _seek(conn, before)
    for nonsense in ("", "soon", "-5", "1.5", "9" * 30, "2020-13-01", "2020-01-01 Nowhere/City", None):
        with refused("PQ006"):
            _seek(conn, nonsense)


def test_seek_below_what_is_gone(db: Database) -> None:
    """Rotation records how far events are gone, and no position below is given out."""
    conn = db.connect()
    create(conn, "c")
    ticks = _ticked(conn, "1", "2")
    drain(conn)
    rotated(conn, "switched", "closed")
    newest = tick(conn)
    assert drain(conn) == []
    rotated(conn, "truncated")
    for gone in (1, *ticks):
        with refused("PQ008", f"tick not found: {gone}"):
            _seek(conn, gone)
        with refused("PQ008"):
            _register_at(conn, gone, "new")
    with refused("PQ008", "no position at or before"):
        _seek(conn, column(conn, "select tick_time from pgq.tick where tick_id = %s", ticks[0])[0])
    assert _seek(conn, "earliest") == newest
    _ticked(conn, "3")
    assert drain(conn) == ["3"]


def test_positions_survive_evacuation(db: Database) -> None:
    """Seek finds a tick wherever it is now, and says so when it was not kept: it never guesses."""
    conn = db.connect()
    create(conn, "c", "stuck")
    first = force_tick(conn)
    _ticked(conn, *map(str, range(30)))
    drain(conn)
    for ring in ("tick_ring", "cursor_ring") * 6:
        step(conn, ring)
    known = column(conn, "select tick_id from pgq.tick order by tick_id")
    assert known[0] == 1
    assert len(known) < 30
    for target in known:
        assert _seek(conn, target) == target
        assert drain(conn) == [str(number) for number in range(max(target - first, 0), 30)]
    with refused("PQ008"):
        _seek(conn, next(number for number in range(2, 30) if number not in known))
    assert len(drain(conn, "stuck")) == 30


@pytest.mark.concurrency
def test_a_seek_back_is_not_overtaken_by_a_truncation(db: Database) -> None:
    """Maintenance keeps away until it commits, and then sees it."""
    seeker, conn = db.connect(), db.connect()
    create(conn, "c")
    ticks = _ticked(conn, "1", "2")
    drain(conn)
    rotated(conn, "switched", "closed")
    begin(seeker)
    assert _seek(seeker, ticks[0]) == ticks[0]
    tick(conn)
    rotated(conn, "busy")
    commit(seeker)
    rotated(conn, "waiting")
    assert drain(conn) == ["2"]


@pytest.mark.concurrency
def test_a_seek_waits_for_the_consumer_at_work(db: Database) -> None:
    """Its transaction is the one that counts; the seek comes after it."""
    worker, seeker, conn = db.connect(), db.connect(), db.connect()
    create(conn, "c")
    _ticked(conn, "1", "2")
    begin(worker)
    assert take(worker) == ["1"]
    waiting = in_background(lambda: _seek(seeker, 1))
    assert wait_blocked(conn, seeker.info.backend_pid) == [worker.info.backend_pid]
    commit(worker)
    assert waiting.result(30) == 1
    assert drain(conn) == ["1", "2"]


@pytest.mark.concurrency
def test_a_batch_in_progress_cannot_be_finished_after_a_seek(db: Database) -> None:
    worker, seeker, conn = db.connect(), db.connect(), db.connect()
    create(conn, "c")
    ticks = _ticked(conn, "1", "2", "3")
    batch = next_batch(worker)
    begin(seeker)
    _seek(seeker, ticks[1])
    waiting = in_background(lambda: value(worker, "select pgq.ack('q', 'c', %s)", batch))
    wait_blocked(conn, worker.info.backend_pid)
    commit(seeker)
    with refused("PQ003"):
        waiting.result(30)
    assert drain(conn) == ["3"]
    assert rows(conn, "select last_tick, current_batch from pgq.get_consumer_info('q', 'c')") == [(ticks[2], None)]


def test_finishing_moves_to_the_end_of_the_window(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    ticks = _ticked(conn, "1", "2")
    batch = next_batch(conn)
    _ticked(conn, "3")
    finish(conn, batch)
    assert value(conn, "select sub_last_tick from pgq.subscription") == ticks[0]
