"""`pgq config show`, and completion."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.driving import run

pytestmark = pytest.mark.newest


def _shown(cwd: Path, *args: str, **env: str) -> dict[str, tuple[str, str]]:
    rows = run(*args, "config", "show", "--json", cwd=cwd, env=env).json
    return {row["setting"]: (row["value"], row["source"]) for row in rows}


def test_each_setting_and_where_it_comes_from(tmp_path: Path) -> None:
    (tmp_path / "pgq.toml").write_text("pool_max_size = 4\nbatch_events = 7\n")
    (tmp_path / "pyproject.toml").write_text("[tool.pgq]\nbatch_events = 8\npoll_interval = 0.5\n")
    shown = _shown(tmp_path, PGQ_POOL_MAX_SIZE="5")
    assert shown["pool_max_size"] == ("5", "PGQ_POOL_MAX_SIZE")
    assert shown["batch_events"] == ("7", "pgq.toml")
    assert shown["poll_interval"] == ("0.5", "pyproject.toml [tool.pgq]")
    assert shown["connect_timeout"] == ("10.0", "default")
    assert shown["dsn"] == ("", "default")


def test_secrets_are_masked(tmp_path: Path) -> None:
    dsn = "postgresql://app:sesame@db.example/shop?sslpassword=sesame2"
    for args, env, source in ((("--dsn", dsn), {}, "--dsn"), ((), {"PGQ_DSN": dsn}, "PGQ_DSN")):
        answer = run(*args, "config", "show", cwd=tmp_path, env={**env, "PGPASSWORD": "sesame3"})
        (row,) = (row for row in answer.tsv if row["setting"] == "dsn")
        assert row["source"] == source
        assert "password=***" in row["value"]
        assert "sesame" not in answer.out + answer.err
    shown = _shown(tmp_path, PGPASSWORD="sesame", PGHOST="db.example", PGDATABASE="shop", PGQ_DSN="dbname=other")
    assert shown["libpq.host"] == ("db.example", "PGHOST")
    assert shown["libpq.password"] == ("***", "PGPASSWORD")
    assert "libpq.dbname" not in shown  # the DSN says it


def test_an_impossible_setting(tmp_path: Path) -> None:
    answer = run("config", "show", cwd=tmp_path, env={"PGQ_POOL_MAX_SIZE": "0"})
    assert (answer.status, answer.out) == (1, "")
    assert "pool_max_size" in answer.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_installed(tmp_path: Path, shell: str) -> None:
    env = {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    answer = run("--install-completion", shell, env=env)
    assert answer.status == 0, answer.err
    scripts = [path for path in tmp_path.rglob("*") if path.is_file() and "_PGQ_COMPLETE" in path.read_text()]
    assert scripts
