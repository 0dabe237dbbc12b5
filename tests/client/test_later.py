"""Events for later, failed ones, dead letters, rights: the calls, one by one."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from pgq_py import (
    AsyncPgQ,
    BatchId,
    DeadLetterId,
    DeadLetterNotFound,
    Event,
    EventId,
    InvalidArgument,
    Nacked,
    PermissionDenied,
    QueueNotFound,
    RetryPolicy,
)
from pgq_py.app import PgQ
from tests.clusters import Database

HOUR = timedelta(hours=1)


@pytest.fixture
def queue(pgq: PgQ) -> str:
    """A queue with the consumer `mailer`."""
    return "orders"


def set_clock(db: Database, ahead: timedelta) -> None:
    """The clock of delays goes ahead; a test need not wait then."""
    db.rows("create table clock (ahead interval)")
    db.rows("insert into clock values (%s)", [ahead])
    db.rows(
        "create or replace function pgq._clock() returns timestamptz language sql as "
        "'select clock_timestamp() + (select ahead from public.clock)'"
    )


def received(pgq: PgQ, queue: str) -> list[Event]:
    pgq.force_tick(queue)
    pgq.tick(queue)
    return pgq.receive(queue, "mailer", 10_000)


def test_an_event_for_later_comes_then_and_not_before(pgq: PgQ, queue: str, db: Database) -> None:
    at = datetime.now(UTC) + HOUR
    ids = [
        pgq.send(queue, {"a": 1}, type="t", extra1="1", extra4="4", deliver_at=at),
        pgq.send(queue, "in", deliver_in=HOUR),
    ]
    assert pgq.release(queue) is None
    assert received(pgq, queue) == []
    (info,) = pgq.delay_info()
    assert (info.queue_name, info.delayed, info.retries, info.next_due) == (queue, 2, 0, at)
    set_clock(db, HOUR)
    assert pgq.release(queue) == 2
    first, second = received(pgq, queue)
    assert [first.id, second.id] == ids
    assert first[4:] == ("t", '{"a":1}', "1", None, None, "4")
    assert second.data == "in"


def test_many_for_later(pgq: PgQ, queue: str) -> None:
    assert pgq.send_many(queue, range(2500), type="n", deliver_in=timedelta(0)) == 2500
    mixed = [("t", 1, "x"), {"a": 2}, ("u", None)]
    assert pgq.send_many(queue, mixed, type="n", deliver_at=datetime.now(UTC)) == 3
    assert pgq.send_many(queue, [], deliver_in=HOUR) == 0
    pgq.release(queue)
    events = received(pgq, queue)
    assert [event.json for event in events if event.type == "n" and event.id <= 2500] == list(range(2500))
    assert [event[4:7] for event in events[2500:]] == [("t", "1", "x"), ("n", '{"a":2}', None), ("u", None, None)]


def test_a_cancelled_event_never_comes(pgq: PgQ, queue: str, db: Database) -> None:
    kept, gone = (pgq.send(queue, number, deliver_in=HOUR) for number in range(2))
    assert pgq.cancel_event(queue, gone)
    assert not pgq.cancel_event(queue, gone)
    assert not pgq.cancel_event(queue, EventId(10**6))
    set_clock(db, HOUR)
    pgq.release(queue)
    assert [event.id for event in received(pgq, queue)] == [kept]


def test_sent_for_later_in_the_caller_s_transaction(pgq: PgQ, queue: str) -> None:
    with suppress(ZeroDivisionError), pgq.transaction() as tx:
        pgq.send(queue, 1, deliver_in=HOUR, conn=tx)
        pgq.send_many(queue, [2], deliver_in=HOUR, conn=tx)
        assert pgq.delay_info(conn=tx)[0].delayed == 2
        raise ZeroDivisionError
    assert pgq.delay_info()[0].delayed == 0


@pytest.mark.parametrize(
    "when",
    [
        {"deliver_at": datetime(2030, 1, 1)},  # noqa: DTZ001 - that is what is refused
        {"deliver_at": "2030-01-01"},
        {"deliver_in": 5},
        {"deliver_in": timedelta(-1)},
        {"deliver_in": timedelta(0), "deliver_at": datetime.now(UTC)},
        {"deliver_at": datetime.now(UTC) + timedelta(days=36500)},
    ],
)
def test_impossible_times(pgq: PgQ, queue: str, when: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        pgq.send(queue, 1, **when)
    with pytest.raises(InvalidArgument):
        pgq.send_many(queue, [1], **when)


def test_nack_by_policy_by_interval_and_for_good(pgq: PgQ, queue: str) -> None:
    pgq.set_retry_policy(queue, RetryPolicy(max_retries=0))
    pgq.set_retry_policy(queue, RetryPolicy(max_retries=1, kind="list", delays=[timedelta(0)], jitter=0), "mailer")
    pgq.send_many(queue, range(4))
    events = received(pgq, queue)
    batch = BatchId(events.batch_id or 0)  # type: ignore[attr-defined]
    ids = [event.id for event in events]
    assert pgq.nack(queue, "mailer", batch, ids[:2], "once") == Nacked(2, 0)
    assert pgq.nack(queue, "mailer", batch, [ids[2]], retry_in=HOUR) == Nacked(1, 0)
    assert pgq.nack(queue, "mailer", batch, [ids[3]], "never", dead=True) == Nacked(0, 1)
    assert pgq.nack(queue, "mailer", batch, [ids[3]], "never", dead=True) == Nacked(0, 0)
    with pytest.raises(InvalidArgument):
        pgq.nack(queue, "mailer", batch, [EventId(10**6)])
    with pytest.raises(InvalidArgument, match="reason"):
        pgq.nack(queue, "mailer", batch, ids, "a\0b")
    pgq.ack(queue, "mailer", batch)
    pgq.release(queue)
    again = received(pgq, queue)
    assert [(event.id, event.retries) for event in again] == [(ids[0], 1), (ids[1], 1)]
    assert pgq.nack(queue, "mailer", again.batch_id, ids[:2], "twice") == Nacked(0, 2)  # type: ignore[attr-defined]
    assert [letter.reason for letter in pgq.dead_letters(queue)] == ["never", "twice", "twice"]


@pytest.fixture
def letters(pgq: PgQ, queue: str) -> list[DeadLetterId]:
    """Six dead letters, of two types by turns."""
    pgq.send_many(queue, [("even" if number % 2 == 0 else "odd", number) for number in range(6)])
    events = pgq.receive(queue, "mailer") or received(pgq, queue)
    batch = events.batch_id  # type: ignore[attr-defined]
    pgq.nack(queue, "mailer", batch, [event.id for event in events], "why", dead=True)
    pgq.ack(queue, "mailer", batch)
    return [letter.dl_id for letter in pgq.dead_letters()]


def test_dead_letters_by_filter_and_page(pgq: PgQ, queue: str, letters: list[DeadLetterId]) -> None:
    assert [letter.ev_data for letter in pgq.dead_letters(queue, "mailer", "odd")] == ["1", "3", "5"]
    assert pgq.dead_letters("other") == pgq.dead_letters(queue, "other") == []
    page = pgq.dead_letters(limit=4)
    assert [letter.dl_id for letter in page] == letters[:4]
    assert [letter.dl_id for letter in pgq.dead_letters(limit=4, after=page[-1].dl_id)] == letters[4:]
    letter = pgq.dead_letter(letters[0])
    assert (letter.queue_name, letter.consumer_name, letter.reason, letter.attempts) == (queue, "mailer", "why", 1)
    assert pgq.delay_info()[0].dead_letters == 6


def test_replay_and_purge(pgq: PgQ, queue: str, letters: list[DeadLetterId]) -> None:
    assert pgq.replay(letters[0]) == 1
    for call in (pgq.replay, pgq.dead_letter):
        with pytest.raises(DeadLetterNotFound):
            call(letters[0])
    assert pgq.purge(older_than=HOUR) == 0
    assert pgq.purge(ids=[letters[1], DeadLetterId(10**6)]) == 1
    assert pgq.purge(type="odd", older_than=timedelta(0)) == 2
    assert pgq.replay_all(queue, "mailer", "even") == 2
    assert sorted(event.id for event in received(pgq, queue)) == [1, 3, 5]
    assert pgq.purge() == 0
    with pytest.raises(QueueNotFound):
        pgq.replay_all("nowhere")


def test_seek_target_moves_nothing(pgq: PgQ, queue: str) -> None:
    latest = pgq.force_tick(queue)
    before = pgq.consumer_info(queue, "mailer").last_tick
    assert pgq.seek_target(queue, "mailer", "latest") >= latest
    assert pgq.seek_target(queue, "mailer", "earliest") == pgq.seek_target(queue, "mailer", str(before)) == before
    assert pgq.seek_target(queue, "mailer", datetime.now(UTC)) >= latest
    assert pgq.seek_target(queue, "mailer", (datetime.now(UTC) + HOUR).isoformat()) >= latest
    for nonsense in ("soon", "", datetime(2030, 1, 1)):  # noqa: DTZ001
        with pytest.raises(InvalidArgument):
            pgq.seek_target(queue, "mailer", nonsense)
    assert pgq.consumer_info(queue, "mailer").last_tick == before


def test_grants_and_slots(pgq: PgQ, queue: str, db: Database) -> None:
    role = f"app_{db.name}"
    with db.connect() as conn:
        conn.execute(f"create role {role} login")
        try:
            with PgQ(db.dsn_for(role)) as app:
                pgq.grant_produce(queue, role)
                app.send(queue, 1)
                app.send(queue, 2, deliver_in=timedelta(0))
                pgq.revoke_produce(queue, role)
                with pytest.raises(PermissionDenied):
                    app.send(queue, 3)
                assert pgq.grant_consume(queue, "mailer", role)
                assert not pgq.grant_consume(queue, "mailer", role)
                app.receive(queue, "mailer")
                assert pgq.revoke_consume(queue, "mailer", role)
                assert not pgq.revoke_consume(queue, "mailer", role)
                with pytest.raises(PermissionDenied):
                    app.receive(queue, "mailer")
        finally:
            conn.execute(f"drop owned by {role}")
            conn.execute(f"drop role {role}")
    assert pgq.create_queue("wide", slots=5)
    assert pgq.queue_info("wide").queue_ntables == 5
    with pytest.raises(InvalidArgument):
        pgq.create_queue("narrow", slots=2)


def test_wake_tells_a_ticker_of_copied_events(pgq: PgQ, queue: str, db: Database) -> None:
    with db.connect() as conn:
        conn.execute("listen pgq_wake")
        conn.execute("select pgq.arm_wake(60000)")
        pgq.wake(queue)
        assert [notice.channel for notice in conn.notifies(timeout=5, stop_after=1)] == ["pgq_wake"]


@pytest.mark.anyio
async def test_the_async_calls(pgq: PgQ, queue: str, db: Database) -> None:
    async def several() -> Any:
        for number in range(3):
            yield number

    async with AsyncPgQ(db.dsn) as apgq:
        event = await apgq.send(queue, 1, deliver_in=HOUR)
        assert await apgq.send_many(queue, several(), deliver_in=timedelta(0)) == 3
        assert await apgq.cancel_event(queue, event)
        assert await apgq.release(queue) == 3
        await apgq.set_retry_policy(queue, RetryPolicy())
        assert await apgq.dead_letters() == []
        assert len(await apgq.delay_info()) == 1


def test_a_closed_slot_is_met_by_another_attempt(pgq: PgQ, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from pgq_py.client._sync import delaying
    from pgq_py.errors import SlotClosed

    attempts: list[int] = []
    number = delaying._number

    def closed_once(conn: psycopg.Connection[Any], statement: str, parameters: list[Any]) -> int:
        attempts.append(1)
        if len(attempts) == 1:
            raise SlotClosed("closed")
        return number(conn, statement, parameters)

    monkeypatch.setattr(delaying, "_number", closed_once)
    assert pgq.send(queue, 1, deliver_in=HOUR) == 1
    assert len(attempts) == 2
    attempts.clear()
    with pgq.transaction() as tx, pytest.raises(SlotClosed):
        pgq.send(queue, 1, deliver_in=HOUR, conn=tx)
