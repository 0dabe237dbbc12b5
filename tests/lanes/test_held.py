"""Rotation of job queues: space comes back, whatever a single job or lane does, and no job is lost or out of order."""

from __future__ import annotations

import pytest

from tests.clusters import Database
from tests.engine.support import (
    Conn,
    begin,
    commit,
    in_background,
    refused,
    rollback,
    rotate,
    rotate_until,
    rotated,
    rows,
    step_until,
    tick,
    value,
)
from tests.lanes.support import (
    QUEUE,
    beat,
    cancel,
    claim,
    claimed,
    complete,
    configure,
    create,
    drain,
    enqueue,
    enqueue_many,
    fail,
    rotate_events,
    set_clock,
    state,
    types,
    watch,
)
from tests.waiting import wait_blocked


@pytest.fixture
def conn(db: Database) -> Conn:
    conn = db.connect()
    create(conn)
    return conn


def held(conn: Conn) -> list[str]:
    """Types of the jobs that are held."""
    return [row[0] for row in rows(conn, "select ev_type from pgq.held_1 order by ev_txid, ev_id")]


def test_what_is_not_claimed_and_not_finished_is_carried_along(conn: Conn) -> None:
    enqueue(conn, "done", "running", "pending")
    enqueue(conn, "low", priority=30)
    complete(conn, claim(conn))
    running = claim(conn)
    rotate_events(conn)
    assert held(conn) == ["running", "pending", "low"]
    enqueue(conn, "new")
    tick(conn, QUEUE)
    assert types(conn, running) == ["running"]
    assert drain(conn, 1) == ["pending", "new", "low"]
    assert complete(conn, running) == 1


def test_a_starved_lane_does_not_keep_the_log(conn: Conn) -> None:
    """Its jobs go from slot to slot, and the log is truncated again and again."""
    enqueue(conn, *"abc", priority=30)
    for n in range(4):
        enqueue(conn, f"n{n}")
        tick(conn, QUEUE)
        c = claim(conn)
        assert types(conn, c) == [f"n{n}"]
        complete(conn, c)
        rotate_events(conn)
    assert drain(conn, 1) == ["a", "b", "c"]


def test_order_within_a_lane_outlives_rotation(conn: Conn) -> None:
    enqueue(conn, *"abcd")
    rotate_events(conn)
    enqueue(conn, *"efg")
    assert drain(conn, 3) == list("abcdefg")


def test_a_late_transaction_is_a_straggler_in_the_held_ring_too(db: Database, conn: Conn) -> None:
    late = db.connect()
    enqueue(conn, "a")
    begin(late)
    enqueue(late, "late")
    tick(conn, QUEUE)
    assert drain(conn) == ["a"]
    commit(late)
    enqueue(conn, "b")
    rotate_events(conn)
    assert held(conn) == ["late", "b"]
    assert drain(conn, 1) == ["late", "b"]


def test_the_held_ring_rotates_itself(conn: Conn) -> None:
    enqueue(conn, "stuck", priority=30)
    enqueue_many(conn, 50)
    rotate_events(conn)
    assert len(held(conn)) == 51
    for _ in range(50):
        complete(conn, claim(conn))
    for _ in range(3):
        value(conn, "select pgq._ring_step('held_1', true)")
    assert held(conn) == ["stuck"]
    assert value(conn, "select count(*) from pgq.held_1") == 1
    assert drain(conn, 1) == ["stuck"]


def test_more_than_rotation_carries_along_waits(conn: Conn) -> None:
    configure(conn, "held_limit", "10")
    enqueue_many(conn, 11)
    rotated(conn, "switched", queue=QUEUE)
    tick(conn, QUEUE)
    value(conn, "select pgq.force_tick(%s)", QUEUE)
    rotated(conn, "closed", "waiting", queue=QUEUE)
    complete(conn, claim(conn))
    value(conn, "select pgq.force_tick(%s)", QUEUE)
    assert rotate_until(conn, "truncated", QUEUE)[-1] == "truncated"
    assert drain(conn, 100) == [str(n) for n in range(2, 12)]


def test_fan_out_consumers_still_get_every_job_and_none_from_the_held_ring(conn: Conn) -> None:
    conn.execute("select pgq.register_consumer(%s, 'audit')", (QUEUE,))
    enqueue(conn, "a", "b")
    rotated(conn, "switched", queue=QUEUE)
    tick(conn, QUEUE)
    rotated(conn, "closed", "waiting", queue=QUEUE)
    assert _audit(conn) == ["a", "b"]
    conn.execute("select pgq.force_tick(%s)", (QUEUE,))
    assert _audit(conn) == []
    rotate_until(conn, "truncated", QUEUE)
    assert held(conn) == ["a", "b"]
    enqueue(conn, "c")
    tick(conn, QUEUE)
    assert _audit(conn) == ["c"]
    assert drain(conn) == ["a", "b", "c"]


def _audit(conn: Conn) -> list[str]:
    found = rows(conn, "select batch_id, ev_type from pgq.receive(%s, 'audit', 100)", QUEUE)
    batch = value(conn, "select current_batch from pgq.get_consumer_info(%s, 'audit')", QUEUE)
    if batch is not None:
        conn.execute("select pgq.finish_batch(%s)", (batch,))
    return [row[1] for row in found]


def test_a_claim_in_progress_delays_rotation_and_loses_nothing(db: Database, conn: Conn) -> None:
    other = db.connect()
    enqueue(conn, "a", "b")
    rotated(conn, "switched", queue=QUEUE)
    tick(conn, QUEUE)
    rotated(conn, "closed", queue=QUEUE)
    value(conn, "select pgq.force_tick(%s)", QUEUE)
    begin(other)
    c = claim(other)
    rotated(conn, "blocked", queue=QUEUE)
    rollback(other)
    assert c.jobs == [1]
    rotate_until(conn, "truncated", QUEUE)
    assert drain(conn, 1) == ["a", "b"]


def test_a_claim_waits_for_a_rotation_under_way_and_finds_what_was_held(db: Database, conn: Conn) -> None:
    other = db.connect()
    enqueue(conn, "a", "b")
    rotated(conn, "switched", queue=QUEUE)
    tick(conn, QUEUE)
    rotated(conn, "closed", queue=QUEUE)
    value(conn, "select pgq.force_tick(%s)", QUEUE)
    begin(other)
    assert rotate(other, QUEUE) == "truncated"
    waiting = in_background(lambda: claim(conn, 5))
    wait_blocked(db.connect(), conn.info.backend_pid)
    commit(other)
    assert types(conn, waiting.result(30)) == ["a", "b"]


def test_fetching_a_claim_while_its_jobs_are_being_held_misses_none(db: Database, conn: Conn) -> None:
    other = db.connect()
    enqueue(conn, "a", "b")
    c = claim(conn, 2)
    rotated(conn, "switched", queue=QUEUE)
    rotated(conn, "closed", queue=QUEUE)
    value(conn, "select pgq.force_tick(%s)", QUEUE)
    begin(other)
    assert rotate(other, QUEUE) == "truncated"
    waiting = in_background(lambda: types(conn, c))
    wait_blocked(db.connect(), conn.info.backend_pid)
    commit(other)
    assert waiting.result(30) == ["a", "b"]


def test_retries_and_losses_of_held_jobs(conn: Conn) -> None:
    set_clock(conn)
    configure(conn, "lease", "10 seconds")
    beat(conn, "w")
    a, b = enqueue(conn, "a", "b")
    c = claim(conn, 2, "w")
    rotate_events(conn)
    assert fail(conn, c, a, retry_in="0") == "retried"
    assert watch(conn, 30) == 1
    assert [row[:1] + row[2:] for row in claimed(conn, claim(conn, 5))] == [(b, 1, 1)]
    assert [row[:1] + row[2:] for row in claimed(conn, claim(conn, 5))] == [(a, 2, 0)]


def test_a_cancelled_job_is_not_awakened_by_rotation(conn: Conn) -> None:
    ids = enqueue(conn, *"abc")
    cancel(conn, ids[1])
    rotate_events(conn)
    step_until(conn, "claim_ring", "switched")
    for _ in range(20):
        enqueue(conn, "x", priority=150)
        tick(conn, QUEUE)
        complete(conn, claim(conn))
    for result in ("closed", "truncated"):
        step_until(conn, "claim_ring", result)
    assert drain(conn, 1) == ["a", "c"]
    assert state(conn, ids[1]) == "cancelled"


def test_open_claims_are_carried_along_and_closed_ones_are_not(conn: Conn) -> None:
    enqueue_many(conn, 40)
    opened = claim(conn, 2)
    drain(conn, 1)
    step_until(conn, "claim_ring", "switched")
    for result in ("closed", "truncated"):
        step_until(conn, "claim_ring", result)
    left = rows(conn, "select claim_id from pgq.claim_ring where kind = 'q' and ev_ids <> '{}' order by 1")
    assert left[0] == (opened.id,)
    assert len(left) == 2  # and the newest of the lane
    assert complete(conn, opened) == 2


def test_what_runs_is_found_among_very_many_claims_that_are_closed(db: Database, conn: Conn) -> None:
    """A session that planned an anti-join without statistics compared each claim with each finish ever after: minutes,
    at these numbers."""
    (job,) = enqueue(conn, "running")
    beat(conn, "w")
    claim(conn, worker="w")
    ((slot, open_claim),) = rows(
        conn, "select tableoid::regclass::text, claim_id from pgq.claim_ring where kind = 'q' and ev_ids <> '{}'"
    )

    def close(first: int, last: int) -> None:
        """Copies of the claim, closed."""
        conn.execute(
            f"insert into {slot} (claim_id, ev_id, kind, queue_id, lane, worker, beats, ev_ids, token, at, txid)"
            f" select i, -1, 'q', queue_id, lane, worker, beats, ev_ids, token, at, txid"
            f" from generate_series({first}, {last}) i, {slot} where claim_id = {open_claim} and kind = 'q'".encode()
        )
        conn.execute(
            f"insert into {slot} (claim_id, ev_id, kind, queue_id, lane, outcome, n)"
            f" select i, 0, 'f', 1, 100, 'completed', 1 from generate_series({first}, {last}) i".encode()
        )

    def look(session: Conn) -> None:
        assert value(session, "select pgq._running_ids(1)") == [job]
        assert rows(session, "select claim_id from pgq._open_claims_of('w')") == [(open_claim,)]
        assert rows(session, "select * from pgq._quiet_claims(false)") == []

    sessions, last = [], 10**6
    for size in (500, 1000, 2000, 3000, 4000, 6000, 8000):
        close(last + 1, 10**6 + size)
        last = 10**6 + size
        sessions.append(db.connect())
        for _ in range(7):  # past the point where generic plans are made
            look(sessions[-1])
    close(last + 1, last + 60_000)
    for session in sessions:
        session.execute("set statement_timeout = '10s'")
        look(session)


def test_totals_outlive_the_rotation_of_claims(conn: Conn) -> None:
    ids = enqueue(conn, *"abcd")
    c = claim(conn, 4)
    fail(conn, c, ids[0], retryable=False)
    fail(conn, c, ids[1], retry_in="1 hour")
    complete(conn, c)
    totals = "select completed, failed, retried from pgq.get_job_stats()"
    assert rows(conn, totals) == [(2, 1, 1)]
    conn.execute("select pgq.maint_sweep_jobs(%s)", (QUEUE,))
    assert rows(conn, totals) == [(2, 1, 1)]
    for _ in range(2):
        step_until(conn, "claim_ring", "switched")
        enqueue_many(conn, 20, priority=150)
        tick(conn, QUEUE)
        for _ in range(20):
            complete(conn, claim(conn))
        for result in ("closed", "truncated"):
            step_until(conn, "claim_ring", result)
    assert rows(conn, totals) == [(42, 1, 1)]


def test_the_sweep_counts_each_finish_once_however_late_it_commits(db: Database, conn: Conn) -> None:
    enqueue(conn, "late", "early")
    late, early, other = claim(conn), claim(conn), db.connect()
    begin(other)
    complete(other, late)
    complete(conn, early)
    conn.execute("select pgq.maint_sweep_jobs(%s)", (QUEUE,))
    commit(other)
    for _ in range(2):
        assert value(conn, "select completed from pgq.get_job_stats()") == 2
        conn.execute("select pgq.maint_sweep_jobs(%s)", (QUEUE,))
    before = value(conn, "select count(*) from pgq.claim_ring where kind = 's'")
    conn.execute("select pgq.maint_sweep_jobs(%s)", (QUEUE,))
    assert value(conn, "select count(*) from pgq.claim_ring where kind = 's'") == before


def test_finished_jobs_are_archived_when_asked_for(conn: Conn) -> None:
    configure(conn, "archive", "true")
    a, b, c = enqueue(conn, *"abc")
    taken = claim(conn, 3, "w")
    fail(conn, taken, a, "boom", retryable=False)
    fail(conn, taken, b, retry_in="1 hour")
    complete(conn, taken)
    step_until(conn, "claim_ring", "switched")
    enqueue_many(conn, 20, priority=150)
    tick(conn, QUEUE)
    for _ in range(20):
        complete(conn, claim(conn))
    for result in ("closed", "truncated"):
        step_until(conn, "claim_ring", result)
    archived = "select job_id, type, payload, state, worker, error from pgq.job_archive order by 1"
    assert rows(conn, archived) == [(a, "a", {}, "failed", "w", "boom"), (c, "c", {}, "completed", "w", None)]


def test_ticks_that_lanes_stand_at_are_kept(conn: Conn) -> None:
    enqueue(conn, "low", "low2", priority=30)
    assert types(conn, claim(conn)) == ["low"]
    for _ in range(2):
        for step in ("switched", "closed", "truncated"):
            for _ in range(30):
                value(conn, "select pgq.force_tick(%s)", QUEUE)
            step_until(conn, "tick_ring", step)
    assert drain(conn) == ["low2"]


def test_no_dead_row_while_a_snapshot_is_held(private_db: Database) -> None:
    conn, pin = private_db.connect(), private_db.connect()
    create(conn)
    begin(pin, "repeatable read")
    for n in range(30):
        enqueue(conn, "x", "y", "z", key=f"k{n}")
        c = claim(conn, 3, "w")
        fail(conn, c, c.jobs[0], retry_in="0")
        complete(conn, c)
        drain(conn)
        beat(conn, "w")
        conn.execute("select pgq.recover()")
        conn.execute("select pgq.maint_sweep_jobs(%s)", (QUEUE,))
        for ring in ("claim_ring", "key_ring", "tick_ring", "beat_ring", "held_1", "event_1", "delay_1"):
            value(conn, "select pgq._ring_step(%s, true)", ring)
    conn.execute("select pg_stat_force_next_flush()") if conn.info.server_version >= 150000 else None
    dead = "select relname, n_dead_tup from pg_stat_all_tables where schemaname = 'pgq' and n_dead_tup > 0"
    assert rows(conn, dead) == []
    assert rows(conn, "select sum(n_tup_upd), sum(n_tup_del) from pg_stat_all_tables where schemaname = 'pgq'") == [
        (0, 0)
    ]


def test_foreign_queues_are_not_touched(conn: Conn) -> None:
    conn.execute("select pgq.create_job_queue('other')")
    conn.execute("select pgq.enqueue('other', 'theirs')")
    enqueue(conn, "ours")
    rotate_events(conn)
    assert drain(conn) == ["ours"]
    with refused("PQ023"):
        conn.execute("select pgq.create_queue('events')")
        conn.execute("select pgq.claim('events', null)")
