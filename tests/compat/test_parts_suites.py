"""pgq_coop's and pgq_ext's own regression tests, on our optional parts.

Their sources are not ours to carry: PGQ_COOP_SRC and PGQ_EXT_SRC are where they are checked out. The scripts run as
pg_regress runs them, through psql, and what comes must be, to the letter, what they expect.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pgq_py import schema
from tests.clusters import Database

SUITES = {"coop": "pgq_coop_test", "ext": "test_pgq_ext"}
SOURCES = {part: os.environ.get(f"PGQ_{part.upper()}_SRC") for part in SUITES}  # tests see no PG* variables


@pytest.mark.parametrize("part", SUITES)
def test_its_own_suite(empty_db: Database, part: str) -> None:
    source, name = SOURCES[part], SUITES[part]
    if source is None:
        pytest.skip(f"PGQ_{part.upper()}_SRC does not say where the sources of pgq_{part} are")
    schema.install(empty_db.connect(), parts=[part])
    script = Path(source, "sql", f"{name}.sql")
    env = empty_db.server.client_env(empty_db.name) | {"PGTZ": "PST8PDT", "PGDATESTYLE": "Postgres, MDY"}
    command = [str(empty_db.server.tool("psql")), "-X", "-a", "-q"]
    with script.open() as text:
        done = subprocess.run(
            command, stdin=text, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
    assert done.stdout.splitlines() == Path(source, "expected", f"{name}.out").read_text().splitlines()
