"""Reading: nothing is skipped, nothing acknowledged that was not handed out, whatever way the loop is left."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

import pytest

from pgq_py import BatchNotFound, ConnectionFailed, ConsumerNotRegistered, InvalidArgument, PositionGone, QueueNotFound
from pgq_py.app import PgQ
from pgq_py.client._sync import answers
from pgq_py.client._sync.batches import FETCH_ROWS
from tests.clusters import Database
from tests.waiting import wait_until


def send(pgq: PgQ, *values: object) -> None:
    """Events of one tick window."""
    pgq.send_many("orders", values)
    pgq.force_tick("orders")


def rest(pgq: PgQ, consumer: str = "mailer") -> list[str | None]:
    """What is still to come."""
    with pgq.batches("orders", consumer, wait=0) as batches:
        return [event.data for batch in batches for event in batch]


def test_a_loop_ends_when_nothing_waits(pgq: PgQ) -> None:
    send(pgq, "a", "b")
    assert rest(pgq) == ["a", "b"]
    assert rest(pgq) == []


def test_leaving_normally_acknowledges_and_an_exception_does_not(pgq: PgQ) -> None:
    send(pgq, "a", "b")
    with suppress(ZeroDivisionError), pgq.batches("orders", "mailer", wait=0) as batches:
        for batch in batches:
            assert len(list(batch)) == 2
            raise ZeroDivisionError
    with pgq.batches("orders", "mailer", wait=0) as batches:
        for batch in batches:
            assert len(list(batch)) == 2
            break
    assert rest(pgq) == []


def test_progress_inside_a_batch_survives_an_exception(pgq: PgQ) -> None:
    send(pgq, "a", "b", "c")
    with suppress(ZeroDivisionError), pgq.batches("orders", "mailer", wait=0) as batches:
        for batch in batches:
            for event in batch:
                if event.data == "b":
                    raise ZeroDivisionError
                batch.ack(event)
    assert rest(pgq) == ["b", "c"]


def test_a_batch_read_in_part_is_acknowledged_in_part(pgq: PgQ) -> None:
    send(pgq, *"abcdef")
    with pgq.batches("orders", "mailer", wait=0) as batches:
        for batch in batches:
            for event in batch:
                if event.data == "b":
                    break
            break
    with pgq.batches("orders", "mailer", wait=0) as batches:
        batch = next(batches)
        assert [event.data for event in batch.fetch(2)] == ["c", "d"]
        assert [event.data for event in next(batches)] == ["e", "f"]
    assert rest(pgq) == []


def test_a_batch_of_which_nothing_was_read_is_skipped(pgq: PgQ) -> None:
    send(pgq, "a")
    with pgq.batches("orders", "mailer", wait=0) as batches:
        for _ in batches:
            pass
    assert rest(pgq) == []


def test_a_second_loop_over_a_batch_goes_on(pgq: PgQ) -> None:
    numbers = [str(number) for number in range(2 * FETCH_ROWS + 1)]
    send(pgq, *numbers)
    with pgq.batches("orders", "mailer", wait=0) as batches:
        for batch in batches:
            for event in batch:
                if event.data == "5":
                    break
            assert [event.data for event in batch.fetch(3)] == ["6", "7", "8"]
            assert [event.data for event in batch] == numbers[9:]
            assert batch.exhausted
            assert batch.fetch(1) == []


@pytest.mark.parametrize("count", [FETCH_ROWS - 1, FETCH_ROWS, FETCH_ROWS + 1, 3 * FETCH_ROWS])
def test_batches_around_the_size_of_a_fetch(pgq: PgQ, count: int) -> None:
    send(pgq, *range(count))
    assert rest(pgq) == [str(number) for number in range(count)]
    assert rest(pgq) == []


@pytest.mark.parametrize("handler", ["quick", "slow"])
def test_acknowledging_and_leaving_while_the_next_answer_is_under_way(
    pgq: PgQ, handler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quick reader asks ahead; one that takes its time does not."""
    monkeypatch.setattr(answers, "QUICK", 0.0 if handler == "slow" else 60.0)
    numbers = [str(number) for number in range(30_000)]
    send(pgq, *numbers)
    seen: list[str | None] = []
    under_way = 0
    with pgq.batches("orders", "mailer", wait=0) as batches:
        for batch in batches:
            for event in batch:
                seen.append(event.data)
                asked = batches._subscription._answers._asked
                under_way += bool(asked)
                if len(seen) % 1_700 == 0:
                    batch.ack(event)
                if len(seen) in {1_234, 7_777, 21_111}:
                    break
            assert batch.fetch(1)[0].data == numbers[len(seen)]
            seen.append(numbers[len(seen)])
            if len(seen) > 20_000:
                break
    assert seen == numbers[: len(seen)]
    assert (under_way > 0) == (handler == "quick")
    assert rest(pgq) == numbers[len(seen) :]


def test_a_connection_that_dies_while_the_next_answer_is_under_way(pgq: PgQ, db: Database) -> None:
    def die() -> None:
        with pgq.batches("orders", "mailer", wait=0) as batches:
            for batch in batches:
                for nth, event in enumerate(batch):
                    if nth == 3_000:
                        batch.ack(event)
                        db.rows(
                            "select pg_terminate_backend(pid, 10000) from pg_stat_activity"
                            " where application_name = 'pgq mailer'"
                        )

    send(pgq, *range(50_000))
    with pytest.raises(ConnectionFailed):
        die()
    assert rest(pgq) == [str(number) for number in range(3_001, 50_000)]


def test_a_spooled_batch_holds_no_snapshot_and_no_lock(pgq: PgQ, db: Database) -> None:
    send(pgq, *range(3 * FETCH_ROWS))
    with pgq.batches("orders", "mailer", wait=0) as batches:
        seen = iter(next(batches))
        next(seen)
        session = db.rows("select pid, state, backend_xmin from pg_stat_activity where application_name = 'pgq mailer'")
        ((pid, state, xmin),) = session
        assert (state, xmin) == ("idle", None)
        assert db.rows("select from pg_locks where pid = %s and locktype = 'relation'", [pid]) == []
        assert len(list(seen)) == 3 * FETCH_ROWS - 1


@pytest.mark.slow
@pytest.mark.newest
def test_windows_are_merged_and_a_long_absence_is_a_few_batches(pgq: PgQ, db: Database) -> None:
    """Scenario 14."""
    db.rows(
        "create procedure busy() language plpgsql as $$ begin for n in 1..10000 loop"
        " perform pgq.insert_event('orders', null, n::text); commit;"
        " perform pgq.ticker('orders'); commit; end loop; end $$"
    )
    db.rows("call busy()")
    with pgq.batches("orders", "mailer", wait=0, max_events=4000) as batches:
        sizes = [len(list(batch)) for batch in batches]
    assert sum(sizes) == 10_000
    assert len(sizes) <= 4


def test_empty_batches_are_passed(pgq: PgQ) -> None:
    for _ in range(3):
        pgq.force_tick("orders")
    send(pgq, "a")
    for _ in range(3):
        pgq.force_tick("orders")
    with pgq.batches("orders", "mailer", wait=0, max_events=1) as batches:
        assert [[event.data for event in batch] for batch in batches] == [["a"]]
    assert pgq.consumer_info("orders", "mailer").pending_events == 0


def test_ten_waiting_batches_are_drained_without_waiting(pgq: PgQ) -> None:
    """Scenario 4b."""
    for number in range(10):
        send(pgq, number)
    started = time.monotonic()
    with pgq.batches("orders", "mailer", wait=0, max_events=1) as batches:
        assert len([list(batch) for batch in batches]) == 10
    assert time.monotonic() - started < 1


def test_wait_is_how_long_a_loop_goes_on_without_events(pgq: PgQ) -> None:
    started = time.monotonic()
    with pgq.batches("orders", "mailer", wait=0.2) as batches:
        assert list(batches) == []
    assert 0.2 <= time.monotonic() - started < 2


def test_delivery_without_any_ticker(pgq: PgQ) -> None:
    pgq.send("orders", "a")
    with pgq.batches("orders", "mailer", wait=10) as batches:
        assert [event.data for event in next(batches)] == ["a"]


def test_a_waiting_loop_is_stopped_at_once(pgq: PgQ) -> None:
    """Scenario 21."""
    with pgq.batches("orders", "mailer") as batches:
        thread = threading.Thread(target=list, args=(batches,))
        thread.start()
        batches.stop()
        thread.join(2)
        assert not thread.is_alive()


def test_one_loop_owns_the_subscription_and_the_other_takes_over(pgq: PgQ, db: Database) -> None:
    """Scenario 5."""
    send(pgq, "a", "b")
    with pgq.batches("orders", "mailer", wait=30) as standby:
        with pgq.batches("orders", "mailer", wait=0) as owner:
            assert [event.data for event in next(owner).fetch(1)] == ["a"]
            with pgq.batches("orders", "mailer", wait=0.1) as impatient:
                assert list(impatient) == []
        assert [event.data for event in next(standby)] == ["b"]


def test_two_readers_of_one_batch_cannot_both_acknowledge_it(pgq: PgQ) -> None:
    """Scenario 5, should the lock fail: here one reads by `receive`, which takes none."""
    send(pgq, "a", "b")
    with suppress(BatchNotFound), pgq.batches("orders", "mailer", wait=0) as batches:
        for batch in batches:
            assert len(list(batch)) == 2
            received = pgq.receive("orders", "mailer")
            assert received.batch_id == batch.id
            assert pgq.ack("orders", "mailer", batch.id)
            with pytest.raises(BatchNotFound):
                batch.ack()
    assert rest(pgq) == []


def test_receive_in_pieces(pgq: PgQ) -> None:
    """Scenario 4."""
    send(pgq, *range(105))
    first = pgq.receive("orders", "mailer")
    assert [event.json for event in first] == list(range(100))
    assert pgq.receive("orders", "mailer") == first
    assert first.batch_id is not None
    assert not pgq.ack("orders", "mailer", first.batch_id)
    second = pgq.receive("orders", "mailer")
    assert [event.json for event in second] == list(range(100, 105))
    assert second.batch_id == first.batch_id
    assert pgq.ack("orders", "mailer", first.batch_id)
    nothing = pgq.receive("orders", "mailer")
    assert nothing == []
    assert nothing.batch_id is None


def test_a_part_of_what_was_received_is_acknowledged(pgq: PgQ) -> None:
    send(pgq, *"abcd")
    received = pgq.receive("orders", "mailer", 3)
    assert received.batch_id is not None
    assert not pgq.ack("orders", "mailer", received.batch_id, received[1].id)
    assert [event.data for event in pgq.receive("orders", "mailer")] == ["c", "d"]


def test_receive_and_ack_with_the_consumers_own_writes(pgq: PgQ, db: Database) -> None:
    db.rows("create table seen (data text)")
    send(pgq, "a")
    for fail in (True, False):
        with suppress(ZeroDivisionError), pgq.transaction() as tx:
            events = pgq.receive("orders", "mailer", conn=tx)
            assert events.batch_id is not None
            tx.execute("insert into seen values (%s)", [events[0].data])
            pgq.ack("orders", "mailer", events.batch_id, conn=tx)
            if fail:
                raise ZeroDivisionError
    assert db.rows("select * from seen") == [("a",)]
    assert rest(pgq) == []


def test_a_batch_is_not_another_consumers(pgq: PgQ) -> None:
    pgq.register_consumer("orders", "other")
    send(pgq, "a")
    received = pgq.receive("orders", "mailer")
    assert received.batch_id is not None
    with pytest.raises(BatchNotFound):
        pgq.ack("orders", "other", received.batch_id)
    assert rest(pgq, "other") == ["a"]


def test_seek_back_forth_and_beyond(pgq: PgQ, db: Database) -> None:
    send(pgq, "a")
    between = db.value("select clock_timestamp()")
    send(pgq, "b")
    assert rest(pgq) == ["a", "b"]
    pgq.seek("orders", "mailer", "earliest")
    assert rest(pgq) == ["a", "b"]
    pgq.seek("orders", "mailer", between)
    assert rest(pgq) == ["b"]
    tick = pgq.seek("orders", "mailer", "latest")
    assert rest(pgq) == []
    pgq.seek("orders", "mailer", tick - 1)
    assert rest(pgq) == ["b"]
    with pytest.raises(PositionGone):
        pgq.seek("orders", "mailer", 10**9)
    nonsense: Any
    for nonsense in ("yesterday", None, 1.5, between.replace(tzinfo=None)):
        with pytest.raises(InvalidArgument):
            pgq.seek("orders", "mailer", nonsense)


def test_registering_at_a_position(pgq: PgQ) -> None:
    send(pgq, "a")
    assert pgq.register_consumer("orders", "new")
    assert pgq.register_consumer("orders", "old", at="earliest")
    assert not pgq.register_consumer("orders", "new", at="earliest")
    assert rest(pgq, "old") == rest(pgq, "new") == ["a"]
    assert pgq.unregister_consumer("orders", "old")
    assert not pgq.unregister_consumer("orders", "old")


def test_unknown_queues_and_consumers(pgq: PgQ) -> None:
    with pytest.raises(ConsumerNotRegistered), pgq.batches("orders", "nobody", wait=0) as batches:
        list(batches)
    with pytest.raises(QueueNotFound), pgq.batches("nowhere", "mailer", wait=0) as batches:
        list(batches)
    with pytest.raises(ConsumerNotRegistered):
        pgq.receive("orders", "nobody")
    with pytest.raises(QueueNotFound):
        pgq.register_consumer("nowhere", "mailer")


def test_arguments_are_checked_at_the_door(pgq: PgQ) -> None:
    for wait in (-1, float("inf"), "1", True):
        with pytest.raises(InvalidArgument):
            pgq.batches("orders", "mailer", wait=wait)  # type: ignore[arg-type]
    for count in (0, -1, 1.5, 2**31, True):
        with pytest.raises(InvalidArgument):
            pgq.batches("orders", "mailer", max_events=count)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument):
            pgq.receive("orders", "mailer", count)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument):
            pgq.send_many("orders", [], chunk_size=count)  # type: ignore[arg-type]


def test_a_loop_whose_connection_dies_says_so_and_the_next_one_goes_on(pgq: PgQ, db: Database) -> None:
    """Scenario 15."""

    def die_after_one() -> None:
        with pgq.batches("orders", "mailer", wait=10) as batches:
            for batch in batches:
                batch.ack(batch.fetch(1)[0])
                db.rows("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pgq mailer'")

    send(pgq, "a", "b")
    with pytest.raises(ConnectionFailed):
        die_after_one()
    wait_until(lambda: not db.rows("select from pg_stat_activity where application_name = 'pgq mailer'"))
    assert rest(pgq) == ["b"]
