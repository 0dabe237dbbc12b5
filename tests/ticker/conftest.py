"""A facade on a fresh database with the queue `orders` and its consumer `mailer`, and a ticker in a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pgq_py.app import PgQ
from pgq_py.settings import load_settings
from pgq_py.ticker import Ticker
from tests.clusters import Database


@pytest.fixture
def pgq(db: Database) -> Iterator[PgQ]:
    with PgQ(db.dsn) as facade:
        facade.create_queue("orders")
        facade.register_consumer("orders", "mailer")
        yield facade


@contextmanager
def running_ticker(dsn: str, **settings: Any) -> Iterator[Ticker]:
    """A ticker at work for the length of the block; it must have stopped within two seconds after it."""
    ticker = Ticker(load_settings(dsn=dsn, **settings))
    thread = threading.Thread(target=ticker.run)
    thread.start()
    try:
        yield ticker
    finally:
        ticker.stop()
        thread.join(2)
    assert not thread.is_alive()
