"""The command line as a user drives it: a process, its arguments, what it writes where, and its exit status."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "Answer", "Run", "command", "environment", "run", "run_on_terminal"]

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Answer:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def tsv(self) -> list[dict[str, str]]:
        names, *lines = [line.split("\t") for line in self.out.splitlines()]
        return [dict(zip(names, line, strict=True)) for line in lines]


Run = Callable[..., Answer]

# Makes standard input the controlling terminal, so that a typed Ctrl-C is one.
_ON_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def environment(dsn: str | None, **more: str) -> dict[str, str]:
    """Ours, with the database where it is looked for, and the package wherever the command runs."""
    found = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", **more}
    return {**found, "PGQ_DSN": dsn} if dsn is not None else found


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "pgq_py", *args]


def run(*args: str, dsn: str | None = None, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Answer:
    """Run `pgq` in a pipe."""
    done = subprocess.run(
        command(*args),
        env={**environment(dsn), **(env or {})},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Answer(done.returncode, done.stdout, done.stderr)


def run_on_terminal(
    *args: str, dsn: str | None = None, typed: str = "", prompt: str = "[y/N] ", env: Mapping[str, str] | None = None
) -> Answer:
    """Run `pgq` on a terminal of its own, where stdout and stderr are one; type something at the prompt."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", _ON_TERMINAL, *command(*args)],
        env={**environment(dsn, TERM="xterm-256color"), **(env or {})},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    with process:
        guard = threading.Timer(60, process.kill)
        guard.start()
        written = _converse(ours, prompt, typed)
        status = process.wait()
        guard.cancel()
    return Answer(status, written.replace("\r\n", "\n"), "")


def _converse(terminal: int, prompt: str, typed: str) -> str:
    """Read to the end, and answer the prompt. Linux ends a terminal whose other side has closed with an error."""
    written = b""
    with suppress(OSError):
        while chunk := os.read(terminal, 65536):
            written += chunk
            if typed and prompt.encode() in written:
                os.write(terminal, typed.encode())
                typed = ""
    os.close(terminal)
    return written.decode(errors="replace")
