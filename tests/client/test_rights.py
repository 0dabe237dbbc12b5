"""The client under roles that may do just their own part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from pgq_py import PermissionDenied
from pgq_py.app import PgQ
from pgq_py.ticker import Ticker
from tests.clusters import Database


@pytest.fixture
def as_role(pgq: PgQ, db: Database) -> Iterator[Callable[[str | None], PgQ]]:
    """A client that logs in as a member of one of the package's roles, or of none."""
    with ExitStack() as stack:

        def client(role: str | None) -> PgQ:
            name = f"{db.name}_{role or 'nobody'}"
            db.rows(f"create role {name} login" + (f" in role {role}" if role else ""))
            stack.callback(db.rows, f"drop role {name}")
            return stack.enter_context(PgQ(db.dsn_for(name)))

        yield client


def test_producer_consumer_and_ticker_each_as_their_role(as_role: Callable[[str | None], PgQ]) -> None:
    writer, reader, admin = as_role("pgq_writer"), as_role("pgq_reader"), as_role("pgq_admin")
    writer.send("orders", "one")
    writer.send_many("orders", ["two", ("kind", "three", "extra")])
    with writer.pipeline() as pipeline:
        pipeline.send("orders", "four")
    Ticker(admin.settings).run_once()
    with reader.batches("orders", "mailer", wait=0) as batches:
        assert [event.data for batch in batches for event in batch] == ["one", "two", "three", "four"]
    assert reader.register_consumer("orders", "other")
    writer.send("orders", "five")
    with reader.batches("orders", "other", wait=10) as batches:
        assert [event.data for event in next(batches)] == ["five"]


def test_no_role_no_right(as_role: Callable[[str | None], PgQ]) -> None:
    """Scenario 20."""
    nobody = as_role(None)

    def read() -> None:
        with nobody.batches("orders", "mailer", wait=0) as batches:
            list(batches)

    attempts: list[Callable[[], Any]] = [
        lambda: nobody.send("orders", "x"),
        lambda: nobody.send_many("orders", ["x"]),
        lambda: nobody.create_queue("mine"),
        lambda: nobody.drop_queue("orders", force=True),
        lambda: nobody.set_queue_config("orders", "rotation_period", "1 hour"),
        lambda: nobody.pause_queue("orders"),
        lambda: nobody.resume_queue("orders"),
        lambda: nobody.register_consumer("orders", "mine"),
        lambda: nobody.unregister_consumer("orders", "mailer"),
        lambda: nobody.seek("orders", "mailer", "latest"),
        lambda: nobody.receive("orders", "mailer"),
        read,
        lambda: nobody.tick("orders"),
        nobody.tick_all,
        lambda: nobody.poke("orders"),
        lambda: nobody.force_tick("orders"),
        lambda: nobody.rotate_queue("orders"),
        Ticker(nobody.settings).run_once,
    ]
    for attempt in attempts:
        with pytest.raises((PermissionDenied, psycopg.errors.InsufficientPrivilege)):
            attempt()
    assert nobody.version()


def test_a_writer_is_no_reader_and_a_reader_no_writer(as_role: Callable[[str | None], PgQ]) -> None:
    writer, reader = as_role("pgq_writer"), as_role("pgq_reader")
    for attempt in (lambda: writer.receive("orders", "mailer"), lambda: reader.send("orders", "x")):
        with pytest.raises((PermissionDenied, psycopg.errors.InsufficientPrivilege)):
            attempt()
