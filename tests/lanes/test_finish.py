"""Finishing jobs: once, by whom they belong to, at every isolation level."""

from __future__ import annotations

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
    value,
)
from tests.lanes.support import (
    QUEUE,
    Claim,
    beat,
    cancel,
    claim,
    claimed,
    complete,
    create,
    drain,
    enqueue,
    enqueue_many,
    fail,
    pass_time,
    release,
    set_clock,
    state,
    types,
    watch,
)
from tests.waiting import wait_blocked

LEVELS = ["read committed", *OLD_SNAPSHOTS]


@pytest.fixture
def conn(db: Database) -> Conn:
    conn = db.connect()
    create(conn)
    return conn


@pytest.fixture
def three(conn: Conn) -> Claim:
    """A claim of three jobs."""
    enqueue(conn, *"abc")
    return claim(conn, 3)


def evacuate_claims(conn: Conn) -> None:
    """Carry what is open along, and truncate the slot that it was in: when it is the smaller part of it."""
    step_until(conn, "claim_ring", "switched")
    enqueue_many(conn, 20, priority=30)
    drain(conn, 1)
    for result in ("closed", "truncated"):
        step_until(conn, "claim_ring", result)


def test_one_row_completes_all(conn: Conn, three: Claim) -> None:
    assert complete(conn, three) == 3
    assert complete(conn, three) == 0
    assert [state(conn, job) for job in three.jobs] == ["completed"] * 3
    assert value(conn, "select count(*) from pgq.claim_ring where kind = 'f'") == 1


def test_jobs_are_completed_one_by_one(conn: Conn, three: Claim) -> None:
    a, b, c = three.jobs
    assert complete(conn, three, a, b) == 2
    assert complete(conn, three, b) == 0
    assert complete(conn, three, b, c) == 1
    assert complete(conn, three) == 0


def test_jobs_of_others_are_refused(conn: Conn, three: Claim) -> None:
    (other,) = enqueue(conn, "other")
    with refused("PQ006", f"not a job of claim {three.id}"):
        complete(conn, three, three.jobs[0], other)
    assert types(conn, three) == ["a", "b", "c"]
    with refused("PQ006"):
        conn.execute("select pgq.complete(%s, %s, array[null]::bigint[])", three[:2])


@pytest.mark.parametrize("token", [0, None])
def test_a_wrong_token_is_no_claim(conn: Conn, three: Claim, token: int | None) -> None:
    with refused("PQ020"):
        conn.execute("select pgq.complete(%s, %s)", (three.id, token))
    with refused("PQ020"):
        conn.execute("select * from pgq.claimed(%s, %s)", (three.id, token))


def test_complete_after_fail_says_that_it_did_nothing(conn: Conn, three: Claim) -> None:
    job = three.jobs[0]
    assert fail(conn, three, job, retry_in="1 hour") == "retried"
    assert complete(conn, three, job) == 0
    assert fail(conn, three, job) is None
    assert (state(conn, job), complete(conn, three)) == ("retrying", 2)


@pytest.mark.parametrize("level", LEVELS)
def test_effects_and_completion_commit_together_or_not_at_all(db: Database, conn: Conn, level: str) -> None:
    conn.execute("create table effect (job bigint)")
    (job,) = enqueue(conn, "a")
    c, handler = claim(conn), db.connect()
    begin(handler, level)
    handler.execute("insert into effect values (%s)", (job,))
    assert complete(handler, c) == 1
    rollback(handler)
    assert state(conn, job) == "running"
    begin(handler, level)
    handler.execute("insert into effect values (%s)", (job,))
    assert complete(handler, c, job) == 1
    commit(handler)
    assert (rows(conn, "select * from effect"), state(conn, job)) == ([(job,)], "completed")


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("level", LEVELS)
def test_a_zombie_is_told_at_every_level(db: Database, conn: Conn, level: str, *, single: bool) -> None:
    """Its snapshot is older than the loss of its claim, so that it sees nothing of it."""
    set_clock(conn)
    beat(conn, "w")
    (job,) = enqueue(conn, "a")
    c, zombie = claim(conn, worker="w"), db.connect()
    begin(zombie, level)
    value(zombie, "select count(*) from pgq.claim_ring where claim_id = %s", c.id)
    assert watch(conn, 30) == 1
    with refused("PQ020"):
        complete(zombie, c, *((job,) if single else ()))
    rollback(zombie)
    again = claim(conn)
    assert claimed(conn, again) == [(job, "a", 1, 1)]
    assert complete(conn, again) == 1


@pytest.mark.parametrize("level", OLD_SNAPSHOTS)
def test_a_claim_that_was_carried_along_is_finished_by_the_repeated_transaction(
    db: Database, conn: Conn, level: str
) -> None:
    (job,) = enqueue(conn, "a")
    c, handler = claim(conn), db.connect()
    begin(handler, level)
    evacuate_claims(conn)
    with refused("40001"):
        complete(handler, c)
    rollback(handler)
    begin(handler, level)
    assert complete(handler, c, job) == 1
    commit(handler)
    assert state(conn, job) == "completed"


def test_finishes_come_to_a_closed_slot_and_are_carried_along(db: Database, conn: Conn, three: Claim) -> None:
    handler = db.connect()
    step_until(conn, "claim_ring", "switched")
    enqueue_many(conn, 20)
    drain(conn, 1)
    step_until(conn, "claim_ring", "closed")
    begin(handler)
    assert complete(handler, three, three.jobs[0]) == 1
    assert value(conn, "select pgq._ring_step('claim_ring', true)") == "blocked"
    commit(handler)
    step_until(conn, "claim_ring", "truncated")
    assert types(conn, three) == ["b", "c"]
    assert complete(conn, three) == 2


def test_a_claim_that_is_done_rotates_away(conn: Conn, three: Claim) -> None:
    complete(conn, three)
    enqueue(conn, "next")
    claim(conn)
    evacuate_claims(conn)
    with refused("PQ020", "not known any more"):
        complete(conn, three)
    assert [state(conn, job) for job in three.jobs] == ["completed"] * 3


def test_handlers_of_one_claim_do_not_wait_for_each_other(db: Database, conn: Conn, three: Claim) -> None:
    first, second = db.connect(), db.connect()
    for handler, job in ((first, three.jobs[0]), (second, three.jobs[1])):
        begin(handler)
        assert complete(handler, three, job) == 1
    commit(second)
    commit(first)
    assert types(conn, three) == ["c"]


def test_two_completions_of_one_job_wait_and_one_counts(db: Database, conn: Conn, three: Claim) -> None:
    first, second = db.connect(), db.connect()
    begin(first)
    assert complete(first, three, three.jobs[0]) == 1
    waiting = in_background(lambda: complete(second, three, three.jobs[0]))
    assert wait_blocked(conn, second.info.backend_pid) == [first.info.backend_pid]
    commit(first)
    assert waiting.result(30) == 0


def test_recovery_does_not_wait_for_a_completion_under_way(db: Database, conn: Conn) -> None:
    set_clock(conn)
    beat(conn, "w")
    (job,) = enqueue(conn, "a")
    c, handler = claim(conn, worker="w"), db.connect()
    begin(handler)
    assert complete(handler, c) == 1
    assert watch(conn, 30) == 0
    commit(handler)
    assert (watch(conn, 10), state(conn, job)) == (0, "completed")


def test_recovery_undoes_itself_when_all_was_completed_meanwhile(db: Database, conn: Conn) -> None:
    """The closing row of the worker is not one of the rows that recovery writes for each job."""
    set_clock(conn)
    beat(conn, "w")
    ids = enqueue(conn, "a", "b")
    c, handler = claim(conn, 2, "w"), db.connect()
    begin(handler)
    assert complete(handler, c) == 2
    waiting = in_background(lambda: watch(conn, 30))
    assert waiting.result(30) == 0
    commit(handler)
    assert [state(conn, job) for job in ids] == ["completed"] * 2
    assert claim(conn).id is None


# -- failing --------------------------------------------------------------------------------------------------------


def test_a_failed_job_comes_again_with_a_back_off_and_is_buried_in_the_end(conn: Conn) -> None:
    set_clock(conn)
    conn.execute("select pgq.set_retry_policy(%s, null, 2, 'exponential', '10 s', '15 s', 0)", (QUEUE,))
    (job,) = enqueue(conn, "a")
    waits = []
    for attempt in (1, 2, 3):
        c = claim(conn)
        assert claimed(conn, c) == [(job, "a", attempt, 0)]
        assert fail(conn, c, job, f"boom {attempt}") == ("retried" if attempt < 3 else "failed")
        if attempt < 3:
            assert state(conn, job) == "retrying"
            waits.append(value(conn, "select (run_at - pgq._clock())::text from pgq.get_job(%s, %s)", QUEUE, job))
        pass_time(conn, 16)
        conn.execute("select pgq.release(%s)", (QUEUE,))
    assert waits == ["00:00:10", "00:00:15"]
    assert state(conn, job) == "failed"
    assert rows(conn, "select ev_id, consumer_name, reason, attempts from pgq.dead_letter") == [(job, "", "boom 3", 3)]


def test_jitter_and_policies_of_single_types(conn: Conn) -> None:
    conn.execute("select pgq.set_retry_policy(%s, 'job:a', 9, 'fixed', '100 s', '1 hour', 0.5)", (QUEUE,))
    ids = [enqueue(conn, "a")[0] for _ in range(20)]
    c = claim(conn, 20)
    for job in ids:
        fail(conn, c, job)
    waits = [row[0] for row in rows(conn, "select extract(epoch from due - now())::float from pgq.delayed_event")]
    assert all(49 < wait < 151 for wait in waits)
    assert max(waits) - min(waits) > 10


def test_a_job_says_how_often_it_is_tried(conn: Conn) -> None:
    job = value(conn, "select id from pgq.enqueue(%s, 't', options := '{\"max_attempts\": 1}')", QUEUE)
    assert fail(conn, claim(conn), job) == "failed"


def test_what_cannot_be_retried_is_buried_at_once(conn: Conn) -> None:
    (job,) = enqueue(conn, "a")
    assert fail(conn, claim(conn), job, retryable=False) == "failed"
    assert state(conn, job) == "failed"


def test_a_retry_keeps_what_the_job_has(conn: Conn) -> None:
    options = '{"timeout": 5, "tags": ["x"], "traceparent": "00-1"}'
    job = value(
        conn, "select id from pgq.enqueue(%s, 't', '{\"a\": 1}', 150, key := 'k', options := %s)", QUEUE, options
    )
    before = rows(conn, "select payload, priority, key, options, created_at from pgq.get_job(%s, %s)", QUEUE, job)
    fail(conn, claim(conn), job, retry_in="0")
    assert (
        rows(conn, "select payload, priority, key, options, created_at from pgq.get_job(%s, %s)", QUEUE, job) == before
    )
    assert claim(conn).jobs == [job]


def test_snooze_counts_no_attempt(conn: Conn) -> None:
    set_clock(conn)
    (job,) = enqueue(conn, "a")
    c = claim(conn)
    assert value(conn, "select pgq.snooze(%s, %s, %s, '1 minute')", c.id, c.token, job) is True
    assert (state(conn, job), claim(conn).id) == ("retrying", None)
    pass_time(conn, 61)
    conn.execute("select pgq.release(%s)", (QUEUE,))
    assert claimed(conn, claim(conn)) == [(job, "a", 1, 0)]


def test_release_gives_back_at_once_what_is_unstarted(conn: Conn, three: Claim) -> None:
    a, b, c = three.jobs
    assert complete(conn, three, a) == 1
    assert release(conn, three, b) == 1
    assert release(conn, three) == 1
    assert [row[2:] for row in claimed(conn, claim(conn, 5))] == [(1, 0), (1, 0)]
    with refused("PQ020"):
        complete(conn, three, c)


def test_a_dead_letter_is_replayed_from_its_first_attempt(conn: Conn) -> None:
    (job,) = enqueue(conn, "a", priority=150, key="k")
    fail(conn, claim(conn), job, retryable=False)
    assert value(conn, "select pgq.retry_jobs(%s, %s)", QUEUE, [job]) == 1
    assert value(conn, "select pgq.retry_jobs(%s, %s)", QUEUE, [job]) == 0
    c = claim(conn)
    assert claimed(conn, c) == [(job, "a", 1, 0)]
    assert value(conn, "select created from pgq.enqueue(%s, 'x', key := 'k')", QUEUE) is False


def test_a_replay_is_refused_while_its_key_is_another_jobs(conn: Conn) -> None:
    (job,) = enqueue(conn, "a", key="k")
    fail(conn, claim(conn), job, retryable=False)
    enqueue(conn, "b", key="k")
    with refused("PQ024"):
        conn.execute("select pgq.dlq_replay((select dl_id from pgq.dead_letter))")
    assert drain(conn) == ["b"]
    assert value(conn, "select pgq.dlq_replay((select dl_id from pgq.dead_letter))") == job
    assert drain(conn) == ["a"]


# -- cancelling -----------------------------------------------------------------------------------------------------


def test_cancel_wherever_a_job_is(conn: Conn) -> None:
    pending, running, done = enqueue(conn, "pending", "running", "done")
    scheduled = value(conn, "select id from pgq.enqueue(%s, 'later', run_at := now() + interval '1 hour')", QUEUE)
    c = claim(conn, 3)
    release(conn, c, pending)
    complete(conn, c, done)
    assert cancel(conn, scheduled, pending, running, done, 12345) == {
        scheduled: "cancelled", pending: "cancelled", running: "cancel_requested", done: "completed", 12345: None,
    }  # fmt: skip
    assert cancel(conn, scheduled, pending)[pending] == "cancelled"
    assert (state(conn, scheduled), state(conn, pending)) == ("cancelled", "cancelled")
    assert claim(conn).id is None


def test_cancelled_jobs_are_passed_over_and_leave_no_trace_in_the_lane(conn: Conn) -> None:
    ids = enqueue(conn, *"abcdef")
    cancel(conn, *ids[1:4])
    assert drain(conn, 2) == ["a", "e", "f"]
    assert all(outcome == "cancelled" for outcome in cancel(conn, *ids[1:4]).values())


def test_cancel_beats_retry(conn: Conn) -> None:
    """At the moment of failure."""
    (job,) = enqueue(conn, "a", key="k")
    c = claim(conn, worker="w")
    assert cancel(conn, job) == {job: "cancel_requested"}
    assert fail(conn, c, job, retry_in="0") == "cancelled"
    assert (state(conn, job), claim(conn).id) == ("cancelled", None)
    assert value(conn, "select created from pgq.enqueue(%s, 'b', key := 'k')", QUEUE)


def test_a_running_job_that_is_to_be_cancelled_may_still_complete(conn: Conn) -> None:
    (job,) = enqueue(conn, "a")
    beat(conn, "w")
    c = claim(conn, worker="w")
    cancel(conn, job)
    assert beat(conn, "w", c.id) == [(c.id, job)]
    assert complete(conn, c) == 1
    assert state(conn, job) == "completed"


def test_cancelling_tells_the_worker(db: Database, conn: Conn) -> None:
    (job,) = enqueue(conn, "a")
    c = claim(conn)
    listener = db.connect()
    listener.execute("listen pgq_cancel_1")
    cancel(conn, job)
    (note,) = listener.notifies(timeout=10, stop_after=1)
    assert note.payload == f"{c.id} {job}"


def test_a_retry_that_waits_is_cancelled_with_its_key(conn: Conn) -> None:
    (job,) = enqueue(conn, "a", key="k")
    fail(conn, claim(conn), job, retry_in="1 hour")
    assert cancel(conn, job) == {job: "cancelled"}
    assert value(conn, "select created from pgq.enqueue(%s, 'b', key := 'k')", QUEUE)


# -- progress and results -------------------------------------------------------------------------------------------


def test_the_newest_word_of_progress_counts(conn: Conn, three: Claim) -> None:
    job = three.jobs[0]
    for percent in (10, 50.5):
        conn.execute("select pgq.progress(%s, %s, %s, %s, 'copying', '{\"rows\": 5}')", (*three[:2], job, percent))
    evacuate_claims(conn)
    progress = value(conn, "select progress from pgq.get_job(%s, %s)", QUEUE, job)
    assert progress == {"percent": 50.5, "stage": "copying", "data": {"rows": 5}}
    with refused("PQ006", "progress cannot be 101"):
        conn.execute("select pgq.progress(%s, %s, %s, 101)", (*three[:2], job))
    complete(conn, three, job)
    with refused("PQ020"):
        conn.execute("select pgq.progress(%s, %s, %s, 60)", (*three[:2], job))


def test_a_result_is_kept_for_its_time(conn: Conn) -> None:
    jobs = enqueue(conn, "a", "b")
    c = claim(conn, 2)
    with conn.transaction():
        conn.execute("select pgq.set_result(%s, %s, %s, '{\"answer\": 42}')", (*c[:2], jobs[0]))
        conn.execute("select pgq.set_result(%s, %s, %s, '1', '0')", (*c[:2], jobs[1]))
        complete(conn, c)
    enqueue(conn, "next")
    drain(conn)
    evacuate_claims(conn)
    assert rows(conn, "select * from pgq.get_result(%s, %s)", QUEUE, jobs[0]) == [("completed", {"answer": 42}, None)]
    with refused("PQ025"):
        conn.execute("select * from pgq.get_result(%s, %s)", (QUEUE, jobs[1]))
