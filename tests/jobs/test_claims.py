"""Claims and what workers rest on, through SQL alone."""

from __future__ import annotations

import pytest

from tests.clusters import Database
from tests.engine.support import begin, refused, rollback, rows, value
from tests.jobs.working import enqueue, enqueue_many, make_queue

READ = (
    "select coalesce(sum(seq_tup_read + idx_tup_fetch), 0) from pg_stat_xact_user_tables"
    " where schemaname = 'pgq' and relname like 'event%%'"
)


@pytest.mark.parametrize("statistics", [False, True])
def test_a_claim_reads_no_more_than_it_takes(db: Database, statistics: bool) -> None:
    """Whatever the planner knows of the table; the lanes above are empty and are not read either."""
    make_queue(db)
    for _ in range(4):
        enqueue_many(db, "job", [{}] * 5000)
    db.value("select pgq.poke('jobs')")
    if statistics:
        db.rows("vacuum analyze")
    conn = db.connect()
    for _ in range(7):  # past the point where generic plans are made
        assert value(conn, "select cardinality(job_ids) from pgq.claim('jobs', 'w', 1000)") == 1000
    begin(conn)
    before = value(conn, READ)
    assert value(conn, "select cardinality(job_ids) from pgq.claim('jobs', 'w', 10)") == 10
    assert value(conn, READ) - before < 50
    rollback(conn)


def test_most_attempts_are_the_jobs_own_or_its_types(db: Database) -> None:
    make_queue(db)
    conn = db.connect()
    value(conn, "select pgq.set_retry_policy('jobs', 'job:a', 2, 'fixed', '1 second')")
    for kind, options in (("a", None), ("b", None), ("a", '{"max_attempts": 9}')):
        rows(conn, "select pgq.enqueue('jobs', %s, options => %s)", kind, options)
    value(conn, "select pgq.insert_event('jobs', null, '{}')")
    claim = rows(conn, "select claim_id, token from pgq.claim('jobs', 'w', 10)")[0]
    found = rows(conn, "select type, max_attempts from pgq.claimed(%s, %s)", *claim)
    assert found == [("a", 3), ("b", 6), ("a", 9), (None, 6)]


def test_recovery_without_a_living_worker(db: Database) -> None:
    conn = db.connect()
    assert value(conn, "select pgq.recover()") == 0
    make_queue(db)
    rows(conn, "select pgq.heartbeat('w', null, '1 second')")
    assert value(conn, "select pgq.end_worker('w')") == 0
    assert value(conn, "select pgq.recover()") == 0


def test_whether_a_job_waits_that_must_run_alone(db: Database) -> None:
    make_queue(db)
    conn = db.connect()
    waits = "select pgq.solo_waits('jobs')"
    enqueue(db, "job")
    assert value(conn, waits) is False
    rows(conn, "select pgq.heartbeat('w', null, '1 second')")
    assert value(conn, "select cardinality(job_ids) from pgq.claim('jobs', 'w', 1)") == 1
    conn.execute("update pgq.worker set ended_at = now(), lost = true")
    assert value(conn, "select pgq.recover()") == 1
    value(conn, "select pgq.poke('jobs')")
    assert value(conn, waits) is True
    assert rows(conn, "select job_ids from pgq.claim('jobs', 'x', 1, false)") == [(None,)]
    assert value(conn, "select cardinality(job_ids) from pgq.claim('jobs', 'x', 1, true)") == 1
    assert value(conn, waits) is False
    value(conn, "select pgq.create_queue('events')")
    with refused("PQ023"):
        value(conn, "select pgq.solo_waits('events')")
