"""`pgq install | upgrade | uninstall`."""

from __future__ import annotations

import subprocess
import tomllib

import pytest

import pgq_py
from tests.cli.driving import ROOT, Run, run, run_on_terminal
from tests.clusters import Database

pytestmark = pytest.mark.newest

THERE = "select to_regnamespace('pgq') is not null"


def _psql(db: Database, script: str) -> None:
    command = [str(db.server.tool("psql")), "-Xq", "-v", "ON_ERROR_STOP=1"]
    env = db.server.client_env(db.name)
    done = subprocess.run(command, input=script, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_install_and_a_second_time(empty_db: Database) -> None:
    rehearsal = run("install", "--dry-run", dsn=empty_db.dsn)
    assert rehearsal.status == 0
    assert rehearsal.tsv[0]["step"].startswith("migration 0001")
    assert not empty_db.value(THERE)

    first = run("install", "--json", dsn=empty_db.dsn).json
    assert first["changed"]
    assert first["steps"] == [row["step"] for row in rehearsal.tsv]
    second = run("install", dsn=empty_db.dsn)
    assert (second.status, second.out) == (0, "")
    assert "nothing to do" in second.err


def test_the_printed_sql_installs(empty_db: Database) -> None:
    printed = run("install", "--sql")
    assert printed.status == 0
    _psql(empty_db, printed.out)
    assert run("upgrade", "--dry-run", "--json", dsn=empty_db.dsn).json == []
    assert run("status", dsn=empty_db.dsn).status == 0


def test_upgrade(pgq: Run, db: Database) -> None:
    assert "nothing to do" in pgq("upgrade").err
    db.rows("update pgq.migration set checksum = 'older' where version = 0")
    assert pgq("upgrade", "--dry-run").tsv
    script = pgq("upgrade", "--sql").out
    assert script.startswith("begin;\n")
    _psql(db, script)
    assert pgq("upgrade", "--json").json["changed"] is False


@pytest.mark.parametrize("options", [(), ("--sql",), ("--dry-run",)])
def test_upgrade_wants_a_schema(empty_db: Database, options: tuple[str, ...]) -> None:
    answer = run("upgrade", *options, dsn=empty_db.dsn)
    assert (answer.status, answer.out) == (4, "")
    assert "pgq install" in answer.err


def test_uninstall_needs_yes_where_nobody_can_be_asked(pgq: Run, db: Database) -> None:
    answer = pgq("uninstall")
    assert answer.status == 2
    assert "--yes" in answer.err
    assert db.value(THERE)
    assert pgq("uninstall", "--dry-run", "--json").json == {"schema": "pgq", "queues": []}
    assert pgq("uninstall", "--sql").out.startswith("drop schema pgq cascade;\n")
    assert db.value(THERE)
    assert pgq("uninstall", "--yes", "--json").json == {"schema": "pgq", "dropped": True}
    assert not db.value(THERE)
    assert pgq("uninstall", "--yes").status == 0


def test_uninstall_asks_on_a_terminal(terminal: Run, db: Database) -> None:
    no = terminal("uninstall", typed="no\n")
    assert no.status == 1
    assert f"Drop the schema pgq of database {db.name}?" in no.out
    assert "nothing was changed" in no.out

    db.rows("select pgq.create_queue('orders'), pgq.insert_event('orders', 't', 'x')")
    unread = terminal("uninstall", typed="y\n")
    assert unread.status == 1
    assert "unread events: orders" in unread.out
    assert db.value(THERE)

    db.rows("select pgq.drop_queue('orders')")
    assert terminal("uninstall", typed="y\n").status == 0
    assert not db.value(THERE)


def test_an_answer_may_be_ctrl_c(terminal: Run, db: Database) -> None:
    assert terminal("uninstall", typed="\x03").status == 130
    assert db.value(THERE)


def test_a_foreign_schema_is_refused(empty_db: Database) -> None:
    empty_db.rows("create schema pgq")
    for verb in (("install",), ("upgrade",), ("uninstall", "--yes"), ("queue", "ls")):
        answer = run(*verb, dsn=empty_db.dsn)
        assert (answer.status, answer.out) == (4, "")
        assert "that pgq-py did not create" in answer.err


def test_the_version_and_the_two_names_of_the_command() -> None:
    assert run("--version").out == f"pgq {pgq_py.__version__}\n"
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["pgq"] == "pgq_py.cli:main"


def test_completion() -> None:
    words = {"_PGQ_COMPLETE": "complete_bash", "COMP_WORDS": "pgq queue re", "COMP_CWORD": "2"}
    assert set(run(env=words).out.split()) == {"resume", "revoke"}


def test_notices_go_to_stderr_and_help_to_stdout() -> None:
    for verb in ((), ("queue",), ("consumer",), ("install",), ("status",), ("demo",), ("run",), ("ticker",)):
        answer = run(*verb, "--help")
        assert answer.status == 0
        assert "Usage: pgq" in answer.out
        assert answer.err == ""


def test_no_color(empty_db: Database) -> None:
    assert "\x1b[" in run_on_terminal("--help").out
    assert "\x1b[" not in run_on_terminal("--help", env={"NO_COLOR": "1", "TERM": "dumb"}).out
    assert "\x1b[3" not in run_on_terminal("--help", env={"NO_COLOR": "1"}).out
