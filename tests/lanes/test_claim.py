"""Claiming: each job to one worker, in order, without writing when there is nothing."""

from __future__ import annotations

import random
from functools import partial
from threading import Thread

import psycopg
import pytest

from tests.clusters import Database
from tests.engine.support import OLD_SNAPSHOTS, Conn, begin, commit, in_background, refused, rollback, rows, tick, value
from tests.lanes.support import (
    QUEUE,
    claim,
    claimed,
    complete,
    create,
    drain,
    enqueue,
    enqueue_many,
    fail,
    pass_time,
    recover,
    rotate_events,
    set_clock,
    state,
    types,
)
from tests.waiting import wait_blocked, wait_until


@pytest.fixture
def conn(db: Database) -> Conn:
    conn = db.connect()
    create(conn)
    return conn


def test_jobs_come_by_priority_and_then_in_order(conn: Conn) -> None:
    enqueue(conn, "n1", "n2")
    enqueue(conn, "low", priority=30)
    enqueue(conn, "high", priority=150)
    enqueue(conn, "n3")
    assert drain(conn, 1) == ["high", "n1", "n2", "n3", "low"]


def test_an_undeclared_priority_is_the_next_lower_one_or_the_lowest(conn: Conn) -> None:
    enqueue(conn, "lowest", priority=1)
    enqueue(conn, "normal", priority=149)
    enqueue(conn, "high", priority=30000)
    assert drain(conn, 1) == ["high", "normal", "lowest"]


def test_a_priority_declared_later_is_used_from_then_on(conn: Conn) -> None:
    enqueue(conn, "before", priority=200)
    enqueue(conn, "high", priority=150)
    assert value(conn, "select pgq.declare_priority(%s, 200)", QUEUE) == 1
    assert value(conn, "select pgq.declare_priority(%s, 200)", QUEUE) == 0
    enqueue(conn, "after", priority=200)
    assert drain(conn, 1) == ["after", "before", "high"]


def test_a_queue_has_at_most_32_priorities(conn: Conn) -> None:
    for priority in range(1001, 1030):
        conn.execute("select pgq.declare_priority(%s, %s)", (QUEUE, priority))
    with refused("PQ006", "cannot declare priority 2000"):
        conn.execute("select pgq.declare_priority(%s, 2000)", (QUEUE,))
    for bad in (0, -1, 32001, None):
        with refused("PQ006"):
            conn.execute("select pgq.declare_priority(%s, %s)", (QUEUE, bad))


def test_a_claim_has_its_jobs_alone_and_is_asked_again_as_often_as_wanted(conn: Conn) -> None:
    ids = enqueue(conn, *"abc")
    first, second = claim(conn, 2), claim(conn, 2)
    assert (first.jobs, second.jobs) == (ids[:2], ids[2:])
    assert claim(conn).id is None
    assert types(conn, first) == types(conn, first) == ["a", "b"]
    assert complete(conn, first, ids[0]) == 1
    assert types(conn, first) == ["b"]


def test_jobs_of_a_transaction_that_is_late_are_not_passed_by(db: Database, conn: Conn) -> None:
    late = db.connect()
    begin(late)
    enqueue(late, "late")
    enqueue(conn, "a", "b")
    assert drain(conn) == ["a", "b"]
    enqueue(conn, "c")
    assert drain(conn) == ["c"]
    commit(late)
    assert drain(conn) == ["late"]


def test_rolled_back_jobs_never_were(db: Database, conn: Conn) -> None:
    other = db.connect()
    begin(other)
    enqueue(other, "never")
    rollback(other)
    enqueue(conn, "a")
    assert drain(conn) == ["a"]


@pytest.mark.parametrize("level", ["read committed", *OLD_SNAPSHOTS])
def test_enqueueing_works_at_every_level(db: Database, conn: Conn, level: str) -> None:
    other = db.connect()
    enqueue(conn, "old")
    drain(conn)
    begin(other, level)
    rotate_events(conn)
    enqueue(other, "a")
    commit(other)
    assert drain(conn) == ["a"]


def test_no_lower_priority_is_claimed_while_a_higher_one_has_work(db: Database, conn: Conn) -> None:
    """Eight at once. A claim has overtaken when a higher lane had work before it and has still after it."""
    for priority in (30, 100, 150):
        enqueue_many(conn, 400, priority=priority)
    tick(conn, QUEUE)
    overtaken: list[str] = []

    def work(mine: Conn) -> None:
        while True:
            left = rows(
                mine,
                "select lane, exhausted from (select distinct on (lane) lane, exhausted, claim_id"
                " from pgq.claim_ring where kind = 'q' and lane > 0 and top_tick > 1"
                " order by lane, claim_id desc) l where not exhausted",
            )
            c = claim(mine, 7)
            if c.id is None:
                return
            got = value(mine, "select lane from pgq.claim_ring where claim_id = %s and kind = 'q'", c.id)
            overtaken.extend(f"{lane} before {got}" for lane, _ in left if lane > got and _has_work(mine, lane))

    threads = [Thread(target=work, args=(db.connect(),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert overtaken == []
    assert value(conn, "select sum(cardinality(ev_ids)) from pgq.claim_ring where kind = 'q'") == 1200


def _has_work(conn: Conn, lane: int) -> bool:
    return bool(value(conn, "select not exhausted from pgq.claim_ring where kind = 'q' and lane = %s"
                            " order by claim_id desc limit 1", lane))  # fmt: skip


def test_a_claim_waits_for_the_lock_of_the_best_lane(db: Database, conn: Conn) -> None:
    other = db.connect()
    enqueue(conn, "high", "high2", priority=150)
    enqueue(conn, "low", priority=30)
    tick(conn, QUEUE)
    begin(other)
    assert len(claim(other).jobs) == 1
    waiting = in_background(lambda: claim(conn))
    assert wait_blocked(db.connect(), conn.info.backend_pid) == [other.info.backend_pid]
    commit(other)
    assert types(conn, waiting.result(30)) == ["high2"]


def test_two_claimers_of_two_lanes_never_deadlock(db: Database, conn: Conn) -> None:
    """Lanes are locked from above, whatever empties meanwhile."""

    def work(mine: Conn) -> None:
        for _ in range(150):
            with mine.transaction():
                enqueue(mine, "x", priority=random.choice((30, 100, 150)))
            claim(mine, 2)

    jobs = [in_background(partial(work, db.connect())) for _ in range(4)]
    for job in jobs:
        job.result(60)


def test_an_empty_poll_writes_nothing(db: Database, conn: Conn) -> None:
    enqueue(conn, "a")
    drain(conn)
    writes = "select pg_current_wal_insert_lsn()::text, pg_snapshot_xmax(pg_current_snapshot())::text"
    poller = db.connect()
    claim(poller)
    before = rows(conn, writes)
    for _ in range(20):
        assert claim(poller).id is None
    assert rows(conn, writes) == before


def test_without_a_ticker_urgent_jobs_do_not_wait_for_all_others(conn: Conn) -> None:
    enqueue(conn, "low1", "low2", priority=30)
    assert types(conn, claim(conn)) == ["low1"]
    enqueue(conn, "high", priority=150)
    wait_until(lambda: value(conn, "select max(tick_time) < clock_timestamp() - interval '300 ms' from pgq.tick"))
    assert types(conn, claim(conn)) == ["high"]


def test_jobs_are_claimed_without_a_ticker(conn: Conn) -> None:
    ids = enqueue(conn, "a")
    assert value(conn, "select count(*) from pgq.tick") == 1
    assert claim(conn).jobs == ids


def test_a_paused_queue_hands_out_nothing(conn: Conn) -> None:
    enqueue(conn, "a")
    conn.execute("select pgq.pause_queue(%s)", (QUEUE,))
    assert claim(conn).id is None
    conn.execute("select pgq.resume_queue(%s)", (QUEUE,))
    assert drain(conn) == ["a"]


def test_a_bulk_load_in_progress_is_not_read(db: Database, conn: Conn) -> None:
    """A claim passes it by its transaction id, without visiting its rows."""
    loader = db.connect()
    begin(loader)
    enqueue_many(loader, 20_000)
    enqueue(conn, "a")
    tick(conn, QUEUE)
    with conn.transaction():
        before = _fetched(conn)
        assert len(claim(conn).jobs) == 1
        assert _fetched(conn) - before < 100
    commit(loader)
    assert sorted(set(drain(conn, 5000)), key=int) == [str(n) for n in range(1, 20_001)]


def _fetched(conn: Conn) -> int:
    """Rows of event slots that this transaction has fetched through indexes."""
    query = "select coalesce(sum(idx_tup_fetch), 0) from pg_stat_xact_user_tables where relname ~ '^event_'"
    return int(value(conn, query))


@pytest.mark.parametrize("n", [0, -1, 10001, None])
def test_impossible_numbers_are_refused(conn: Conn, n: int | None) -> None:
    with refused("PQ006", "cannot claim"):
        conn.execute("select pgq.claim(%s, null, %s)", (QUEUE, n))


def test_a_queue_of_events_has_no_jobs(conn: Conn) -> None:
    conn.execute("select pgq.create_queue('events')")
    for call in ("select pgq.claim('events', null)", "select pgq.enqueue('events', 't')", "select pgq.jobs('events')"):
        with refused("PQ023", "queue 'events' is not a job queue"):
            conn.execute(call.encode())
    with refused("PQ023"):
        conn.execute("select pgq.create_job_queue('events')")
    with refused("PQ001"):
        conn.execute("select pgq.claim('nothing', null)")


def test_what_was_sent_as_an_event_is_a_job_too(conn: Conn) -> None:
    """insert_event, send and COPY go to the normal lane; a payload that is no JSON fails alone."""
    conn.execute("select pgq.insert_event(%s, 'raw', 'no json')", (QUEUE,))
    conn.execute("select pgq.send(%s, 'sent', '{\"a\": 1}'::jsonb)", (QUEUE,))
    assert rows(conn, "select type, payload, attempt from pgq.take(%s, null, 10)", QUEUE) == [
        ("raw", None, 1), ("sent", {"a": 1}, 1)]  # fmt: skip


def test_fan_out_consumers_see_each_job_once_and_no_retry(conn: Conn) -> None:
    conn.execute("select pgq.register_consumer(%s, 'audit')", (QUEUE,))
    (job,) = enqueue(conn, "a")
    c = claim(conn)
    assert fail(conn, c, job, retry_in="0") == "retried"
    c = claim(conn)
    assert [row[2] for row in claimed(conn, c)] == [2]
    conn.execute("select pgq.ticker(%s)", (QUEUE,))
    assert rows(conn, "select ev_id, ev_type from pgq.receive(%s, 'audit', 100)", QUEUE) == [(job, "a")]


def test_the_database_clock_decides_when_a_job_is_due(conn: Conn) -> None:
    set_clock(conn)
    (job,) = [
        r[0] for r in rows(conn, "select id from pgq.enqueue(%s, 'later', run_at := pgq._clock() + '1 minute')", QUEUE)
    ]
    for seconds, expected in ((0, "scheduled"), (59, "scheduled"), (2, "pending")):
        pass_time(conn, seconds)
        conn.execute("select pgq.release(%s)", (QUEUE,))
        assert (state(conn, job), recover(conn)) == (expected, 0)
    assert drain(conn) == ["later"]


def test_a_lane_is_not_read_in_full_by_a_plan_of_an_empty_slot(db: Database, conn: Conn) -> None:
    """A session that has claimed from empty slots keeps its plans; they are index scans all the same."""
    for _ in range(8):
        claim(conn)
        drain(conn)
    enqueue_many(conn, 30_000)
    conn.execute("select pgq.ticker(%s)", (QUEUE,))
    before = value(conn, "select coalesce(sum(seq_tup_read), 0) from pg_stat_xact_user_tables where schemaname = 'pgq'")
    with conn.transaction():
        for _ in range(10):
            c = claim(conn, 10)
            complete(conn, c, *c.jobs[:5])
            complete(conn, c)
        read = value(conn, "select coalesce(sum(seq_tup_read), 0) from pg_stat_xact_user_tables"
                           " where relname ~ '^(event|claim_ring|tick_ring|held)_'")  # fmt: skip
    assert read - before < 1000


@pytest.mark.newest
def test_no_index_is_read_from_end_to_end(conn: Conn) -> None:
    """Whichever one a plan was made with, when the slot was empty and all of them cost the same."""
    enqueue_many(conn, 600)
    conn.execute("select pgq.ticker(%s)", (QUEUE,))
    last: list[object] = [None, None]
    for _ in range(600):
        ((*last, _jobs),) = rows(conn, "select * from pgq.complete_and_claim(%s, %s, %s, null, 1)", *last, QUEUE)
    conn.execute("select pg_stat_force_next_flush()")
    read = "select sum(idx_tup_read) from pg_stat_all_indexes where relname ~ '^(claim_ring|tick_ring|event)_'"
    assert value(conn, read) < 600 * 20


@pytest.mark.crash
@pytest.mark.slow
def test_a_number_that_is_given_out_again_has_another_token(private_db: Database) -> None:
    """A claim with an asynchronous commit can be lost in a crash, and its number comes again."""
    conn = private_db.connect()
    create(conn)
    ids = enqueue(conn, "a")
    conn.execute("alter system set wal_writer_delay = '10s'")
    conn.execute("select pg_reload_conf()")
    conn.execute("checkpoint")
    conn.execute("set synchronous_commit = off")
    zombie = claim(conn)
    private_db.server.crash()
    private_db.server.start()
    conn = private_db.connect()
    again = claim(conn)
    assert (again.jobs, again.token != zombie.token) == (ids, True)
    if again.id == zombie.id:
        with refused("PQ020"):
            complete(conn, zombie)
    assert complete(conn, again) == 1


def test_a_dropped_queue_leaves_nothing_that_hinders(conn: Conn) -> None:
    enqueue(conn, "a", "b", key="k")
    claim(conn)
    conn.execute("select pgq.drop_queue(%s, true)", (QUEUE,))
    left = "select proname from pg_proc where pronamespace = 'pgq'::regnamespace and proname ~ '_[0-9]+_[0-9a-f]{8}$'"
    assert rows(conn, left) == []
    assert rows(conn, "select * from pgq.lane") == rows(conn, "select * from pgq.job_queue") == []
    create(conn)
    assert len(enqueue(conn, "new", key="k")) == 1
    assert drain(conn) == ["new"]
    with pytest.raises(psycopg.Error):
        conn.execute("select pgq.claim('gone', null)")


def test_the_queues_own_function_enqueues_too(conn: Conn) -> None:
    own = value(conn, "select pgq.enqueuer_function(%s)", QUEUE)
    job = value(conn, f"select pgq.{own}('a', '[1]', 150, null)")
    assert rows(conn, "select type, payload, priority, state from pgq.get_job(%s, %s)", QUEUE, job) == [
        ("a", "[1]", 150, "pending")
    ]
    for bad in ("'', '{}'", "null, '{}'", "repeat('x', 201), '{}'", "'a', null"):
        with refused("PQ006"):
            value(conn, f"select pgq.{own}({bad}, null, null)")
    for unknown, code in (("nosuch", "PQ001"), ("log", "PQ023")):
        value(conn, "select pgq.create_queue('log')")
        with refused(code):
            value(conn, "select pgq.enqueuer_function(%s)", unknown)
    assert drain(conn) == ["a"]
