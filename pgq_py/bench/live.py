"""The processes of a live benchmark: `pgq ticker`, consumers and a producer, each an interpreter of its own.

They run at default settings: variables PGQ_* of the caller are not handed on. DSNs go through the environment, where
`ps` does not show them. Whatever is still running at the end is killed, by process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from time import monotonic, sleep
from typing import IO, Any, Final, Self

import psycopg

from pgq_py.errors import PgqError

__all__ = ["QUEUE", "Process", "Processes", "leader"]

QUEUE: Final = "bench"
_START: Final = 30.0
"""Seconds that a process may take to start."""

_LEADER = """
select application_name from pg_stat_activity join pg_locks using (pid)
 where datname = current_database() and locktype = 'advisory' and granted and application_name like '% ticker'
"""


class Process:
    """One of them, with what it says."""

    def __init__(self, arguments: list[str], dsn: str, name: str, errors: IO[bytes]) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PGQ_")}
        environment |= {"PGQ_DSN": dsn, "PGQ_APPLICATION_NAME": name}
        self.name, self._errors = name, errors
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", *arguments]
        self._popen = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=errors, text=True)

    @property
    def pid(self) -> int:
        return self._popen.pid

    def kill(self) -> None:
        """SIGKILL: nothing is said good-bye to."""
        self._popen.kill()
        self._popen.wait()

    def close(self) -> None:
        """The same, and its files."""
        self.kill()
        for end in (self._popen.stdin, self._popen.stdout):
            if end is not None:
                end.close()

    def hear(self) -> str:
        """The next line that it writes. Raises when it has ended instead."""
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline()
        if not line:
            self._popen.wait()
            self._errors.seek(0)
            tail = self._errors.read().decode(errors="replace")[-2000:]
            raise PgqError(f"the process {self.name!r} of the benchmark has ended", advice=tail)
        return line.rstrip("\n")

    def report(self) -> dict[str, Any]:
        """The JSON object that it writes next."""
        found: dict[str, Any] = json.loads(self.hear())
        return found

    def tell(self, line: str) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(line + "\n")
        self._popen.stdin.flush()


class Processes:
    """All of one run; they end with the `with` block."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._open.close()

    def ticker(self, name: str = "bench") -> Process:
        """`pgq ticker`; `leader` says when it leads."""
        return self._start(["pgq_py", "ticker"], name)

    def consumer(self, consumer: str, nack_every: int = 0) -> Process:
        """A consumer under the runner, at work when this returns."""
        process = self.role("consume", queue=QUEUE, consumer=consumer, nack_every=nack_every)
        process.hear()
        return process

    def producer(self, rate: float, seconds: float, delay: float = 0) -> Process:
        """A producer, which says first when its schedule starts."""
        return self.role("produce", queue=QUEUE, rate=rate, seconds=seconds, delay=delay)

    def role(self, role: str, module: str = "pgq_py.bench.roles", **parameters: Any) -> Process:
        """A process that plays a role of such a module."""
        return self._start([module, role, json.dumps(parameters)], role)

    def _start(self, arguments: list[str], name: str) -> Process:
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the stack
        self._open.callback(errors.close)
        process = Process(arguments, self._dsn, name, errors)
        self._open.callback(process.close)
        return process


def leader(conn: psycopg.Connection[Any]) -> str:
    """The name of the ticker that leads; waits until one does, and sleeps with producers asked to wake it."""
    deadline = monotonic() + _START
    while monotonic() < deadline:
        row = conn.execute(_LEADER).fetchone()
        armed = conn.execute("select pgq.wake_armed_ms() > 0").fetchone()
        if row is not None and armed == (True,):
            return str(row[0]).removesuffix(" ticker")
        sleep(0.02)
    raise PgqError(f"no ticker within {_START:g} seconds")
