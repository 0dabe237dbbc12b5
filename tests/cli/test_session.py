"""The recorded session in the documentation is what the commands write today."""

from __future__ import annotations

import pytest

from tests.cli.session import PAGE, comparable, record
from tests.clusters import Cluster

pytestmark = pytest.mark.newest


def test_the_session_in_the_documentation(private_cluster: Cluster) -> None:
    with private_cluster.database(installed=False) as db:
        again = record(db.dsn)
    assert comparable(PAGE.read_text()) == comparable(again), "run `python -m tests.cli.session`"
