"""Typed events: validated data to the handler, everything else to where it was said to go (scenario 19 among it)."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from pgq_py import Discard, Event, InvalidArgument, RetryPolicy
from pgq_py.app import PgQ
from tests.consumers.draining import is_drained
from tests.waiting import wait_until


class Created(BaseModel):
    number: int


@dataclass
class Paid:
    number: int
    amount: float


TYPES = {"created": Created, "paid": Paid}
ONCE_AT_ONCE = RetryPolicy(max_retries=1, kind="fixed", base=timedelta(0), jitter=0)


def send(pgq: PgQ) -> None:
    pgq.send("orders", {"number": 1}, type="created")
    pgq.send("orders", {"number": "two"}, type="created")
    pgq.send("orders", {"number": 3, "amount": 1.5}, type="paid")


def test_each_type_becomes_its_own_and_invalid_data_a_dead_letter(pgq: PgQ) -> None:
    seen: list[Any] = []
    pgq.consumer("orders", name="typed", types=TYPES)(seen.append)
    with pgq.runner():
        send(pgq)
        pgq.send("orders", None, type="created")
        pgq.send("orders", "not json", type="paid")
        wait_until(lambda: is_drained(pgq, "typed"))
    assert seen == [Created(number=1), Paid(3, 1.5)]
    letters = pgq.dead_letters("orders", "typed")
    assert [letter.ev_data for letter in letters] == ['{"number":"two"}', None, "not json"]
    assert all("is not valid" in (letter.reason or "") and letter.attempts == 1 for letter in letters)
    assert "number" in (letters[0].reason or "")


def test_an_annotated_handler_with_its_event(pgq: PgQ) -> None:
    seen: list[tuple[Created, int, str | None]] = []

    @pgq.consumer("orders", name="typed", event_type="created", unknown="skip", exactly_once=True)
    def handle(order: Created, tx: Any, *, event: Event) -> None:
        assert tx.execute("select 1").fetchone() == (1,)
        seen.append((order, event.id, event.type))

    with pgq.runner():
        send(pgq)
        wait_until(lambda: is_drained(pgq, "typed"))
    assert seen == [(Created(number=1), 1, "created")]
    assert [letter.ev_id for letter in pgq.dead_letters()] == [2]


def test_batches_of_typed_events(pgq: PgQ) -> None:
    seen: list[Any] = []

    @pgq.consumer("orders", name="typed", types=TYPES, batch=True, unknown="dead")
    def handle(orders: list[Created | Paid], *, events: list[Event]) -> dict[Event, Discard]:
        assert len(orders) == len(events)
        seen.extend(orders)
        return {event: Discard("paid") for event in events if event.type == "paid"}

    with pgq.runner():
        send(pgq)
        pgq.send("orders", 4, type="stolen")
        wait_until(lambda: is_drained(pgq, "typed"))
    assert seen == [Created(number=1), Paid(3, 1.5)]
    assert sorted(letter.ev_id for letter in pgq.dead_letters()) == [2, 3, 4]


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("exactly_once", [False, True])
def test_an_unknown_type_is_retried_by_default(pgq: PgQ, batch: bool, exactly_once: bool) -> None:
    seen: list[Any] = []

    @pgq.consumer(
        "orders", name="typed", types=TYPES, batch=batch, exactly_once=exactly_once, retries=ONCE_AT_ONCE, max_events=2
    )
    def handle(given: Any, *tx: Any) -> None:
        seen.append(given)

    with pgq.runner():
        pgq.send("orders", 1, type="stolen")
        pgq.send("orders", 2)
        pgq.send("orders", {"number": 3}, type="created")
        wait_until(lambda: is_drained(pgq, "typed"))
    assert seen == [[Created(number=3)] if batch else Created(number=3)]
    letters = pgq.dead_letters()
    assert [(letter.ev_id, letter.attempts) for letter in letters] == [(1, 2), (2, 2)]
    assert "unknown event type 'stolen'; declared are 'created', 'paid'" in (letters[0].reason or "")


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("exactly_once", [False, True])
def test_raise_stops_there_until_somebody_acts(
    pgq: PgQ, batch: bool, exactly_once: bool, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Any] = []

    def handle(given: Any, *tx: Any) -> None:
        seen.append(given)

    pgq.consumer("orders", name="typed", types=TYPES, unknown="raise", batch=batch, exactly_once=exactly_once)(handle)
    with caplog.at_level(logging.ERROR), pgq.runner():
        pgq.send("orders", 1, type="stolen")
        pgq.send("orders", {"number": 2}, type="created")
        wait_until(lambda: caplog.text.count("unknown event type 'stolen'") >= 2)
        assert seen == []
        assert pgq.consumer_info("orders", "typed").pending_events == 2
        assert pgq.dead_letters() == []
        pgq.seek("orders", "typed", "latest")
        pgq.send("orders", {"number": 3}, type="created")
        wait_until(lambda: seen)


def test_what_cannot_be_declared(pgq: PgQ) -> None:
    def annotated(order: Created) -> None: ...

    def listed(orders: list[Paid]) -> None: ...

    for handler, options in (
        (annotated, {}),
        (listed, {"batch": True}),
        (annotated, {"types": TYPES, "event_type": "created"}),
        (annotated, {"types": {}}),
        (annotated, {"types": TYPES, "unknown": "forget"}),
    ):
        with pytest.raises(InvalidArgument):
            pgq.consumer("orders", name="typed", **options)(handler)
