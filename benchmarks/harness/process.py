"""A peer's process as the harness sees it: ask, and get an answer within a time."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, Final, Self

from benchmarks.harness.catalog import Peer

__all__ = ["PeerFailed", "PeerProcess"]

_SERVE: Final = Path(__file__).resolve().parents[1] / "peers" / "serve.py"
PATIENCE: Final = 180.0
"""Seconds that an answer may take, unless told."""


class PeerFailed(Exception):
    """A peer raised, died, or did not answer in time."""


class PeerProcess:
    """`benchmarks/peers/serve.py` in the peer's environment. Killed at the end of the block."""

    def __init__(self, peer: Peer, dsn: str, options: Mapping[str, str]) -> None:
        self.peer = peer
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PG", "PYTHON", "BENCH_"))}
        self._popen = subprocess.Popen(
            [peer.python, "-P", _SERVE, peer.reference],
            env={**kept, "BENCH_DSN": dsn, "BENCH_OPTIONS": json.dumps(dict(options))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """It ends what it runs when its stdin ends; whatever is left of it then, a ticker for instance, is killed."""
        if self._popen.stdin is not None:
            self._popen.stdin.close()
        try:
            self._popen.wait(3)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        with suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        if self._popen.stdout is not None:
            self._popen.stdout.close()
        self._errors.close()

    @property
    def pid(self) -> int:
        return self._popen.pid

    def ask(self, do: str, timeout: float = PATIENCE, **arguments: Any) -> Any:
        """Have a command carried out. Raises PeerFailed with the peer's own words."""
        self.tell(do, **arguments)
        return self.answer(do, timeout)

    def tell(self, do: str, **arguments: Any) -> None:
        """Give a command whose `answer` is awaited later."""
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self._popen.stdin.flush()
        except BrokenPipeError:
            raise self._failure(f"has ended before {do}") from None

    def answer(self, do: str, timeout: float = PATIENCE) -> Any:
        """The answer to the oldest command that has none yet."""
        answer = json.loads(self._line(do, timeout))
        if "error" in answer:
            raise PeerFailed(f"{self.peer.name}: {do}: {answer['error']}\n{answer.get('traceback', '')}")
        return answer["ok"]

    @property
    def has_answer(self) -> bool:
        """`answer` would not wait."""
        assert self._popen.stdout is not None
        return b"\n" in self._buffer or bool(select.select([self._popen.stdout], [], [], 0)[0])

    def _line(self, do: str, timeout: float) -> bytes:
        assert self._popen.stdout is not None
        deadline = monotonic() + timeout
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._popen.stdout], [], [], max(0.0, deadline - monotonic()))
            if not ready:
                self._popen.kill()
                raise self._failure(f"did not answer {do} within {timeout:g} s")
            data = os.read(self._popen.stdout.fileno(), 1 << 20)
            if not data:
                raise self._failure(f"has ended during {do}")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _failure(self, what: str) -> PeerFailed:
        self._popen.wait()
        self._errors.seek(0)
        return PeerFailed(f"{self.peer.name} {what}\n{self._errors.read().decode(errors='replace')[-3000:]}")
