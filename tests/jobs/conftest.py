"""A facade on a fresh database with the job queue `emails`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgq_py import Settings
from pgq_py.app import PgQ
from pgq_py.settings import load_settings
from tests.clusters import Database


@pytest.fixture
def quick(db: Database) -> Settings:
    """Impatient settings, so that tests without a ticker do not wait for long."""
    return load_settings(dsn=db.dsn, poll_interval=0.01, self_tick_after=0.02)


@pytest.fixture
def pgq(quick: Settings) -> Iterator[PgQ]:
    with PgQ(settings=quick) as facade:
        facade.create_job_queue("emails")
        yield facade
