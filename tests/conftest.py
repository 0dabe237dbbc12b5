"""Fixtures: a fresh database per test, on every chosen major of PostgreSQL.

    def test_something(db: Database) -> None:          # once per chosen major
        conn = db.connect()                            # autocommit, closed at the end of the test

`--pg 14,18`, `--pg all` or PGQ_TEST_PG choose the majors; the default is 15 and 18. The folders in EDGES run on the
oldest and the newest of them. A test (or a module, through
`pytestmark`) with the marker `newest` does not depend on the major and runs on the newest chosen one only.

`db` and `empty_db` live in a cluster that other tests use before and after, `private_db` in one that is the test's
alone: for tests that crash the server, or assert on what an open transaction anywhere in the cluster would hold up.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import hypothesis
import pytest

from pgq_py.embedded import Server
from tests.clusters import DEFAULT_MAJORS, Cluster, Database, majors

# A database's answer takes as long as it takes; what must be fast is measured in benchmarks.
hypothesis.settings.register_profile("pgq", deadline=None)
hypothesis.settings.load_profile("pgq")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--pg", default=os.environ.get("PGQ_TEST_PG"), help="majors of PostgreSQL: 14,18 or all")
    parser.addoption("--minutes", type=float, default=None, help="how long stress tests run; half a minute by default")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Stress tests may take as long as they were told to, and five minutes for what comes before and after."""
    minutes: float = config.getoption("--minutes") or 0.5
    for item in items:
        if item.get_closest_marker("stress"):
            item.add_marker(pytest.mark.timeout(60 * (minutes + 5)))


EDGES = ("tests.client", "tests.consumers", "tests.ticker", "tests.delays", "tests.lanes", "tests.jobs", "tests.parts")
"""Tests of Python code, or of SQL that uses nothing new: the oldest and the newest chosen major say enough."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "pg_major" in metafunc.fixturenames:
        chosen = _majors(metafunc.config)
        if metafunc.definition.get_closest_marker("newest"):
            chosen = chosen[-1:]
        elif metafunc.module.__name__.startswith(EDGES):
            chosen = sorted({chosen[0], chosen[-1]})
        metafunc.parametrize("pg_major", chosen, ids=[f"pg{major}" for major in chosen])


def _majors(config: pytest.Config) -> list[int]:
    chosen: str | None = config.getoption("--pg")
    try:
        return majors(chosen) if chosen else list(DEFAULT_MAJORS)
    except ValueError as exc:
        raise pytest.UsageError(f"--pg: {exc}") from exc


@pytest.fixture(autouse=True)
def _no_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller's PGHOST, PGQ_DSN and so on must not reach a test."""
    for name in list(os.environ):
        if name.startswith("PG") and name not in ("PGQ_PG_BIN", "PGQ_TEST_CACHE", "PGQ_TEST_PG"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Asynchronous tests (marker `anyio`) run on asyncio, the only loop that psycopg knows."""
    return "asyncio"


@pytest.fixture(scope="session")
def clusters() -> Iterator[Callable[[int], Cluster]]:
    """The session's cluster of a major, started at its first use."""
    started: dict[int, Cluster] = {}
    with ExitStack() as stack:

        def cluster(major: int) -> Cluster:
            if major not in started:
                started[major] = stack.enter_context(Cluster(major))
            return started[major]

        yield cluster


@pytest.fixture
def pg(pg_major: int, clusters: Callable[[int], Cluster]) -> Cluster:
    """The shared cluster of each chosen major."""
    return clusters(pg_major)


@pytest.fixture
def db(pg: Cluster) -> Iterator[Database]:
    """A fresh database with the schema installed, in the shared cluster."""
    with pg.database() as database:
        yield database


@pytest.fixture
def empty_db(pg: Cluster) -> Iterator[Database]:
    """A fresh database without the schema, in the shared cluster."""
    with pg.database(installed=False) as database:
        yield database


@pytest.fixture
def private_cluster(pg_major: int) -> Iterator[Cluster]:
    """A cluster for this test alone."""
    with Cluster(pg_major) as cluster:
        yield cluster


@pytest.fixture
def private_server(private_cluster: Cluster) -> Server:
    """The server of a cluster for this test alone; `crash()` and `start()` it at will."""
    return private_cluster.server


@pytest.fixture
def private_db(private_cluster: Cluster) -> Iterator[Database]:
    """A fresh database with the schema installed, in a cluster for this test alone."""
    with private_cluster.database() as database:
        yield database


@pytest.fixture
def stress_seconds(request: pytest.FixtureRequest) -> float:
    """How long a stress test runs: 30 seconds, or --minutes."""
    minutes: float | None = request.config.getoption("--minutes")
    return 30.0 if minutes is None else minutes * 60
