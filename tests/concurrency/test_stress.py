"""Nothing is lost and nothing delivered twice, whatever happens meanwhile. `--minutes N` runs it for longer."""

from __future__ import annotations

import pytest

from tests.clusters import Database
from tests.concurrency.stress import faults, run


@pytest.mark.newest
@pytest.mark.stress
def test_everything_at_once_loses_nothing(private_db: Database, stress_seconds: float) -> None:
    world = run(private_db, stress_seconds)
    assert faults(private_db) == []
    # it must have been a stress: every kind of thing happened
    for what in ("events truncated", "cursor_ring truncated", "tick_ring truncated", "late registrations", "seeks"):
        assert world.counts[what] >= 2, world.counts
    for what in ("server crashes", "consumers killed", "sessions terminated", "prepared", "stalls", "sent"):
        assert world.counts[what] >= 1, world.counts
