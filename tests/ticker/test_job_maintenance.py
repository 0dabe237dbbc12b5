"""Maintenance of jobs: the dead are buried, totals are swept, and an idle database is not written to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgq_py.settings import load_settings
from pgq_py.ticker.maintenance import Maintenance
from tests.clusters import Database
from tests.ticker.conftest import running_ticker
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def emails(db: Database) -> None:
    db.rows("select pgq.create_job_queue('emails')")
    db.rows("select pgq.enqueue('emails', 'send') from generate_series(1, 3)")


@pytest.fixture
def maintained(db: Database) -> Iterator[Maintenance]:
    found = Maintenance(load_settings(dsn=db.dsn))
    yield found
    found.stop()


def operations(db: Database) -> list[tuple[str, str | None]]:
    return [(name, argument) for name, argument in db.rows("select * from pgq.maint_operations()") if "job" in name]


def test_only_what_has_something_to_do_is_listed(db: Database, maintained: Maintenance) -> None:
    assert operations(db) == []
    ((claim, token),) = db.rows("select claim_id, token from pgq.take('emails', 'w', 1)")
    assert operations(db) == [("pgq.maint_recover_jobs", None)]  # a lease that may run out
    db.rows("select pgq.complete(%s, %s)", [claim, token])
    assert operations(db) == [("pgq.maint_sweep_jobs", "emails")]
    maintained.run_round()
    assert db.value("select data ->> 'completed' from pgq.claim_ring where kind = 's'") == "1"
    assert operations(db) == []
    db.rows("select pgq.heartbeat('host:1:a', '{}')")
    assert operations(db) == [("pgq.maint_recover_jobs", None)]
    db.rows("select pgq.end_worker('host:1:a')")
    assert operations(db) == [("pgq.maint_recover_jobs", None)]  # a claim may have been under way
    maintained.run_round()
    assert operations(db) == []


def test_idle_rounds_write_nothing(db: Database, maintained: Maintenance) -> None:
    ((claim, token),) = db.rows("select claim_id, token from pgq.take('emails', 'w', 1)")
    db.rows("select pgq.complete(%s, %s)", [claim, token])

    def position() -> tuple[object, ...]:
        (row,) = db.rows("select pg_snapshot_xmax(pg_current_snapshot())::text, (select count(*) from pgq.claim_ring)")
        return row

    def is_at_rest() -> bool:
        before = position()
        for _ in range(3):
            maintained.run_round()
        return position() == before

    wait_until(is_at_rest)


def test_the_ticker_gives_the_jobs_of_a_silent_worker_to_others(db: Database) -> None:
    db.rows("select pgq.set_job_config('emails', 'lease', '1 second')")
    db.rows("select pgq.heartbeat('host:1:a', '{}', '1 second')")
    assert len(db.rows("select * from pgq.claim('emails', 'host:1:a', 3)")) == 1

    def again() -> list[tuple[object, ...]]:
        return db.rows("select job_id from pgq.take('emails', 'other', 1)")

    with running_ticker(db.dsn, tick_interval=0.01, maintenance_interval=0.1):
        found = {wait_until(again)[0] for _ in range(3)}
    assert found == {(1,), (2,), (3,)}
    assert db.value("select lost from pgq.worker")
    assert db.value("select lost from pgq.get_job_stats('emails')") == 3


def test_what_was_cancelled_is_scheduled_no_more(db: Database) -> None:
    db.rows("select pgq.enqueue('emails', 'later', run_at => now() + interval '1 hour') from generate_series(1, 2)")
    query = "select scheduled, retrying from pgq.get_job_stats('emails')"
    assert db.rows(query) == [(2, 0)]
    db.rows("select pgq.cancel('emails', '{4}')")
    assert db.rows(query) == [(1, 0)]
    ((claim, token, job),) = db.rows("select claim_id, token, job_id from pgq.take('emails', 'w', 1)")
    db.rows("select pgq.fail(%s, %s, %s, 'no', '1 hour')", [claim, token, job])
    assert db.rows(query) == [(1, 1)]
    db.rows("select pgq.cancel('emails', array[%s::bigint, 5])", [job])
    assert db.rows(query) == [(0, 0)]


def test_what_was_cancelled_is_pending_no_more(db: Database) -> None:
    db.rows("select pgq.cancel('emails', '{1,2}')")
    query = "select pending, oldest_pending is null from pgq.get_job_stats('emails')"
    assert db.rows(query) == [(1, False)]
    db.rows("select pgq.force_tick('emails'), pgq.ticker('emails')")
    assert db.rows("select next_job from pgq.get_lane_info('emails') where priority = 100") == [(3,)]
    db.rows("select pgq.cancel('emails', '{3}')")
    assert db.rows(query) == [(0, True)]
    assert db.rows("select next_job from pgq.get_lane_info('emails') where priority = 100") == [(None,)]


def test_lanes_tell_what_comes_next_whatever_is_in_front(db: Database) -> None:
    db.rows("select pgq.enqueue('emails', 'low', priority => 30)")
    db.rows("select pgq.force_tick('emails'), pgq.ticker('emails')")
    query = "select priority, next_job, waiting > '0 s', last_claim is not null from pgq.get_lane_info('emails')"
    assert db.rows(query) == [
        (150, None, None, False),
        (100, 1, True, False),
        (30, 4, True, False),
        (0, None, None, False),
    ]
    db.rows("select pgq.take('emails', 'w', 2)")
    assert db.rows(query)[1:3] == [(100, 3, True, True), (30, 4, True, False)]
    assert db.rows("select * from pgq.get_lane_info('nothing')") == []
