"""What do a ticker and consumers cost that have nothing to do? Ticks, WAL, transactions and processor time.

All at default settings and in processes of their own, with three consumers of one queue and any number of queues
besides. The server's figures are its own counters; its sessions report to them within ten seconds, which evens out.
Processor time is read from /proc and so exists on Linux alone, and for the server only where that is this machine's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

import psycopg

from pgq_py.app import PgQ
from pgq_py.bench.live import QUEUE, Process, Processes, leader
from pgq_py.bench.results import Line, Promise, Result
from pgq_py.bench.rounds import Progress, silent
from pgq_py.bench.targets import Target, connect, target

__all__ = ["QuietParameters", "QuietResult", "processor_seconds", "run_quiet"]

CONSUMERS: Final = 3
WAL_PER_MINUTE: Final = 5 * 1024
TRANSACTIONS_PER_MINUTE: Final = 200
CPU_PERCENT: Final = 1.0
CPU_PERCENT_MANY: Final = 2.0
MANY: Final = 100
"""From so many queues on the second bound of the processor time holds."""

_COUNTERS = """
select (pg_current_wal_lsn() - '0/0')::bigint, xact_commit + xact_rollback,
       (select coalesce(sum(last_tick_id), 0) from pgq.get_queue_info())::bigint
  from pg_stat_database where datname = current_database()
"""
_BACKENDS = """
select application_name, pid from pg_stat_activity
 where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()
"""


@dataclass(frozen=True, slots=True)
class QuietParameters:
    """`seconds` are measured once everything has been at rest for `settle` seconds. `queues` counts all of them."""

    seconds: float = 60.0
    queues: int = 1
    settle: float = 12.0
    bounds: bool = True


@dataclass(frozen=True, slots=True)
class QuietResult(Result):
    """Of the whole time. Percentages are of one processor, by process and all together; None where unknown."""

    idle_seconds: float
    ticks: int
    wal_bytes: int
    transactions: int
    cpu_percent: float | None
    cpu_percent_by_process: dict[str, float]

    def lines(self) -> list[Line]:
        together = [] if self.cpu_percent is None else [Line("processor", self.cpu_percent, "%")]
        return [
            Line("ticks", self.ticks, "ticks"),
            Line("WAL", self.wal_bytes, "bytes"),
            Line("transactions", self.transactions, "transactions"),
            *together,
            *(Line(f"processor, {name}", percent, "%") for name, percent in self.cpu_percent_by_process.items()),
        ]


@dataclass(frozen=True)
class _Reading:
    at: float
    wal: int
    transactions: int
    ticks: int
    seconds: dict[str, float]


def run_quiet(
    parameters: QuietParameters | None = None, *, dsn: str | None = None, progress: Progress = silent
) -> QuietResult:
    """Run the benchmark on a server of its own, or in a new database on the server of `dsn`."""
    chosen = parameters or QuietParameters()
    with target(dsn) as place, connect(place.dsn) as conn, Processes(place.dsn) as processes:
        _prepare(place, chosen, progress)
        ours = [processes.ticker(), *(processes.consumer(f"consumer_{nr}") for nr in range(CONSUMERS))]
        leader(conn)
        _pass(chosen.settle, "settle", progress)
        before = _read(conn, ours)
        _pass(chosen.seconds, "idle", progress)
        return _result(place, chosen, before, _read(conn, ours))


def _prepare(place: Target, parameters: QuietParameters, progress: Progress) -> None:
    with PgQ(place.dsn) as pgq:
        for nr in range(parameters.queues):
            pgq.create_queue(QUEUE if nr == 0 else f"{QUEUE}_{nr}")
            progress("queues", nr + 1, parameters.queues)
        for nr in range(CONSUMERS):
            pgq.register_consumer(QUEUE, f"consumer_{nr}")
    if place.private:
        with connect(place.dsn) as conn:
            _end_installation(conn)


def _end_installation(conn: psycopg.Connection[Any]) -> None:
    """What autovacuum does about a minute after an installation, all over the server, would be charged to us."""
    conn.execute("alter system set autovacuum = off")
    conn.execute("select pg_reload_conf()")
    conn.execute("vacuum")
    conn.execute("checkpoint")


def _pass(seconds: float, stage: str, progress: Progress) -> None:
    end = monotonic() + seconds
    while (left := end - monotonic()) > 0:
        progress(stage, round(seconds - left), round(seconds))
        sleep(min(1.0, left))


def _read(conn: psycopg.Connection[Any], ours: Iterable[Process]) -> _Reading:
    """One transaction of this session per reading."""
    with conn.transaction():
        backends = conn.execute(_BACKENDS).fetchall()
        wal, transactions, ticks = conn.execute(_COUNTERS).fetchone() or (0, 0, 0)
    seconds: dict[str, float] = {}
    pids = [(f"{process.name} (client)", process.pid) for process in ours]
    if _is_local(conn):
        pids += [(f"{name} (server)", pid) for name, pid in backends]
    for name, pid in pids:
        if (spent := processor_seconds(pid)) is not None:
            seconds[name] = seconds.get(name, 0.0) + spent
    return _Reading(monotonic(), wal, transactions, ticks, seconds)


def _is_local(conn: psycopg.Connection[Any]) -> bool:
    """Through a Unix socket, so that the server's process ids are ours."""
    return conn.info.host.startswith("/")


def processor_seconds(pid: int) -> float | None:
    """User and system time of a process so far; None when that is not to be known."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _result(place: Target, parameters: QuietParameters, before: _Reading, after: _Reading) -> QuietResult:
    passed = after.at - before.at
    percent = {
        name: round((spent - before.seconds[name]) / passed * 100, 2)
        for name, spent in after.seconds.items()
        if name in before.seconds
    }
    found = QuietResult(
        place.record("idle", asdict(parameters)),
        promises=(),
        idle_seconds=round(passed, 2),
        ticks=after.ticks - before.ticks,
        wal_bytes=after.wal - before.wal,
        transactions=after.transactions - before.transactions - 1,
        cpu_percent=round(sum(percent.values()), 2) if percent else None,
        cpu_percent_by_process=percent,
    )
    return replace(found, promises=tuple(_promises(place, parameters, found)))


def _promises(place: Target, parameters: QuietParameters, found: QuietResult) -> Iterator[Promise]:
    yield Promise("tick rows made", found.ticks, 0, at_least=False)
    if not parameters.bounds:
        return
    minutes = found.idle_seconds / 60
    if place.private:  # elsewhere others write WAL too
        yield Promise("bytes of WAL per minute", round(found.wal_bytes / minutes), WAL_PER_MINUTE, at_least=False)
    rate = round(found.transactions / minutes)
    yield Promise("transactions per minute", rate, TRANSACTIONS_PER_MINUTE, at_least=False)
    if found.cpu_percent is not None:
        bound = CPU_PERCENT if parameters.queues < MANY else CPU_PERCENT_MANY
        yield Promise("percent of a processor", found.cpu_percent, bound, at_least=False)
