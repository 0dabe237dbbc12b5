"""What becomes of an event on which its handler fails, and of its neighbours."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from pgq_py import DeadLetter, Discard, Event, InvalidArgument, Retry, RetryPolicy
from pgq_py.app import PgQ
from pgq_py.client.reasons import LONGEST_REASON
from pgq_py.consumers.failures import failure_of
from tests.clusters import Database
from tests.consumers.draining import is_drained
from tests.waiting import wait_until

TWICE_AT_ONCE = RetryPolicy(max_retries=2, kind="fixed", base=timedelta(0), jitter=0)
FORMS = pytest.mark.parametrize("batch", [False, True], ids=["single", "batch"])


def run(pgq: PgQ, consumer: str, events: Any) -> list[DeadLetter]:
    """Send, let the consumer work it off, retries included, and return what it gave up."""
    with pgq.runner():
        pgq.send_many("orders", events)
        wait_until(lambda: is_drained(pgq, consumer), timeout=30)
    return pgq.dead_letters("orders", consumer)


@FORMS
def test_a_poison_event_becomes_a_dead_letter_and_holds_up_nobody(pgq: PgQ, batch: bool) -> None:
    done: list[Any] = []
    attempts: list[int | None] = []

    def handle(event: Event) -> None:
        if event.json % 100 == 17:
            attempts.append(event.retries)
            raise ZeroDivisionError(f"no {event.json}")
        done.append(event.json)

    def handle_all(events: list[Event]) -> None:
        for event in events:
            handle(event)

    pgq.consumer("orders", name="mailer", batch=batch, retries=TWICE_AT_ONCE)(handle_all if batch else handle)
    letters = run(pgq, "mailer", range(300))
    assert sorted(set(done)) == [number for number in range(300) if number % 100 != 17]
    assert [letter.ev_data for letter in letters] == ["17", "117", "217"]
    assert [letter.attempts for letter in letters] == [3, 3, 3]
    assert {1, 2} <= set(attempts)
    for letter in letters:
        assert (letter.reason or "").startswith("Traceback")
        assert f"ZeroDivisionError: no {letter.ev_data}" in (letter.reason or "")
        assert "pgq_py" not in (letter.reason or ""), "the traceback begins in the handler"


@FORMS
def test_exactly_once_rolls_back_what_the_failed_event_wrote(pgq: PgQ, db: Database, batch: bool) -> None:
    db.rows("create table effect (n int check (n not in (3, 4, 60)))")

    def handle(event: Event, tx: Any) -> None:
        tx.execute("insert into effect values (1000 + %s)", [event.json])
        tx.execute("insert into effect values (%s)", [event.json])

    def handle_all(events: list[Event], tx: Any) -> None:
        for event in events:
            handle(event, tx)

    pgq.consumer("orders", name="mirror", exactly_once=True, batch=batch, retries=TWICE_AT_ONCE, max_events=20)(
        handle_all if batch else handle
    )
    letters = run(pgq, "mirror", range(100))
    assert sorted(letter.ev_data or "" for letter in letters) == ["3", "4", "60"]
    passed = [number for number in range(100) if number not in {3, 4, 60}]
    assert [row[0] for row in db.rows("select n from effect where n < 1000 order by n")] == passed
    assert [row[0] for row in db.rows("select n - 1000 from effect where n >= 1000 order by n")] == passed


@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.anyio
async def test_coroutine_handlers_fail_the_same_way(pgq: PgQ, exactly_once: bool) -> None:
    async def handle(event: Event, *tx: Any) -> None:
        if event.json == 5:
            raise Discard("never five")

    pgq.consumer("orders", name="mirror", exactly_once=exactly_once)(handle)
    assert [letter.reason for letter in run(pgq, "mirror", range(10))] == ["never five"]


def test_retry_comes_again_at_its_time_and_counts(pgq: PgQ) -> None:
    seen: list[tuple[int | None, datetime]] = []
    pause = timedelta(seconds=0.3)

    @pgq.consumer("orders", name="mailer", retries=1)
    def mail(event: Event) -> None:
        seen.append((event.retries, datetime.now(UTC)))
        event.retry(in_=pause, reason="closed")

    letters = run(pgq, "mailer", [1])
    assert [retries for retries, _ in seen] == [None, 1]
    assert seen[1][1] - seen[0][1] >= pause
    assert [(letter.reason, letter.attempts) for letter in letters] == [("closed", 2)]


def test_a_replayed_dead_letter_comes_to_its_consumer_again(pgq: PgQ) -> None:
    seen: list[Event] = []
    others: list[Event] = []
    pgq.consumer("orders", name="other")(others.append)

    @pgq.consumer("orders", name="mailer")
    def mail(event: Event) -> None:
        seen.append(event)
        if len(seen) == 1:
            event.dead("not yet")

    with pgq.runner():
        pgq.send("orders", {"a": 1}, type="t", extra1="x")
        (letter,) = wait_until(lambda: pgq.dead_letters("orders"))
        assert pgq.replay(letter.dl_id) == letter.ev_id
        wait_until(lambda: len(seen) == 2 and is_drained(pgq, "mailer") and is_drained(pgq, "other"))
    assert seen[0].id == seen[1].id == others[0].id
    assert (seen[1].type, seen[1].json, seen[1].extra1) == ("t", {"a": 1}, "x")
    assert len(others) == 1
    assert pgq.dead_letters() == []


@pytest.mark.parametrize("form", ["mapping", "raised"])
@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_batch_handler_answers_for_single_events(pgq: PgQ, db: Database, form: str, exactly_once: bool) -> None:
    db.rows("create table effect (n int)")

    @pgq.consumer("orders", name="bulk", batch=True, exactly_once=exactly_once)
    def bulk(events: list[Event], *tx: Any) -> dict[Any, Any]:
        bad = [event for event in events if event.json % 10 == 3]
        for connection in tx:
            connection.cursor().executemany(
                "insert into effect values (%s)", [[e.json] for e in events if e not in bad]
            )
        if form == "raised":
            raise Discard("three", events=bad)
        return {bad[0]: Discard("three"), **{event.id: Discard("three") for event in bad[1:]}, events[0].id: None}

    letters = run(pgq, "bulk", range(100))
    assert [letter.ev_data for letter in letters] == [str(number) for number in range(3, 100, 10)]
    assert {letter.reason for letter in letters} == {"three"}
    if exactly_once:
        kept = [number for number in range(100) if number % 10 != 3]
        assert [row[0] for row in db.rows("select n from effect order by n")] == kept


def test_an_answer_for_a_foreign_event_is_a_failure_of_the_call(pgq: PgQ) -> None:
    @pgq.consumer("orders", name="bulk", batch=True, retries=0)
    def bulk(events: list[Event]) -> dict[int, Retry]:
        return {10**6: Retry()}

    letters = run(pgq, "bulk", range(2))
    assert len(letters) == 2
    assert "was not called" in (letters[0].reason or "")


def test_a_swallowed_error_of_the_transaction_is_a_failure(pgq: PgQ, db: Database) -> None:
    db.rows("create table effect (n int)")

    @pgq.consumer("orders", name="mirror", exactly_once=True, retries=0)
    def mirror(event: Event, tx: Any) -> None:
        tx.execute("insert into effect values (%s)", [event.json])
        if event.json == 2:
            with pytest.raises(psycopg.errors.UndefinedTable):
                tx.execute("select from nothing_of_that_name")

    (letter,) = run(pgq, "mirror", range(4))
    assert letter.ev_data == "2"
    assert db.rows("select n from effect order by n") == [(0,), (1,), (3,)]


def test_what_cannot_be_committed_is_narrowed_down(pgq: PgQ, db: Database) -> None:
    db.rows("create table effect (n int unique deferrable initially deferred)")

    @pgq.consumer("orders", name="mirror", exactly_once=True, retries=0)
    def mirror(event: Event, tx: Any) -> None:
        tx.execute("insert into effect values (%s)", [event.json % 50])

    (letter,) = run(pgq, "mirror", range(51))
    assert letter.ev_data == "50"
    assert "unique" in (letter.reason or "")
    assert db.value("select count(*) from effect") == 50


@pytest.mark.parametrize("exactly_once", [False, True])
def test_serialization_failures_and_lost_connections_do_not_count(pgq: PgQ, exactly_once: bool) -> None:
    troubles: list[Exception] = [
        psycopg.errors.SerializationFailure(),
        psycopg.errors.DeadlockDetected(),
        psycopg.OperationalError("server closed the connection unexpectedly"),
        psycopg.errors.DiskFull(),
    ]
    seen: list[int | None] = []

    @pgq.consumer("orders", name="mailer", exactly_once=exactly_once, retries=0)
    def mail(event: Event, *tx: Any) -> None:
        seen.append(event.retries)
        if troubles:
            raise RuntimeError from troubles.pop()

    assert run(pgq, "mailer", [1]) == []
    assert seen == [None] * 5


def test_a_terminated_transaction_does_not_count(pgq: PgQ, db: Database) -> None:
    db.rows("create table effect (n int)")
    seen: list[int | None] = []

    @pgq.consumer("orders", name="mirror", exactly_once=True, retries=0)
    def mirror(event: Event, tx: Any) -> None:
        seen.append(event.retries)
        tx.execute("insert into effect values (%s)", [event.json])
        if len(seen) == 3:
            db.rows("select pg_terminate_backend(%s)", [tx.info.backend_pid])
            tx.execute("select")

    assert run(pgq, "mirror", range(4)) == []
    assert db.rows("select n from effect order by n") == [(0,), (1,), (2,), (3,)]


def test_block_lets_nothing_pass(pgq: PgQ) -> None:
    seen: list[Any] = []

    @pgq.consumer("orders", name="mirror", on_error="block", retries=0)
    def mirror(event: Event) -> None:
        seen.append(event.json)
        if event.json == 2 and seen.count(2) < 4:
            raise ZeroDivisionError

    assert run(pgq, "mirror", range(5)) == []
    assert seen == [0, 1, 2, 2, 2, 2, 3, 4]


def test_the_policy_is_set_at_the_start_or_left_alone(pgq: PgQ, db: Database) -> None:
    rows = "select consumer_name, max_retries, kind, delays from pgq.retry_policy order by 1"
    pgq.set_retry_policy("orders", RetryPolicy(max_retries=9))
    listed = RetryPolicy(max_retries=3, kind="list", delays=[timedelta(seconds=1), timedelta(minutes=1)])
    for name, retries in (("a", None), ("b", 7), ("c", listed)):
        pgq.consumer("orders", name=name, retries=retries)(print)
    with pgq.runner():
        assert db.rows(rows) == [
            ("", 9, "exponential", None),
            ("b", 7, "exponential", None),
            ("c", 3, "list", list(listed.delays)),
        ]


def test_reasons_can_be_stored(pgq: PgQ) -> None:
    def raised(text: str) -> str:
        try:
            raise ValueError(text)
        except ValueError as exc:
            return failure_of(exc).reason

    assert raised("a\0b\ud800c").endswith("ValueError: a\ufffdb\ufffdc")
    assert raised("short").startswith("Traceback")
    long = raised("begin " + "\N{SNOWMAN}" * 10_000 + " end")
    assert len(long.encode()) <= LONGEST_REASON
    assert long.startswith("Traceback")
    assert long.endswith(" end")
    assert failure_of(Retry()).reason == "the handler raised Retry"
    assert failure_of(Discard("x")) == ("x", None, True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_retries": -1},
        {"kind": "sometimes"},
        {"base": timedelta(-1)},
        {"cap": timedelta(0)},
        {"jitter": 2},
        {"kind": "list"},
        {"delays": [timedelta(1)]},
    ],
)
def test_impossible_policies(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="not a possible retry policy"):
        RetryPolicy(**wrong)


def test_impossible_outcomes_and_options(pgq: PgQ) -> None:
    with pytest.raises(InvalidArgument, match="in_"):
        Retry(in_=timedelta(-1))
    for options in ({"retries": True}, {"on_error": "ignore"}, {"on_evicted": "?"}, {"unknown": "skip"}):
        with pytest.raises(InvalidArgument):
            pgq.consumer("orders", name="x", **options)(print)
