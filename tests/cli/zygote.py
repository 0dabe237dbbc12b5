"""A process that has imported the command line and forks for each command: half a second less for each of them.

What runs is `pgq_py.cli.main` in a process of its own, with its own arguments, environment, directory, terminal and
exit status, as if it had been started by a shell. `python -m pgq_py` itself is started in `test_processes`.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import socket
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["Zygote"]

ROOT = Path(__file__).parent.parent.parent


class Zygote:
    """The test's side. One command at a time."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.zygote", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self._answers = self._socket.makefile("r")

    def start(
        self, args: tuple[str, ...], env: Mapping[str, str], cwd: str, fds: tuple[int, int, int], *, terminal: bool
    ) -> int:
        """Fork a command with these as stdin, stdout and stderr; returns its process id."""
        request = json.dumps({"args": args, "env": dict(env), "cwd": cwd, "terminal": terminal}).encode()
        socket.send_fds(self._socket, [len(request).to_bytes(8, "big")], list(fds))
        self._socket.sendall(request)
        return int(self._answers.readline())

    def wait(self) -> int:
        """The exit status of the command, as a shell has it; negative for a signal."""
        return int(self._answers.readline())

    def close(self) -> None:
        self._answers.close()
        self._socket.close()
        self._process.wait(30)


def _serve(number: int) -> None:
    import pgq_py.cli  # noqa: F401 - what all commands have in common

    gc.freeze()  # children would copy what a collection touches
    with socket.socket(fileno=number) as requests:
        while True:
            head, fds, _, _ = socket.recv_fds(requests, 8, 3)
            if not head:
                return
            request = json.loads(_exactly(requests, int.from_bytes(head, "big")))
            child = os.fork()
            if child == 0:
                requests.close()
                _become(request, fds)
            for fd in fds:
                os.close(fd)
            requests.sendall(f"{child}\n".encode())
            _, status = os.waitpid(child, 0)
            requests.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _exactly(requests: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        found += requests.recv(size - len(found))
    return found


def _become(request: dict[str, Any], fds: list[int]) -> None:
    """The command; does not return."""
    os.setsid()
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    if request["terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    sys.argv = ["pgq", *request["args"]]
    sys.path[0] = request["cwd"]
    status = 1
    try:
        from pgq_py.cli import main

        main()
        status = 0
    except SystemExit as exc:
        status = exc.code if isinstance(exc.code, int) else 0 if exc.code is None else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                status = status or 1
        os._exit(status)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
