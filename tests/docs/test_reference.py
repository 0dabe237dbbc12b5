"""The generated references say what the package and an installed database say now."""

from __future__ import annotations

from tests.clusters import Database
from tools.reference import ROOT, stale


def test_the_references_are_fresh(db: Database) -> None:
    """If not: `python -m tools.reference`."""
    assert [path.relative_to(ROOT).as_posix() for path in stale(db.connect())] == []
