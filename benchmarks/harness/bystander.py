"""Somebody who has nothing to do with the queue: pgbench on a table of its own, at a low, steady rate.

It reads by primary key and appends to a history; it updates nothing, or a held horizon would slow it down by its own
dead tuples, and the peer would be blamed. Its latency is from the intended time too (pgbench's --rate).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final, Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from benchmarks.harness.ground import Ground, connect

__all__ = ["Bystander", "parse"]

_ROWS: Final = 100_000
_TABLE: Final = f"""
create table public.bystander (aid int primary key, filler text);
insert into public.bystander select nr, repeat('x', 60) from generate_series(1, {_ROWS}) nr;
create table public.bystander_history (aid int, at timestamptz default now());
analyze public.bystander;
"""
_SCRIPT: Final = f"""
\\set aid random(1, {_ROWS})
begin;
select filler from public.bystander where aid = :aid;
insert into public.bystander_history (aid) values (:aid);
end;
"""


class Bystander:
    """pgbench for as long as the block lasts. Afterwards `latencies` has pairs of (seconds since the epoch, ms).

    It is killed, and does not get to write out the last second or two of its log.
    """

    def __init__(self, place: Ground, dsn: str, rate: float = 50) -> None:
        own = place.server.tool("pgbench") if place.server is not None else None
        found = own if own is not None and own.exists() else shutil.which("pgbench")
        self.latencies: list[tuple[float, float]] = []
        self.available = found is not None
        self._program, self._dsn, self._rate = found, dsn, rate
        self._directory = tempfile.TemporaryDirectory()
        self._process: subprocess.Popen[bytes] | None = None
        with connect(dsn) as conn:
            conn.execute(_TABLE)

    def __enter__(self) -> Self:
        if self._program is None:
            return self
        script = Path(self._directory.name, "script.sql")
        script.write_text(_SCRIPT)
        options = ["--no-vacuum", "--client=1", "--time=36000", f"--rate={self._rate:g}", f"--file={script}"]
        log = ["--log", f"--log-prefix={self._directory.name}/log", "--random-seed=1"]
        null = subprocess.DEVNULL
        parts = conninfo_to_dict(self._dsn)
        password = str(parts.pop("password", None) or "")  # not on a command line, where `ps` shows it
        command = [str(self._program), *options, *log, make_conninfo("", **parts)]
        environment = {**os.environ, **({"PGPASSWORD": password} if password else {})}
        self._process = subprocess.Popen(command, env=environment, stdin=null, stdout=null, stderr=null)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            for path in Path(self._directory.name).glob("log.*"):
                self.latencies += parse(path.read_text())
        self._directory.cleanup()


def parse(log: str) -> list[tuple[float, float]]:
    """pgbench's log: the end of each transaction as seconds since the epoch, and its latency in milliseconds.

    A line is: client, transaction, microseconds of latency, script, seconds, microseconds[, lag]. A last line that was
    cut off is left out.
    """
    found = []
    for line in log.splitlines():
        fields = line.split()
        if len(fields) >= 6 and fields[2].isdigit():
            found.append((int(fields[4]) + int(fields[5]) / 1e6, int(fields[2]) / 1000))
    return found
