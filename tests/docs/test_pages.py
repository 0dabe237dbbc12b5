"""What the documentation shows works, and where it points there is something."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import Cluster, Database
from tests.docs.markdown import ROOT, Page, read_page
from tests.docs.scenario import RUN, Scenario, database_environment

PAGES = [
    read_page(path)
    for path in (
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
        *(ROOT / "docs").rglob("*.md"),
    )
]
PLAYED = [page for page in PAGES if not page.generated and any(block.language in RUN for block in page.blocks)]


def play(page: Page, db: Database, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in database_environment(db).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(directory)
    monkeypatch.syspath_prepend(directory)
    before = set(sys.modules)
    try:
        with Scenario(page, db) as scenario:
            scenario.play()
    finally:
        for name in set(sys.modules) - before:
            if str(directory) in str(getattr(sys.modules[name], "__file__", None)):
                del sys.modules[name]


@pytest.fixture
def database(pg_major: int, page: Page, request: pytest.FixtureRequest) -> Iterator[Database]:
    """The database that the page asks for: with the schema or empty, on the shared server or on one of its own."""
    cluster: Cluster = request.getfixturevalue("private_cluster" if "private" in page.database else "pg")
    with cluster.database(installed="empty" not in page.database) as found:
        yield found


@pytest.mark.newest  # what the engine does on each major is tested elsewhere
@pytest.mark.parametrize("page", PLAYED, ids=lambda page: page.name)
def test_a_page_does_what_it_says(
    page: Page, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(page, database, tmp_path, monkeypatch)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Page) -> None:
    others = {other.path: other for other in PAGES}
    for link in page.links:
        target, _, anchor = link.partition("#")
        if "://" in link:
            continue
        path = (page.path.parent / target).resolve() if target else page.path
        assert path.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in others[path].anchors, f"{page.name}: {link} has no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_says_what_it_is(page: Page) -> None:
    known = {*RUN, "text", "sh", "ini", "dockerfile", "yaml"}
    assert [block.line for block in page.blocks if block.language not in known] == []
    assert [block.line for block in page.blocks if block.excuse == ""] == []
