"""Delayed events: never early, once, cancellable, and no queue in another's way."""

from __future__ import annotations

import pytest

from tests.clusters import Database
from tests.engine.support import (
    OLD_SNAPSHOTS,
    QUEUE,
    begin,
    commit,
    configure,
    create,
    deliver,
    refused,
    rows,
    step,
    take,
    tick,
    value,
)
from tests.waiting import wait_until

LATER = "select pgq.send(%s, 't', %s::text, deliver_in => %s::interval)"
RELEASE = "select pgq.release(%s)"


def test_an_event_comes_at_its_time_and_not_before(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    due = value(conn, "select clock_timestamp() + interval '300 ms'")
    value(conn, "select pgq.send(%s, 't', 'later'::text, deliver_at => %s)", QUEUE, due)
    assert value(conn, "select pgq.send(%s, 't', 'now'::text, deliver_at => now() - interval '1 day')", QUEUE)
    assert deliver(conn) == ["now"]
    wait_until(lambda: value(conn, RELEASE, QUEUE))
    assert value(conn, "select clock_timestamp() >= %s", due)
    assert deliver(conn) == ["later"]
    assert value(conn, RELEASE, QUEUE) is None


@pytest.mark.parametrize("level", OLD_SNAPSHOTS)
def test_a_late_commit_of_a_past_due_time_is_released_by_the_next_step(db: Database, level: str) -> None:
    """A release in between has passed its due time already; its transaction was running then."""
    conn, writer = db.connect(), db.connect()
    create(conn, "c")
    begin(writer, level)
    value(writer, LATER, QUEUE, "late", "500 ms")
    value(conn, LATER, QUEUE, "prompt", "600 ms")
    wait_until(lambda: value(conn, RELEASE, QUEUE))
    assert deliver(conn) == ["prompt"]
    commit(writer)
    assert rows(conn, "select wait_ms from pgq.releases_due() where queue_name = %s", QUEUE) == [(0,)]
    assert value(conn, RELEASE, QUEUE) == 1
    assert deliver(conn) == ["late"]


def test_what_is_due_when_is_known_without_asking_again_and_again(db: Database) -> None:
    conn = db.connect()
    create(conn)
    assert rows(conn, "select * from pgq.releases_due()") == []
    value(conn, LATER, QUEUE, "x", "1 hour")
    ((queue, wait_ms),) = rows(conn, "select * from pgq.releases_due()")
    assert queue == QUEUE
    assert wait_ms <= 3_600_000


def test_events_come_in_the_order_of_their_times(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    with conn.transaction():
        for name, delay in (("third", "700 ms"), ("first", "500 ms"), ("second", "600 ms")):
            value(conn, LATER, QUEUE, name, delay)
    wait_until(lambda: value(conn, "select bool_and(due < clock_timestamp()) from pgq.delayed_event"))
    assert value(conn, RELEASE, QUEUE) == 3
    assert [data for (data,) in rows(conn, "select ev_data from pgq.event_template order by ctid")] == [
        "first",
        "second",
        "third",
    ]


def test_a_cancelled_event_never_comes(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    cancelled, kept = (value(conn, LATER, QUEUE, name, "500 ms") for name in ("cancelled", "kept"))
    cancel = "select pgq.cancel_event(%s, %s)"
    assert [value(conn, cancel, QUEUE, cancelled) for _ in range(2)] == [1, 0]
    ring = f"delay_{value(conn, 'select queue_id from pgq.queue')}"
    assert step(conn, ring) == "switched"
    for _ in range(3):
        value(conn, LATER, QUEUE, "filler", "1 day")
    assert [step(conn, ring) for _ in range(2)] == ["closed", "truncated"]
    wait_until(lambda: value(conn, RELEASE, QUEUE))
    assert value(conn, cancel, QUEUE, kept) == 0
    assert deliver(conn) == ["kept"]
    assert rows(conn, "select * from pgq.delayed_event where ev_data <> 'filler'") == []


def test_a_rolled_back_cancellation_is_none(db: Database) -> None:
    conn, other = db.connect(), db.connect()
    create(conn, "c")
    event = value(conn, LATER, QUEUE, "x", "500 ms")
    begin(other)
    assert value(other, "select pgq.cancel_event(%s, %s)", QUEUE, event) == 1
    other.rollback()
    wait_until(lambda: value(conn, RELEASE, QUEUE))
    assert deliver(conn) == ["x"]


def test_one_queue_holds_up_no_other(db: Database) -> None:
    """Scenario 11: locked, paused, disabled, and broken ones among them."""
    conn, holder = db.connect(), db.connect()
    for name in ("locked", "paused", "disabled", "broken", "fine"):
        create(conn, "c", queue=name)
        value(conn, LATER, name, name, "500 ms")
    configure(conn, "ticker_paused", "true", "paused")
    configure(conn, "disable_insert", "true", "disabled")
    number = "select queue_id from pgq.queue where queue_name = %s"
    begin(holder)
    rows(holder, "select from pgq.ring where ring_name = 'delay_' || (" + number + ") for update", "locked")
    table = value(conn, "select tableoid::regclass::text from pgq.tick_ring limit 1")
    conn.execute(
        f"update {table} set tick_snapshot = '9000000000:9000000000:' where tick_queue = -({number})".encode(),
        ["broken"],
    )
    wait_until(lambda: value(conn, "select bool_and(due < clock_timestamp()) from pgq.delayed_event"))
    value(conn, "select pgq.maint_retry_events()")
    assert take(conn, queue="fine") is None
    assert tick(conn, "fine")
    assert take(conn, queue="fine") == ["fine"]
    assert deliver(conn, queue="disabled") == ["disabled"]
    with refused("PQ010"):
        value(conn, RELEASE, "broken")
    holder.rollback()
    assert value(conn, RELEASE, "locked") == 1
    assert deliver(conn, queue="locked") == ["locked"]


def test_poke_releases_and_then_ticks(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    value(conn, LATER, QUEUE, "x", "500 ms")
    poke = "select pgq.poke(%s)"
    wait_until(lambda: value(conn, poke, QUEUE) == 0)
    assert value(conn, poke, QUEUE) > 1
    assert take(conn) == ["x"]


def test_many_at_once(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    batch = "select pgq.send_batch_at(%s, %s::timestamptz[], 't', %s::text[])"
    now = value(conn, "select clock_timestamp()")
    ids = value(conn, batch, QUEUE, [value(conn, "select now() + interval '500 ms'")], ["a", "b", "c"])
    assert ids == sorted(ids)
    assert value(conn, batch, QUEUE, [], []) == []
    for times, data in (([now], None), ([now, now], ["a"]), ([None], ["a"])):
        with refused("PQ006"):
            value(conn, batch, QUEUE, times, data)
    wait_until(lambda: value(conn, RELEASE, QUEUE))
    assert deliver(conn) == ["a", "b", "c"]


@pytest.mark.parametrize("due", [None, "infinity", "-infinity", "9999-01-01"])
def test_impossible_times_are_refused(db: Database, due: str | None) -> None:
    conn = db.connect()
    create(conn)
    with refused("PQ006"):
        value(conn, "select pgq.insert_event_at(%s, %s, 't', 'x')", QUEUE, due)
    assert rows(conn, "select * from pgq.delayed_event") == []
