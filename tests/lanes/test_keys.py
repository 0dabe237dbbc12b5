"""Idempotency keys: never two active jobs with one key, and never none where there should be one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial

import pytest

from tests.clusters import Database
from tests.engine.support import (
    OLD_SNAPSHOTS,
    Conn,
    begin,
    commit,
    in_background,
    refused,
    rollback,
    rows,
    step_until,
    stepped,
    value,
)
from tests.lanes.support import QUEUE, claim, complete, create, drain, fail
from tests.waiting import wait_blocked


@pytest.fixture
def conn(db: Database) -> Conn:
    conn = db.connect()
    create(conn)
    return conn


def keyed(conn: Conn, key: str | None, window: str | None = None) -> tuple[int, bool]:
    found: tuple[int, bool] = rows(
        conn, "select id, created from pgq.enqueue(%s, 't', key := %s, key_window := %s)", QUEUE, key, window
    )[0]
    return found


def many(conn: Conn, *jobs: Mapping[str, object]) -> list[tuple[int, bool]]:
    return rows(conn, "select id, created from pgq.enqueue_many(%s, %s)", QUEUE, json.dumps(jobs))


def test_one_active_job_a_key(conn: Conn) -> None:
    job, created = keyed(conn, "k")
    assert created
    assert keyed(conn, "k") == (job, False)
    assert keyed(conn, "other")[1]
    c = claim(conn, 2)
    assert keyed(conn, "k") == (job, False)
    complete(conn, c)
    again, created = keyed(conn, "k")
    assert (created, again > job) == (True, True)


def test_a_retry_keeps_the_key_and_a_dead_letter_lets_go(conn: Conn) -> None:
    job, _ = keyed(conn, "k")
    fail(conn, claim(conn), job, retry_in="0")
    assert keyed(conn, "k") == (job, False)
    fail(conn, claim(conn), job, retryable=False)
    assert keyed(conn, "k")[1]


def test_a_window_lasts_whatever_becomes_of_the_job(conn: Conn) -> None:
    job, _ = keyed(conn, "k", "1 hour")
    drain(conn)
    assert keyed(conn, "k", "1 hour") == (job, False)
    assert keyed(conn, "short", "1 microsecond")[1]
    assert keyed(conn, "short", "1 microsecond")[1]


def test_the_second_waits_for_the_first_and_gets_its_job(db: Database, conn: Conn) -> None:
    other = db.connect()
    begin(other)
    job, created = keyed(other, "k")
    waiting = in_background(lambda: keyed(conn, "k"))
    wait_blocked(db.connect(), conn.info.backend_pid)
    commit(other)
    assert (created, waiting.result(30)) == (True, (job, False))


def test_the_second_inserts_its_own_when_the_first_rolls_back(db: Database, conn: Conn) -> None:
    other = db.connect()
    begin(other)
    job, _ = keyed(other, "k")
    waiting = in_background(lambda: keyed(conn, "k"))
    wait_blocked(db.connect(), conn.info.backend_pid)
    rollback(other)
    mine, created = waiting.result(30)
    assert (created, mine != job) == (True, True)
    assert claim(conn, 5).jobs == [mine]


def test_the_second_inserts_its_own_when_the_first_is_completed_meanwhile(db: Database, conn: Conn) -> None:
    keyed(conn, "k")
    c, handler = claim(conn), db.connect()
    begin(handler)
    complete(handler, c)
    assert not keyed(conn, "k")[1]  # it is not done before that commits
    commit(handler)
    assert keyed(conn, "k")[1]


@pytest.mark.parametrize("level", OLD_SNAPSHOTS)
def test_an_old_snapshot_takes_no_key_that_it_cannot_see_taken(db: Database, conn: Conn, level: str) -> None:
    other = db.connect()
    begin(other, level)
    job, _ = keyed(conn, "k")
    with refused("40001"):
        keyed(other, "k")
    rollback(other)
    begin(other, level)
    assert keyed(other, "k") == (job, False)
    commit(other)


@pytest.mark.parametrize("level", OLD_SNAPSHOTS)
@pytest.mark.parametrize("steps", [("switched",), ("switched", "closed", "truncated")])
def test_an_old_snapshot_is_refused_when_the_ring_has_moved(
    db: Database, conn: Conn, level: str, steps: tuple[str, ...]
) -> None:
    """Rows of the key are where it sees none: carried along, or in a slot that was current after it."""
    job, _ = keyed(conn, "k")
    for _ in range(5):
        keyed(conn, "window", "1 microsecond")
    other = db.connect()
    begin(other, level)
    for step in steps:
        step_until(conn, "key_ring", step)
        keyed(conn, "more", "1 microsecond")
    with refused("40001", "rows of key_ring were moved"):
        keyed(other, "k")
    rollback(other)
    begin(other, level)
    assert keyed(other, "k") == (job, False)
    rollback(other)


def test_keys_are_carried_along_while_they_are_taken(conn: Conn) -> None:
    job, _ = keyed(conn, "k")
    keyed(conn, "gone", "1 microsecond")
    for _ in range(8):
        keyed(conn, "x", "1 microsecond")
    for _ in range(3):
        for step in ("switched", "closed", "truncated"):
            step_until(conn, "key_ring", step)
            for _ in range(3):
                keyed(conn, "x", "1 microsecond")
    assert keyed(conn, "k") == (job, False)
    assert value(conn, "select count(*) from pgq.key_ring where key = 'gone'") == 0
    drain(conn, 100)
    assert keyed(conn, "k")[1]


def test_the_ring_does_not_leave_a_slot_that_somebody_writes_to(db: Database, conn: Conn) -> None:
    other = db.connect()
    keyed(conn, "x")
    begin(other)
    keyed(other, "k")
    stepped(conn, "key_ring", "blocked")
    commit(other)
    stepped(conn, "key_ring", "switched")


def test_bulk_enqueueing_deduplicates_row_by_row(conn: Conn) -> None:
    job, _ = keyed(conn, "taken")
    jobs = [{"type": "a", "key": "k"}, {"type": "b"}, {"type": "c", "key": "k"}, {"type": "d", "key": "taken"}]
    found = many(conn, *jobs, {"type": "e", "key": "l", "run_at": "2030-01-01"})
    ids = [found[0][0], found[1][0], found[4][0]]
    assert found == [(ids[0], True), (ids[1], True), (ids[0], False), (job, False), (ids[2], True)]
    assert drain(conn) == ["t", "a", "b"]


def test_bulk_calls_with_colliding_keys_do_not_deadlock(db: Database, conn: Conn) -> None:
    """Beside completions of the same keys, in opposite orders."""
    keys = [f"k{n}" for n in range(40)]

    def enqueue_all(mine: Conn, order: int) -> int:
        made = 0
        for _ in range(15):
            made += sum(created for _, created in many(mine, *({"type": "t", "key": key} for key in keys[::order])))
        return made

    def work(mine: Conn) -> None:
        for _ in range(60):
            complete(mine, c) if (c := claim(mine, 10)).id is not None else None

    makers = [in_background(partial(enqueue_all, db.connect(), order)) for order in (1, -1, 1, -1)]
    workers = [in_background(partial(work, db.connect())) for _ in range(2)]
    made = sum(maker.result(90) for maker in makers)
    for worker in workers:
        worker.result(90)
    drain(conn)
    assert value(conn, "select completed from pgq.get_job_stats(%s)", QUEUE) == made


def test_twenty_thousand_keys_in_one_transaction(conn: Conn) -> None:
    """With an advisory lock each, the lock table would be exhausted."""
    found = many(conn, *({"type": "t", "key": f"k{n}"} for n in range(20_000)))
    assert all(created for _, created in found)
    assert value(conn, "select count(*) from pg_locks where locktype = 'advisory'") == 0


def test_once(conn: Conn) -> None:
    once = "select pgq.once('mail', %s, %s)"
    assert [value(conn, once, "a", "1 hour"), value(conn, once, "a", "1 hour"), value(conn, once, "b", "1 hour")] == [
        True, False, True]  # fmt: skip
    assert [value(conn, once, "s", "1 microsecond") for _ in range(2)] == [True, True]
    for bad in ("0", "-1 hour", "20 years"):
        with refused("PQ006", "window cannot be"):
            conn.execute("select pgq.once('mail', 'c', %s)", (bad,))


@pytest.mark.parametrize(
    ("key", "window"), [("", None), ("x" * 513, None), (None, "1 hour"), ("k", "0"), ("k", "20 years")]
)
def test_impossible_keys_are_refused(conn: Conn, key: str | None, window: str | None) -> None:
    with refused("PQ006"):
        keyed(conn, key, window)
    assert value(conn, "select pending from pgq.get_job_stats(%s)", QUEUE) == 0


@pytest.mark.parametrize(
    "job",
    ['{"type": "t", "unknown": 1}', '{"type": ""}', '{"payload": {}}', '{"type": "t", "options": {"max_attempts": 0}}',
     '{"type": "t", "priority": "high"}', '{"type": "t", "run_at": "never"}', '{"type": "t", "options": {"tags": [1]}}',
     '{"type": "t", "options": 5}', '{"type": "t", "options": {"nonsense": 1}}', "7",
     '{"type": "t", "run_at": "2999-01-01"}'],
)  # fmt: skip
def test_bad_jobs_are_refused_and_none_is_enqueued(conn: Conn, job: str) -> None:
    with refused("PQ006"):
        conn.execute("select * from pgq.enqueue_many(%s, %s)", (QUEUE, f'[{{"type": "good"}}, {job}]'))
    assert claim(conn).id is None


def test_a_disabled_queue_refuses_jobs(conn: Conn) -> None:
    conn.execute("select pgq.set_queue_config(%s, 'disable_insert', 'true')", (QUEUE,))
    for call in ("select pgq.enqueue(%s, 't')", "select pgq.enqueue(%s, 't', key := 'k')"):
        with refused("PQ005"):
            conn.execute(call.encode(), (QUEUE,))
    with refused("PQ005"):
        many(conn, {"type": "t"})
