"""All of it at once: see `chaos`."""

from __future__ import annotations

import pytest

from tests.clusters import Database
from tests.lanes import chaos


@pytest.mark.stress
@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.newest
def test_every_job_has_its_effect_once(private_db: Database, stress_seconds: float) -> None:
    world = chaos.run(private_db, stress_seconds)
    assert chaos.faults(private_db) == []
    assert world.counts["server crashes"] == 2
    assert min(world.counts[what] for what in ("recovered", "stalled", "claim_ring truncated", "event truncated")) > 0
