"""Leases: the jobs of a silent worker go to others, and nobody is declared dead for a silence of the database."""

from __future__ import annotations

import pytest

from tests.clusters import Database
from tests.engine.support import Conn, refused, rows, value
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
    pass_time,
    recover,
    set_clock,
    state,
    watch,
)


@pytest.fixture
def conn(db: Database) -> Conn:
    conn = db.connect()
    create(conn, lease="10 seconds")
    set_clock(conn)
    return conn


def test_the_jobs_of_a_silent_worker_come_again(conn: Conn) -> None:
    beat(conn, "w")
    (job,) = enqueue(conn, "a")
    c = claim(conn, worker="w")
    assert watch(conn, 8) == 0
    assert watch(conn, 14) == 1
    assert state(conn, job) == "pending"
    with refused("PQ020"):
        complete(conn, c)
    assert claimed(conn, claim(conn)) == [(job, "a", 1, 1)]


def test_a_worker_that_beats_keeps_its_jobs_however_long_they_take(conn: Conn) -> None:
    beat(conn, "w")
    enqueue(conn, "a")
    c = claim(conn, worker="w")
    assert watch(conn, 100, beating=("w",)) == 0
    assert complete(conn, c) == 1


def test_an_outage_longer_than_the_lease_kills_nobody(conn: Conn) -> None:
    """Nobody could beat, nor was anybody there to see it."""
    beat(conn, "w")
    enqueue(conn, "a")
    c = claim(conn, worker="w")
    watch(conn, 20, beating=("w",))
    pass_time(conn, 1000)
    assert recover(conn) == 0
    beat(conn, "w", c.id)
    assert watch(conn, 30, beating=("w",)) == 0
    assert complete(conn, c) == 1


def test_a_worker_that_does_not_come_back_after_an_outage_is_dead_a_lease_later(conn: Conn) -> None:
    beat(conn, "w")
    (job,) = enqueue(conn, "a")
    claim(conn, worker="w")
    watch(conn, 20, beating=("w",))
    pass_time(conn, 1000)
    assert watch(conn, 8) == 0
    assert watch(conn, 8) == 1
    assert state(conn, job) == "pending"


def test_a_gap_in_the_watch_is_no_proof(conn: Conn) -> None:
    beat(conn, "w")
    enqueue(conn, "a")
    claim(conn, worker="w")
    assert watch(conn, 60, every=6) == 0
    assert watch(conn, 16, every=4) == 1


def test_a_dead_worker_may_not_claim_and_beats_no_more(conn: Conn) -> None:
    beat(conn, "w")
    watch(conn, 30)
    enqueue(conn, "a")
    for call in ("select pgq.claim('work', 'w')", "select pgq.heartbeat('w')"):
        with refused("PQ022", "worker 'w' ended"):
            conn.execute(call.encode())
    assert drain(conn) == ["a"]


def test_what_a_worker_claimed_while_it_was_declared_dead_is_found(db: Database, conn: Conn) -> None:
    other = db.connect()
    beat(conn, "w")
    (job,) = enqueue(conn, "a")
    other.execute("begin")
    claim(other, worker="w")
    watch(conn, 20)
    assert value(conn, "select state from pgq.get_worker_info()") == "lost"
    other.execute("commit")
    assert watch(conn, 20) == 1
    assert state(conn, job) == "pending"


def test_a_claim_whose_answer_got_lost_is_released(conn: Conn) -> None:
    """At the second heartbeat after it: a younger one may still be on its way."""
    beat(conn, "w")
    (job,) = enqueue(conn, "a")
    claim(conn, worker="w")
    beat(conn, "w")
    assert state(conn, job) == "running"
    conn.execute("update clock set at = clock_timestamp()")
    beat(conn, "w")
    assert state(conn, job) == "running"
    conn.execute("update clock set at = clock_timestamp()")
    beat(conn, "w")
    assert state(conn, job) == "pending"
    assert claimed(conn, claim(conn)) == [(job, "a", 1, 0)]


def test_a_worker_that_knows_all_its_claims_has_none_released(conn: Conn) -> None:
    beat(conn, "w")
    (job,) = enqueue(conn, "a")
    claim(conn, worker="w")
    for _ in range(4):
        conn.execute("update clock set at = clock_timestamp()")
        conn.execute("select pgq.heartbeat('w', '{}', i_knows_all => true)")
    assert state(conn, job) == "running"
    beat(conn, "w")
    assert state(conn, job) == "pending"


@pytest.mark.parametrize("seconds", [1, 3, 20, 100])
def test_a_claim_that_commits_after_its_worker_ended_waits_as_long_again_at_most(
    db: Database, conn: Conn, seconds: int
) -> None:
    other = db.connect()
    beat(conn, "w")
    (job,) = enqueue(conn, "a")
    other.execute("begin")
    claim(other, worker="w")
    conn.execute("select pgq.end_worker('w')")
    assert watch(conn, seconds, every=0.5) == 0
    other.execute("commit")
    assert watch(conn, seconds, every=0.5) == 1
    assert state(conn, job) == "pending"


CLAIMS_READ = (
    "select sum(seq_tup_read + idx_tup_fetch)::int from pg_stat_xact_user_tables"
    " where schemaname = 'pgq' and relname like 'claim%'"
)


def test_claims_that_are_closed_cost_neither_heartbeats_nor_recovery(conn: Conn) -> None:
    for _ in range(10):
        enqueue(conn, *["a"] * 30)
        beat(conn, "w")
        for _ in range(30):
            complete(conn, claim(conn, worker="w"))

    def read_by(call: str) -> int:
        conn.execute("begin")
        before = value(conn, CLAIMS_READ)
        conn.execute(call.encode())
        read: int = value(conn, CLAIMS_READ) - before
        conn.execute("commit")
        return read

    assert read_by("select pgq.heartbeat('w', '{}')") >= 300
    assert read_by("select pgq.heartbeat('w', '{}', i_knows_all => true)") == 0
    conn.execute("select pgq.end_worker('w')")
    pass_time(conn, 16)
    assert read_by("select pgq.recover()") >= 300
    for _ in range(3):
        pass_time(conn, 4)
        assert read_by("select pgq.recover()") < 10
    pass_time(conn, 4)
    assert read_by("select pgq.recover()") >= 300


def test_a_clock_that_was_set_back_keeps_nobody_waiting(db: Database, conn: Conn) -> None:
    other = db.connect()
    beat(conn, "w")
    enqueue(conn, "a")
    other.execute("begin")
    claim(other, worker="w")
    conn.execute("select pgq.end_worker('w')")
    watch(conn, 1000, every=100)
    pass_time(conn, -500)
    other.execute("commit")
    assert recover(conn) == 1


def test_a_worker_that_stops_gives_back_at_once(conn: Conn) -> None:
    beat(conn, "w")
    a, b = enqueue(conn, "a", "b")
    c = claim(conn, 2, "w")
    complete(conn, c, a)
    assert value(conn, "select pgq.end_worker('w')") == 1
    assert (state(conn, a), state(conn, b)) == ("completed", "pending")
    assert claimed(conn, claim(conn)) == [(b, "b", 1, 0)]


def test_workers_without_heartbeats_have_a_lease_from_the_claim_on(conn: Conn) -> None:
    conn.execute("update clock set at = clock_timestamp()")
    enqueue(conn, "a", "b")
    first, second = claim(conn, worker="plain"), claim(conn, worker="plain")
    watch(conn, 8)
    conn.execute("select pgq.extend(%s, %s)", second[:2])
    conn.execute("update pgq.claim_ring set at = (select at from clock) where kind = 'e'")
    assert watch(conn, 8) == 1
    with refused("PQ020"):
        complete(conn, first)
    assert complete(conn, second) == 1
    with refused("PQ020"):
        conn.execute("select pgq.extend(%s, %s)", second[:2])


def lose(conn: Conn, worker: str, n: int = 1) -> list[int]:
    """A worker claims and dies; what it had."""
    beat(conn, worker)
    jobs = claim(conn, n, worker).jobs
    watch(conn, 30)
    return jobs


def test_a_job_that_kills_its_workers_takes_no_neighbours_along(conn: Conn) -> None:
    ids = enqueue(conn, *(["neighbour"] * 5 + ["poison"] + ["neighbour"] * 4))
    assert lose(conn, "w0", 10) == ids
    done, deaths = [], 0
    while (c := claim(conn, 10)).id is not None:
        assert len(c.jobs) == 1
        if c.jobs == [ids[5]]:
            deaths += 1
            beat(conn, f"w{deaths}")
            conn.execute("update pgq.claim_ring set worker = %s, beats = true where claim_id = %s and kind = 'q'",
                         (f"w{deaths}", c.id))  # fmt: skip
            watch(conn, 30)
        else:
            complete(conn, c)
            done += c.jobs
    assert (sorted(done), deaths) == (ids[:5] + ids[6:], 3)
    assert state(conn, ids[5]) == "failed"
    reason = value(conn, "select reason from pgq.dead_letter")
    assert "its worker died with it 4 times, the last one was w3" in reason


def test_a_busy_worker_gets_no_job_that_lost_a_worker(conn: Conn) -> None:
    (job,) = enqueue(conn, "poison")
    lose(conn, "w")
    enqueue(conn, "a")
    busy = claim(conn, 10, idle=False)
    assert [row[1] for row in claimed(conn, busy)] == ["a"]
    assert claim(conn, 10, idle=False).id is None
    assert claim(conn, 10).jobs == [job]


def test_max_losses_is_a_setting(conn: Conn) -> None:
    configure(conn, "max_losses", "1")
    (job,) = enqueue(conn, "poison")
    lose(conn, "w1")
    assert state(conn, job) == "pending"
    lose(conn, "w2")
    assert state(conn, job) == "failed"


def test_a_job_that_was_to_be_cancelled_dies_with_its_worker(conn: Conn) -> None:
    (job,) = enqueue(conn, "a", key="k")
    beat(conn, "w")
    claim(conn, worker="w")
    cancel(conn, job)
    watch(conn, 30)
    assert claim(conn).id is None
    assert value(conn, "select created from pgq.enqueue(%s, 'b', key := 'k')", QUEUE)


def test_worker_info(conn: Conn) -> None:
    for worker in ("alive", "stopped", "lost"):
        beat(conn, worker)
    enqueue(conn, *"abc")
    claim(conn, 2, "alive")
    conn.execute("select pgq.end_worker('stopped')")
    watch(conn, 30, beating=("alive",))
    assert rows(conn, "select worker, state, claims, jobs from pgq.worker_info order by 1") == [
        ("alive", "alive", 1, 2), ("lost", "lost", 0, 0), ("stopped", "stopped", 0, 0)]  # fmt: skip
    pass_time(conn, 6)
    assert value(conn, "select state from pgq.worker_info where worker = 'alive'") == "silent"


def test_recover_writes_nothing_when_there_is_nothing_to_watch(conn: Conn) -> None:
    enqueue(conn, "a")
    drain(conn)
    recover(conn)
    before = rows(conn, "select pg_current_wal_insert_lsn()::text, pg_snapshot_xmax(pg_current_snapshot())::text")
    for _ in range(5):
        assert recover(conn) == 0
    assert (
        rows(conn, "select pg_current_wal_insert_lsn()::text, pg_snapshot_xmax(pg_current_snapshot())::text") == before
    )


@pytest.mark.parametrize(
    "call",
    ["heartbeat('')", "heartbeat(repeat('x', 201))", "heartbeat('w', null, '0')", "heartbeat('w', null, '2 days')",
     "set_job_config('work', 'lease', '0')", "set_job_config('work', 'lease', null)",
     "set_job_config('work', 'x', '1')", "set_job_config('work', 'max_losses', '0')"],
)  # fmt: skip
def test_impossible_settings_are_refused(conn: Conn, call: str) -> None:
    with refused("PQ006"):
        conn.execute(f"select pgq.{call}".encode())


def test_a_role_works_one_queue(db: Database, conn: Conn) -> None:
    conn.execute("select pgq.create_job_queue('other')")
    enqueue(conn, "a")
    conn.execute("create role bee")
    assert value(conn, "select pgq.grant_work(%s, 'bee')", QUEUE) == 1
    assert value(conn, "select pgq.grant_work(%s, 'bee')", QUEUE) == 0
    try:
        conn.execute("set role bee")
        beat(conn, "bee")
        c = claim(conn, worker="bee")
        assert claimed(conn, c) != []
        assert complete(conn, c) == 1
        own, other = (value(conn, "select pgq.worker_procedure(%s)", queue) for queue in (QUEUE, "other"))
        assert rows(conn, f"call pgq.{own}(null, null, null, 'bee')") == [(None, None, None)]
        for call in (
            f"call pgq.{other}(null, null, null, 'bee')",
            "select pgq.claim('other', 'bee')",
            "select pgq.enqueue('work', 't')",
            "select pgq.cancel('work', '{1}')",
        ):
            with refused("42501"):
                conn.execute(call.encode())
        conn.execute("reset role")
        assert value(conn, "select pgq.revoke_work(%s, 'bee')", QUEUE) == 1
        conn.execute("set role bee")
        with refused("42501"):
            claim(conn)
    finally:
        conn.execute("reset role")
        conn.execute("drop owned by bee; drop role bee")
