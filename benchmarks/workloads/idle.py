"""What does it cost when nothing happens? WAL, transactions and processor time of a minute.

The receiver waits, the background runs, nobody sends. Autovacuum is off for that time, so that its work after the
installation is not charged to the peer. Processor time is of all processes of the peer and of all its sessions in the
server, where that is this machine's.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from time import monotonic, sleep

from benchmarks.harness.arena import Arena, Contestant, Request, arena, turns
from benchmarks.harness.ground import connect
from benchmarks.harness.outcome import Outcome
from benchmarks.workloads.live import Live
from pgq_py.bench.quiet import processor_seconds

__all__ = ["Parameters", "run"]

_COUNTERS = """
select (pg_current_wal_lsn() - '0/0')::bigint, xact_commit + xact_rollback,
       array(select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid())
  from pg_stat_database where datname = current_database()
"""


@dataclass(frozen=True, slots=True)
class Parameters:
    """`seconds` are measured after `settle` others."""

    seconds: float = 60.0
    settle: float = 10.0
    rounds: int = 1


@dataclass(frozen=True, slots=True)
class _Reading:
    at: float
    wal: int
    transactions: int
    processor: dict[int, float]


def run(parameters: Parameters, request: Request) -> Outcome:
    """One peer at a time: WAL is counted for the whole server."""
    with arena("idle", ("live",), request, asdict(parameters), consumers=1) as found:
        if found.ground.server is not None:
            with connect(found.ground.admin) as conn:
                conn.execute("alter system set autovacuum = off")
                conn.execute("select pg_reload_conf()")

        def turn(contestant: Contestant, nth: int) -> None:
            if nth:
                _measure(found, contestant, parameters)

        turns(found, parameters.rounds, "idle", "live", turn)
        return found.outcome


def _measure(found: Arena, contestant: Contestant, parameters: Parameters) -> None:
    with Live(contestant) as live:
        with connect(contestant.dsn) as conn:
            conn.execute("vacuum")
            conn.execute("checkpoint")
        sleep(parameters.settle)
        pids = [*live.receiver.ask("pids"), *live.background_pids]
        local = found.ground.server is not None
        before = _read(contestant.dsn, pids, local)
        sleep(parameters.seconds)
        after = _read(contestant.dsn, pids, local)
        live.receiver.ask("stop")
        live.background.ask("stop")
    minutes = (after.at - before.at) / 60
    spent = sum(seconds - before.processor[pid] for pid, seconds in after.processor.items() if pid in before.processor)
    add, name = found.outcome.add, contestant.name
    add(name, "WAL a minute", (after.wal - before.wal) / minutes, "bytes", "lower")
    # each reading is a session of the harness: two or three transactions
    add(name, "transactions a minute", max(0, after.transactions - before.transactions - 2) / minutes, "tx", "lower")
    add(name, "processor", spent / (after.at - before.at) * 100, "%", "lower")


def _read(dsn: str, pids: list[int], local: bool) -> _Reading:
    with connect(dsn) as conn:
        wal, transactions, backends = conn.execute(_COUNTERS).fetchone() or (0, 0, [])
    known = [*pids, *(backends if local else [])]
    processor = {pid: spent for pid in known if (spent := processor_seconds(pid)) is not None}
    return _Reading(monotonic(), int(wal), int(transactions), processor)
