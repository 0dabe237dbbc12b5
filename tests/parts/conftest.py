"""A database with the optional parts."""

from __future__ import annotations

import pytest

from pgq_py import schema
from tests.clusters import Database
from tests.engine.support import Conn, create


@pytest.fixture
def conn(db: Database) -> Conn:
    """A session in a database with both parts, and a queue `q`."""
    conn = db.connect()
    schema.install(conn, parts=["coop", "ext"])
    create(conn)
    return conn
