"""The embedded server: whoever runs it, and however its parent ends, nothing else is touched and nothing is left
behind.

"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg
import pytest

from pgq_py import embedded
from pgq_py.errors import ConnectionFailed
from tests.clusters import binaries
from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent

# Prints its directory, its postmaster's pid and the data's owner, then waits to be killed. Imports come first: another
# user may not be able to read them.
CHILD = """
import os, sys, time
from pathlib import Path
import psycopg
from pgq_py import embedded
bin_dir, account = Path(sys.argv[1]), sys.argv[2]
if account:
    uid, gid = map(int, account.split(":"))
    os.setgroups([]); os.setgid(gid); os.setuid(uid)
srv = embedded.server(bin_dir=bin_dir)
srv.start()
psycopg.connect(srv.dsn()).close()
print(srv.directory, srv.pid, os.stat(srv.directory / "data").st_uid, flush=True)
sys.stdin.read()
srv.close()
"""


class Child:
    """A process of its own with a server in it."""

    def __init__(self, bin_dir: Path, account: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, bin_dir, account],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.end()
            raise AssertionError("the child did not get its server up; see its stderr")
        directory, pid, owner = line.split()
        self.directory, self.pid, self.owner = Path(directory), int(pid), int(owner)

    def end(self, number: int | None = None) -> None:
        """With a signal, or in good order."""
        if number is not None:
            self.process.send_signal(number)
        self.process.communicate()

    def left_behind(self) -> bool:
        return self.directory.exists() or _runs(self.pid)


def _runs(pid: int) -> bool:
    """Zombies, which only the machine's init can remove, do not run."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


@pytest.fixture
def bin_dir() -> Path:
    return binaries(18)


def test_it_starts_answers_and_leaves_nothing(bin_dir: Path) -> None:
    with embedded.server(settings={"work_mem": "7MB", "fsync": False}, bin_dir=bin_dir) as srv:
        directory, pid = srv.directory, srv.pid
        with psycopg.connect(srv.dsn(application_name="me")) as conn:
            assert conn.info.server_version // 10000 == srv.version == 18
            assert conn.execute("show work_mem").fetchone() == ("7MB",)
            assert conn.execute("show fsync").fetchone() == ("off",)
            assert conn.execute("show listen_addresses").fetchone() == ("",)
            assert conn.execute("show application_name").fetchone() == ("me",)
        assert str(directory).startswith(("/tmp/pgq-", "/var/"))
        assert directory is not None
        assert directory.stat().st_mode & 0o077 == 0
    assert not directory.exists()
    assert not _runs(pid)


def test_data_outlives_stop_and_crash(bin_dir: Path) -> None:
    with embedded.server(bin_dir=bin_dir) as srv:
        with psycopg.connect(srv.dsn()) as conn:
            conn.execute("create table t as select 1 as n")
        for end in (srv.stop, srv.crash):
            end()
            assert not srv.running
            with pytest.raises(psycopg.OperationalError):
                psycopg.connect(srv.dsn())
            srv.start()
            with psycopg.connect(srv.dsn()) as conn:
                assert conn.execute("select n from t").fetchone() == (1,)
        assert "was not properly shut down" in srv.log


def test_a_crash_takes_busy_sessions_along(bin_dir: Path) -> None:
    with embedded.server(bin_dir=bin_dir) as srv:
        with psycopg.connect(srv.dsn()) as conn:
            backend = conn.info.backend_pid
            conn.execute("create table t (n int)")
            srv.crash()
            assert not _runs(backend)
            with pytest.raises(psycopg.OperationalError):
                conn.execute("select 1")
        srv.start()
        with psycopg.connect(srv.dsn()) as conn:
            assert conn.execute("select to_regclass('t')").fetchone() == (None,)


def test_the_environment_does_not_leak_in(bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "PGHOST": "nowhere.invalid",
        "PGPORT": "1",
        "PGUSER": "nobody-we-know",
        "PGDATABASE": "nothing",
        "PGDATA": "/nonexistent",
        "PGPASSWORD": "wrong",
        "LC_ALL": "xx_YY.UTF-8",
        "LANG": "xx_YY.UTF-8",
    }.items():
        monkeypatch.setenv(name, value)
    with embedded.server(bin_dir=bin_dir) as srv, psycopg.connect(srv.dsn()) as conn:
        row = conn.execute("select current_user, current_database(), current_setting('lc_messages')").fetchone()
        assert row == ("postgres", "postgres", "C")


def test_client_programs_find_the_server(bin_dir: Path) -> None:
    with embedded.server(bin_dir=bin_dir) as srv:
        command = [str(srv.tool("psql")), "-XAtc", "select current_database()"]
        done = subprocess.run(command, env=srv.client_env("template1"), capture_output=True, text=True, check=True)
        assert done.stdout == "template1\n"


def test_tcp_asks_for_a_password(bin_dir: Path) -> None:
    with embedded.server(tcp=True, bin_dir=bin_dir) as srv:
        with psycopg.connect(srv.dsn()) as conn:
            assert conn.info.host == "127.0.0.1"
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(srv.dsn(password="wrong"))


def test_a_server_that_cannot_start_says_why_and_is_cleaned_up(bin_dir: Path) -> None:
    srv = embedded.server(settings={"shared_buffers": "nonsense"}, bin_dir=bin_dir)
    with pytest.raises(ConnectionFailed, match="did not start") as caught:
        srv.start()
    assert "shared_buffers" in caught.value.advice
    assert srv.directory is None


def test_no_binaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGQ_PG_BIN", str(tmp_path))
    with pytest.raises(ConnectionFailed, match="no PostgreSQL binaries") as caught:
        embedded.find_binaries()
    assert "pgq-py[embedded]" in caught.value.advice


@pytest.mark.crash
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_when_the_parent_is_killed(bin_dir: Path, number: int) -> None:
    child = Child(bin_dir)
    assert _runs(child.pid)
    child.end(number)
    wait_until(lambda: not child.left_behind(), 20, "server and directory to go")


def _copy(bin_dir: Path, target: Path) -> Path:
    """A copy of the binaries with the libraries that lie beside their package; the new bin directory."""
    package = bin_dir.parent.parent
    shutil.copytree(bin_dir.parent, target / package.name / bin_dir.parent.name, symlinks=True)
    libraries = package.with_suffix(".libs")
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name)
    return target / package.name / bin_dir.parent.name / bin_dir.name


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_an_ordinary_user_can_run_it(bin_dir: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    with tempfile.TemporaryDirectory() as public:
        Path(public).chmod(0o755)
        child = Child(_copy(bin_dir, Path(public)), f"{nobody.pw_uid}:{nobody.pw_gid}")
        assert child.owner == nobody.pw_uid
        child.end()
        assert not child.left_behind()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_does_not_run_it_as_root(bin_dir: Path) -> None:
    child = Child(bin_dir)
    assert child.owner != 0
    child.end()
    assert not child.left_behind()


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's server can read what its parent can")
def test_binaries_that_the_server_s_user_cannot_reach(bin_dir: Path, tmp_path: Path) -> None:
    private = _copy(bin_dir, tmp_path)
    tmp_path.chmod(0o700)
    with embedded.server(bin_dir=private) as srv, psycopg.connect(srv.dsn()) as conn:
        assert conn.execute("select 1").fetchone() == (1,)
    assert tmp_path.stat().st_mode & 0o777 == 0o700
