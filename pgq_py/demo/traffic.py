"""Real traffic: pgbench's TPC-B-like transaction from several clients, with an event in each."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from pgq_py.demo import statements
from pgq_py.demo.place import Place
from pgq_py.errors import PgqError

__all__ = ["Traffic", "prepare_accounts"]

_MOST_TRIES = 100
"""How often pgbench runs a transaction that got a serialization failure, as rotation may cause one."""


def prepare_accounts(place: Place, scale: int) -> None:
    """pgbench's tables, with 100,000 accounts per unit of scale."""
    done = subprocess.run(
        [place.bin_dir / "pgbench", "--initialize", "--quiet", "--scale", str(scale)],
        env=place.client_env(),
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
    )
    if done.returncode != 0:
        raise _failure("pgbench could not make its tables", done.stderr)


class Traffic:
    """pgbench at work, from entry to exit of the block; it ends by itself after the given time.

    It is in a session of its own, so that Ctrl-C on the terminal reaches this process alone.
    """

    def __init__(self, place: Place, *, clients: int, seconds: float, scale: int) -> None:
        self._place = place
        self._arguments = ["--no-vacuum", "--protocol=prepared", f"--max-tries={_MOST_TRIES}"]
        self._arguments += [f"--client={clients}", f"--jobs={min(clients, 2)}"]
        self._arguments += [f"--time={max(1, round(seconds))}", f"--define=scale={scale}"]
        self._files = tempfile.TemporaryDirectory(prefix="pgq-demo-")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        files = Path(self._files.name)
        (files / "transaction.sql").write_text(statements.TRANSACTION)
        with (files / "output").open("wb") as output:
            self._process = subprocess.Popen(
                [self._place.bin_dir / "pgbench", *self._arguments, f"--file={files / 'transaction.sql'}"],
                env=self._place.client_env(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._files.cleanup()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def transactions(self) -> int:
        """How many transactions pgbench says it has committed. Raises PgqError when it failed, or a client gave up."""
        output = Path(self._files.name, "output").read_text(errors="replace")
        found = re.search(r"number of transactions actually processed: (\d+)", output)
        if self.running or self._process is None or self._process.returncode != 0 or found is None:
            raise _failure("pgbench failed", output)
        return int(found[1])


def _failure(what: str, output: str) -> PgqError:
    return PgqError(what, advice="\n".join(output.strip().splitlines()[-5:]))
