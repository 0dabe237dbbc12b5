"""A client of a fresh database with one queue, `orders`, and one consumer of it, `mailer`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgq_py.app import PgQ
from tests.clusters import Database


@pytest.fixture
def pgq(db: Database) -> Iterator[PgQ]:
    with PgQ(db.dsn) as client:
        client.create_queue("orders")
        client.register_consumer("orders", "mailer")
        yield client
