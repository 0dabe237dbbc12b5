"""A request for peers of `faulty`, on the shared server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import benchmarks
from benchmarks.harness.arena import Request
from benchmarks.harness.outcome import Outcome
from tests.clusters import Cluster

SCHEMA = json.loads(Path(benchmarks.__file__).with_name("result.schema.json").read_text())


@pytest.fixture
def request_for(pg: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Request]:
    """`request_for("Loser")`; environments, should one be made, go to a directory of the test's own."""
    monkeypatch.setenv("PGQ_BENCH_CACHE", str(tmp_path / "peers"))

    def make(*names: str, **options: str) -> Request:
        peers = [name if name.islower() else f"tests.harness.faulty:{name}" for name in names]
        return Request(peers, dsn=pg.server.dsn(), options=options)

    return make


def documented(outcome: Outcome) -> dict[str, Any]:
    """The result as JSON, which must be as its schema says."""
    found: dict[str, Any] = json.loads(json.dumps(outcome.as_json()))
    errors = list(Draft202012Validator(SCHEMA).iter_errors(found))
    assert not errors, f"{errors[0].message} at {list(errors[0].path)}"
    return found
