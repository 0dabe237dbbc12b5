"""What is told of jobs: states, lists, counts, schedules."""

from __future__ import annotations

import pytest

from tests.clusters import Database
from tests.engine.support import Conn, begin, commit, in_background, refused, rollback, rows, value
from tests.lanes.support import (
    QUEUE,
    cancel,
    claim,
    complete,
    create,
    drain,
    enqueue,
    enqueue_many,
    fail,
    pass_time,
    set_clock,
    state,
)
from tests.waiting import wait_blocked, wait_until


@pytest.fixture
def conn(db: Database) -> Conn:
    conn = db.connect()
    create(conn)
    return conn


@pytest.fixture
def seven(conn: Conn) -> dict[str, int]:
    """A job in each state."""
    names = ("completed", "failed", "retrying", "running")
    jobs = dict(zip(names, enqueue(conn, *names), strict=True))
    done, failed, retried, _ = (claim(conn, worker="w") for _ in range(4))
    complete(conn, done)
    fail(conn, failed, jobs["failed"], "no way", retryable=False)
    fail(conn, retried, jobs["retrying"], "later", "1 hour")
    (jobs["cancelled"],) = enqueue(conn, "cancelled")
    cancel(conn, jobs["cancelled"])
    jobs["scheduled"] = value(
        conn, "select id from pgq.enqueue(%s, 'scheduled', run_at := now() + interval '1 hour')", QUEUE
    )
    (jobs["pending"],) = enqueue(conn, "pending")
    return jobs


def test_every_state(conn: Conn, seven: dict[str, int]) -> None:
    assert {name: state(conn, job) for name, job in seven.items()} == {name: name for name in seven}
    assert state(conn, 12345) is None


def test_lists_by_state(conn: Conn, seven: dict[str, int]) -> None:
    for name, job in seven.items():
        assert rows(conn, "select id, type, state from pgq.jobs(%s, %s)", QUEUE, name) == [(job, name, name)]
        assert rows(conn, "select id from pgq.job where state = %s", name) == [(job,)]
    assert rows(conn, "select id from pgq.jobs(%s)", QUEUE) == [(n,) for n in sorted(seven.values(), reverse=True)]
    assert rows(conn, "select id from pgq.jobs(%s, i_type := 'failed')", QUEUE) == [(seven["failed"],)]
    for bad in ("'nonsense'", "null, null, 0", "null, null, 10001"):
        with refused("PQ006"):
            conn.execute(f"select pgq.jobs('work', {bad})".encode())


def test_lists_come_in_pages(conn: Conn) -> None:
    enqueue_many(conn, 25)
    found, before = [], None
    while page := [row[0] for row in rows(conn, "select id from pgq.jobs(%s, 'pending', null, 10, %s)", QUEUE, before)]:
        found += page
        before = page[-1]
    assert found == list(range(25, 0, -1))


def test_counts(conn: Conn, seven: dict[str, int]) -> None:
    assert seven
    counts = (
        "select pending, pending_exact, scheduled, retrying, running, completed, failed, cancelled, retried, dead"
        " from pgq.job_stats"
    )
    assert rows(conn, counts) == [(1, True, 1, 1, 1, 1, 1, 0, 1, 1)]


def test_many_pending_jobs_are_estimated(conn: Conn) -> None:
    enqueue_many(conn, 12_000)
    conn.execute("select pgq.ticker(%s)", (QUEUE,))
    claim(conn)
    ((pending, exact),) = rows(conn, "select pending, pending_exact from pgq.get_job_stats()")
    assert (exact, 10_000 < pending <= 12_000) == (False, True)


def test_details_of_a_running_job(conn: Conn) -> None:
    job = value(
        conn,
        "select id from pgq.enqueue(%s, 't', '{\"a\": [1]}', 150, key := 'k', options := '{\"tags\": [\"x\"]}')",
        QUEUE,
    )
    c = claim(conn, worker="w")
    fail(conn, c, job, "boom", "0")
    c = claim(conn, worker="w2")
    found = rows(conn, "select type, priority, attempt, max_attempts, key, worker, claim_id, payload, options, error"
                       " from pgq.get_job(%s, %s)", QUEUE, job)  # fmt: skip
    assert found == [("t", 150, 2, 6, "k", "w2", c.id, '{"a": [1]}', {"tags": ["x"]}, None)]


def test_the_claim_of_a_straggler_is_found(db: Database, conn: Conn) -> None:
    """Its transaction is older than those of many claims before it."""
    late = db.connect()
    begin(late)
    (job,) = enqueue(late, "late")
    for _ in range(30):
        enqueue(conn, "x")
        complete(conn, claim(conn))
    commit(late)
    c = claim(conn)
    assert c.jobs == [job]
    assert rows(conn, "select state, claim_id from pgq.get_job(%s, %s)", QUEUE, job) == [("running", c.id)]


def test_ids_of_retried_jobs_are_found_in_their_newest_claim(conn: Conn) -> None:
    (job,) = enqueue(conn, "a")
    for _ in range(3):
        fail(conn, claim(conn), job, retry_in="0")
    c = claim(conn)
    assert rows(conn, "select state, attempt, claim_id from pgq.get_job(%s, %s)", QUEUE, job) == [("running", 4, c.id)]


# -- schedules ------------------------------------------------------------------------------------------------------


def schedule(conn: Conn, **more: object) -> None:
    conn.execute("select pgq.set_schedule('nightly', %s, 'report', '0 3 * * *')", (QUEUE,))


def fire(conn: Conn, due: str) -> int | None:
    found: int | None = value(conn, f"select pgq.fire_schedule('nightly', {due})".encode())  # type: ignore[arg-type]
    return found


def test_a_due_time_fires_once(db: Database, conn: Conn) -> None:
    set_clock(conn)
    schedule(conn)
    pass_time(conn, 100)
    due = "(select at from clock) - interval '50 seconds'"
    job = fire(conn, due)
    assert job is not None
    assert fire(conn, due) is None
    assert fire(conn, due + " - interval '10 seconds'") is None
    assert fire(conn, "(select at from clock) + interval '1 second'") is None
    assert fire(conn, due + " + interval '10 seconds'") is not None
    options = value(conn, "select options from pgq.get_job(%s, %s)", QUEUE, job)
    assert options["meta"]["schedule"] == "nightly"
    assert len(drain(conn)) == 2


def test_two_schedulers_at_once(db: Database, conn: Conn) -> None:
    set_clock(conn)
    schedule(conn)
    pass_time(conn, 100)
    first, second = db.connect(), db.connect()
    due = "(select at from clock) - interval '50 seconds'"
    begin(first)
    assert fire(first, due) is not None
    assert fire(second, due) is None  # somebody is at it
    rollback(first)
    assert fire(second, due) is not None


def test_job_and_mark_commit_together_also_for_a_crash_between(db: Database, conn: Conn) -> None:
    set_clock(conn)
    schedule(conn)
    pass_time(conn, 100)
    other = db.connect()
    due = "(select at from clock) - interval '50 seconds'"
    begin(other)
    fire(other, due)
    other.close()
    assert wait_until(lambda: fire(conn, due)) is not None  # the server takes a moment to notice
    assert len(drain(conn)) == 1


def test_marks_outlive_rotation(conn: Conn) -> None:
    set_clock(conn)
    schedule(conn)
    pass_time(conn, 100)
    fire(conn, "(select at from clock) - interval '50 seconds'")
    last = value(conn, "select last_due from pgq.get_schedules('nightly')")
    for _ in range(2):
        for n in range(10):
            conn.execute("select pgq.once('x', %s, '1 microsecond')", (str(n),))
        for _ in range(3):
            value(conn, "select pgq._ring_step('key_ring', true)")
    assert value(conn, "select last_due from pgq.get_schedules('nightly')") == last
    assert fire(conn, "(select at from clock) - interval '50 seconds'") is None


def test_a_schedule_is_set_again_without_writing(conn: Conn) -> None:
    schedule(conn)
    before = value(conn, "select xmin::text from pgq.schedule")
    assert value(conn, "select pgq.set_schedule('nightly', %s, 'report', '0 3 * * *')", QUEUE) == 0
    assert value(conn, "select xmin::text from pgq.schedule") == before
    assert value(conn, "select pgq.drop_schedule('nightly')") == 1
    assert value(conn, "select pgq.drop_schedule('nightly')") == 0
    with refused("PQ021"):
        fire(conn, "now()")


@pytest.mark.parametrize(
    "arguments",
    ["'', 'work', 't', '0 3 * * *'", "'s', 'work', '', '0 3 * * *'", "'s', 'work', 't', 'x'",
     "'s', 'work', 't', '0 3 * * *', 'Nowhere/City'", "'s', 'work', 't', '0 3 * * *', i_catch_up := 'some'",
     "'s', 'work', 't', '0 3 * * *', i_max_catch_up := 0"],
)  # fmt: skip
def test_impossible_schedules_are_refused(conn: Conn, arguments: str) -> None:
    with refused("PQ006"):
        conn.execute(f"select pgq.set_schedule({arguments})".encode())


def test_a_job_that_is_being_committed_is_seen_afterwards(db: Database, conn: Conn) -> None:
    other = db.connect()
    begin(other)
    (job,) = enqueue(other, "a", key="k")
    assert state(conn, job) is None
    waiting = in_background(lambda: enqueue(conn, "b", key="k"))
    wait_blocked(db.connect(), conn.info.backend_pid)
    commit(other)
    assert (waiting.result(30), state(conn, job)) == ([job], "pending")
