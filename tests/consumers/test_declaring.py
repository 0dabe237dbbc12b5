"""What `@pgq.consumer` accepts: mistakes surface where the handler is declared, not where it first runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pgq_py import ConnectionFailed, InvalidArgument, QueueNotFound, SchemaMissing
from pgq_py.app import AsyncPgQ, PgQ
from pgq_py.client.backoff import Backoff
from tests.clusters import Database


def one(event: Any) -> None: ...


def any_number(*events: Any) -> None: ...


def two(event: Any, tx: Any) -> None: ...


async def two_async(event: Any, tx: Any) -> None: ...


class Handler:
    def method(self, event: Any) -> None: ...


@pytest.mark.parametrize("handler", [one, Handler().method, any_number, partial(two, tx=None)])
def test_handlers_of_one_event(handler: Callable[..., Any]) -> None:
    pgq = PgQ("dbname=unused")
    assert pgq.consumer("orders", name="mailer")(handler) is handler
    (spec,) = pgq.declared
    assert (spec.queue, spec.name, spec.is_async) == ("orders", "mailer", False)


@pytest.mark.parametrize("handler", [two, two_async])
def test_handlers_with_a_transaction(handler: Callable[..., Any]) -> None:
    pgq = AsyncPgQ("dbname=unused")
    pgq.consumer("orders", name="mailer", exactly_once=True)(handler)
    with pytest.raises(InvalidArgument, match=r"function of \(events\)"):
        pgq.consumer("orders", name="other", batch=True)(handler)


@pytest.mark.parametrize("handler", [one, lambda: None, 7])
def test_an_exactly_once_handler_takes_the_transaction(handler: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"\(event, tx\)"):
        PgQ("dbname=unused").consumer("orders", name="mailer", exactly_once=True)(handler)


@pytest.mark.parametrize("arguments", [{"name": ""}, {"name": "x", "max_events": 0}, {"name": None}])
def test_impossible_arguments(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        PgQ("dbname=unused").consumer("orders", **arguments)(one)


def test_a_consumer_is_declared_once() -> None:
    pgq = PgQ("dbname=unused")
    pgq.consumer("orders", name="mailer")(one)
    pgq.consumer("returns", name="mailer")(one)
    with pytest.raises(InvalidArgument, match="declared twice"):
        pgq.consumer("orders", name="mailer")(one)


def test_what_is_wrong_from_the_start_is_raised(pgq: PgQ, empty_db: Database) -> None:
    with pytest.raises(InvalidArgument, match="no consumer"):
        pgq.run()
    pgq.consumer("nowhere", name="mailer")(one)
    with pytest.raises(QueueNotFound):
        pgq.run()
    for dsn, error in [(empty_db.dsn, SchemaMissing), ("host=/nowhere", ConnectionFailed)]:
        elsewhere = PgQ(dsn)
        elsewhere.consumer("orders", name="mailer")(one)
        with pytest.raises(error):
            elsewhere.run()


def test_pauses_grow_up_to_half_a_minute_until_something_works() -> None:
    backoff = Backoff()
    pauses = [backoff.next() for _ in range(100)]
    assert 0.08 <= pauses[0] <= 0.12
    assert all(24 <= pause <= 36 for pause in pauses[10:])
    backoff.reset()
    assert backoff.next() <= 0.12
