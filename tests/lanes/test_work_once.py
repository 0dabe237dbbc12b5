"""complete_and_claim() and the procedure that does it in two transactions.

What is generated does the common case, and the parts do the others: the outcome is the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import psycopg
import pytest

from tests.clusters import Database
from tests.engine.support import (
    Conn,
    begin,
    commit,
    in_background,
    refused,
    rollback,
    rows,
    step,
    step_until,
    tick,
    value,
)
from tests.lanes.support import (
    QUEUE,
    Claim,
    beat,
    cancel,
    claim,
    complete,
    create,
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


_way = ""


@pytest.fixture(params=["function", "procedure"], autouse=True)
def way(request: pytest.FixtureRequest) -> str:
    """How `go_on` goes on."""
    global _way
    _way = str(request.param)
    return _way


def procedure(conn: Conn) -> str:
    return str(value(conn, "select pgq.worker_procedure(%s)", QUEUE))


def go_on(conn: Conn, c: Claim | None, n: int = 1, worker: str | None = None) -> Claim:
    before = (c.id, c.token) if c else (None, None)
    if _way == "procedure":
        return Claim(*rows(conn, f"call pgq.{procedure(conn)}(%s, %s, null, %s, %s)", *before, worker, n)[0])
    return Claim(*rows(conn, "select * from pgq.complete_and_claim(%s, %s, %s, %s, %s)", *before, QUEUE, worker, n)[0])


def work_off(conn: Conn, n: int = 1, before: Claim | None = None) -> list[str]:
    """Types of all that comes."""
    done: list[str] = []
    c = go_on(conn, before, n)
    while c.id is not None:
        done += types(conn, c)
        c = go_on(conn, c, n)
    return done


@pytest.mark.parametrize("n", [1, 3])
def test_everything_comes_once_and_in_order(conn: Conn, n: int) -> None:
    enqueue_many(conn, 10)
    enqueue(conn, "low", priority=30)
    enqueue(conn, "high", priority=150)
    assert work_off(conn, n) == ["high", *(str(i) for i in range(1, 11)), "low"]
    assert value(conn, "select completed from pgq.get_job_stats(%s)", QUEUE) == 12


def test_the_common_case_is_one_function(conn: Conn) -> None:
    """Or all of this would test the parts alone. What other tests run on the server meanwhile may be in its way."""
    work = value(conn, "select oid::regproc::text from pg_proc where proname ~ '^work_[0-9]+_'")
    call = f"select stage, job_ids from {work}(%s, %s, null, 1, true, true)".encode()
    stage, jobs, tries = 0, None, 0
    while stage < 2 and tries < 50:
        work_off(conn)
        enqueue_many(conn, 3)
        c = go_on(conn, None)
        ((stage, jobs),) = rows(conn, call, c.id, c.token)  # type: ignore[arg-type]
        tries += 1
    assert (stage, jobs) == (2, [3 * tries - 1])


def test_what_a_tick_brings_is_seen(conn: Conn) -> None:
    enqueue_many(conn, 3)
    c = go_on(conn, None)
    enqueue(conn, "high", priority=150)
    tick(conn, QUEUE)
    c = go_on(conn, c)
    assert types(conn, c) == ["high"]
    assert work_off(conn, before=c) == ["2", "3"]


def test_keys_are_let_go(conn: Conn) -> None:
    enqueue(conn, "a", key="k")
    enqueue(conn, "b")
    c = go_on(conn, None)
    assert types(conn, go_on(conn, c)) == ["b"]
    assert value(conn, "select created from pgq.enqueue(%s, 'c', key := 'k')", QUEUE)


def test_jobs_that_were_finished_before_are_not_counted_again(conn: Conn) -> None:
    a, b, _ = enqueue(conn, *"abc")
    c = go_on(conn, None, 2)
    complete(conn, c, a)
    fail(conn, c, b, retryable=False)
    assert types(conn, go_on(conn, c)) == ["c"]
    assert rows(conn, "select completed, failed from pgq.get_job_stats(%s)", QUEUE) == [(1, 1)]
    assert (state(conn, a), state(conn, b)) == ("completed", "failed")


def test_cancelled_jobs_are_passed_over(conn: Conn) -> None:
    ids = enqueue(conn, *"abcd")
    c = go_on(conn, None)
    cancel(conn, *ids[1:3])
    assert types(conn, go_on(conn, c)) == ["d"]


def test_held_jobs_come_in_their_order(conn: Conn) -> None:
    enqueue(conn, *"abc")
    c = go_on(conn, None)
    rotate_events(conn)
    enqueue(conn, "d")
    assert work_off(conn, before=c) == ["b", "c", "d"]


def test_claims_that_were_carried_along_are_completed(conn: Conn) -> None:
    enqueue_many(conn, 60)
    c = go_on(conn, None)
    for result in ("switched", "closed"):
        step_until(conn, "claim_ring", result)
        other = go_on(conn, None)
        for _ in range(20):
            other = go_on(conn, other)
    step_until(conn, "claim_ring", "truncated")
    assert types(conn, go_on(conn, c)) != []
    assert state(conn, c.jobs[0]) == "completed"


def test_a_wrong_token_and_a_lost_claim_are_told(conn: Conn, way: str) -> None:
    set_clock(conn)
    enqueue(conn, *"abc")
    beat(conn, "w")
    c = go_on(conn, None, worker="w")
    with refused("PQ020"):
        go_on(conn, c._replace(token=1), worker="w")
    watch(conn, 30)
    # the procedure claims first, and a worker that was declared dead may not
    for worker, code in (("w", "PQ020" if way == "function" else "PQ022"), (None, "PQ020")):
        with refused(code):
            go_on(conn, c, worker=worker)
    with refused("PQ022"):
        go_on(conn, None, worker="w")


def test_a_closed_claim_is_no_obstacle(conn: Conn) -> None:
    enqueue(conn, *"abc")
    c = go_on(conn, None)
    complete(conn, c)
    assert types(conn, go_on(conn, c)) == ["b"]


def test_a_paused_queue_completes_and_claims_nothing(conn: Conn) -> None:
    enqueue(conn, *"ab")
    c = go_on(conn, None)
    conn.execute("select pgq.pause_queue(%s)", (QUEUE,))
    assert go_on(conn, c).id is None
    assert state(conn, c.jobs[0]) == "completed"


def test_heartbeats_cover_what_it_claims(conn: Conn) -> None:
    set_clock(conn)
    beat(conn, "w")
    enqueue(conn, *"abc")
    c = go_on(conn, go_on(conn, None, worker="w"), worker="w")
    assert value(conn, "select claims from pgq.worker_info") == 1
    assert watch(conn, 30) == 1
    assert state(conn, c.jobs[0]) == "pending"


def test_it_waits_for_the_lane(db: Database, conn: Conn) -> None:
    other = db.connect()
    enqueue_many(conn, 5)
    c = go_on(conn, None)
    begin(other)
    claim(other)
    waiting = in_background(lambda: go_on(conn, c))
    assert wait_blocked(db.connect(), conn.info.backend_pid) == [other.info.backend_pid]
    commit(other)
    assert types(conn, waiting.result(30)) == ["3"]


@pytest.mark.parametrize("bad", [0, 10001, None])
def test_impossible_numbers_are_refused(conn: Conn, bad: int | None) -> None:
    with refused("PQ006"):
        conn.execute("select pgq.complete_and_claim(null, null, %s, null, %s)", (QUEUE, bad))


def test_a_claim_waits_for_no_disk(db: Database, conn: Conn, way: str) -> None:
    """While the completion of the one waits, here for a row of its own, the other gets its jobs."""
    if way == "function":
        pytest.skip("holds the lane until its transaction ends")
    enqueue_many(conn, 5)
    slow, other, blocker = (db.connect() for _ in range(3))
    c = go_on(slow, None)
    begin(blocker)
    complete(blocker, c)
    waiting = in_background(lambda: go_on(slow, c))
    assert wait_blocked(db.connect(), slow.info.backend_pid) == [blocker.info.backend_pid]
    assert types(other, go_on(other, None)) == ["3"]
    commit(blocker)
    assert types(slow, waiting.result(30)) == ["2"]


def test_what_was_claimed_is_given_back_when_the_completion_fails(conn: Conn) -> None:
    enqueue(conn, *"abc")
    c = go_on(conn, None)
    with refused("PQ020"):
        go_on(conn, c._replace(token=1))
    assert state(conn, c.jobs[0]) == "running"
    assert sorted(work_off(conn)) == ["b", "c"]
    assert rows(conn, "select pending, running, completed from pgq.get_job_stats(%s)", QUEUE) == [(0, 1, 2)]


def test_it_is_no_part_of_a_transaction(conn: Conn, way: str) -> None:
    enqueue(conn, *"ab")
    c = go_on(conn, None)
    begin(conn)
    if way == "function":
        go_on(conn, c)
    else:
        with refused("2D000"):
            go_on(conn, c)
    rollback(conn)
    assert state(conn, c.jobs[0]) == "running"
    assert work_off(conn, before=c) == ["b"]


def test_many_sessions_beside_rotation(db: Database, conn: Conn) -> None:
    """Each job is claimed once, by whoever; none is left."""
    enqueue_many(conn, 2000)
    over = threading.Event()

    def session(n: int) -> list[int]:
        mine, taken = db.connect(), []
        c = again(lambda: go_on(mine, None, n))
        while c.id is not None:
            taken += c.jobs
            c = again(lambda: go_on(mine, c, n))  # noqa: B023 - called at once
        return taken

    def rotate() -> None:
        own = db.connect()
        while not over.is_set():
            for ring in ("claim_ring", "tick_ring", f"event_{value(own, 'select queue_id from pgq.queue')}"):
                step(own, ring)

    rotating = in_background(rotate)
    taken = [waiting.result(60) for waiting in [in_background(partial(session, n)) for n in (1, 1, 3, 3, 10, 50)]]
    over.set()
    rotating.result(30)
    assert sorted(job for jobs in taken for job in jobs) == list(range(1, 2001))
    assert rows(conn, "select pending, running, completed from pgq.get_job_stats(%s)", QUEUE) == [(0, 0, 2000)]


def again(call: Callable[[], Claim]) -> Claim:
    """What was refused because the ring rotated was not done."""
    while True:
        try:
            return call()
        except psycopg.errors.SerializationFailure:
            continue


def test_a_dropped_queue_leaves_nothing_behind(conn: Conn) -> None:
    conn.execute("select pgq.drop_queue(%s, true)", (QUEUE,))
    assert rows(conn, "select proname from pg_proc where proname ~ '^[a-z_]+_[0-9]+_[0-9a-f]{8}$'") == []
