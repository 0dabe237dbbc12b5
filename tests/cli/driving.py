"""The command line as a user drives it: a process, its arguments, what it writes where, and its exit status."""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

from tests.cli.shapes import check_shape
from tests.cli.zygote import Zygote

__all__ = ["ROOT", "Answer", "Run", "background", "command", "environment", "run", "run_on_terminal"]

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
    def plain(self) -> str:
        """What it wrote, without colours and the like."""
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\]8;[^\x1b]*\x1b\\|\r", "", self.out)

    @property
    def tsv(self) -> list[dict[str, str]]:
        names, *lines = [line.split("\t") for line in self.out.splitlines()]
        return [dict(zip(names, line, strict=True)) for line in lines]


Run = Callable[..., Answer]


def environment(dsn: str | None, **more: str) -> dict[str, str]:
    """Ours, with the database where it is looked for, and the package wherever the command runs."""
    found = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", **more}
    return {**found, "PGQ_DSN": dsn} if dsn is not None else found


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "pgq_py", *args]


@contextmanager
def background(*args: str, dsn: str | None, cwd: Path | None = None, **env: str) -> Iterator[subprocess.Popen[str]]:
    """`python -m pgq_py` as a process beside the test, killed at the end of the block at the latest."""
    with subprocess.Popen(
        command(*args),
        env=environment(dsn, **env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


def run(
    *args: str,
    dsn: str | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
) -> Answer:
    """Run `pgq` in a pipe. Whatever it answers to --json has the documented shape."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        fds = given.fileno(), out.fileno(), err.fileno()
        pid = zygote().start(args, {**environment(dsn), **(env or {})}, str(cwd or Path.cwd()), fds, terminal=False)
        guard = threading.Timer(120, os.kill, (pid, signal.SIGKILL))
        guard.start()
        status = zygote().wait()
        guard.cancel()
        answer = Answer(status, *(_read(stream) for stream in (out, err)))
    assert "Traceback" not in answer.err, answer.err
    check_shape(args, answer.out)
    return answer


def _read(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode()


@cache
def zygote() -> Zygote:
    """This process's."""
    found = Zygote()
    atexit.register(found.close)
    return found


def run_on_terminal(
    *args: str, dsn: str | None = None, typed: str = "", prompt: str = "[y/N] ", env: Mapping[str, str] | None = None
) -> Answer:
    """Run `pgq` on a terminal of its own, where stdout and stderr are one; type something at the prompt."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
    surroundings = {**environment(dsn, TERM="xterm-256color"), **(env or {})}
    pid = zygote().start(args, surroundings, str(Path.cwd()), (theirs, theirs, theirs), terminal=True)
    os.close(theirs)
    guard = threading.Timer(60, os.kill, (pid, signal.SIGKILL))
    guard.start()
    written = _converse(ours, prompt, typed)
    status = zygote().wait()
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
