"""`pgq` on a fresh database with the schema."""

from __future__ import annotations

import pytest

from tests.cli.driving import Run, run, run_on_terminal
from tests.clusters import Database


@pytest.fixture
def pgq(db: Database) -> Run:
    """`pgq(*args)` in a pipe."""
    return lambda *args, **how: run(*args, dsn=db.dsn, **how)


@pytest.fixture
def terminal(db: Database) -> Run:
    """The same on a terminal; `typed=` is what the user types."""
    return lambda *args, **how: run_on_terminal(*args, dsn=db.dsn, **how)
