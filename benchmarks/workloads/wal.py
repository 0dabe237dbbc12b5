"""How much WAL does a message cost, from the call that sends it to the end of its acknowledgement?

Messages are sent one by one, each with a commit: `in batches`, all of them before the receiver and the background start
to work; `live`, while they are at work. All has been received and finished before the second reading. A first load of a
tenth touches every page that it will, so that full page images after the checkpoint are not in the figure. Autovacuum
is off.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from time import monotonic, sleep
from typing import Any, Final

from benchmarks.harness.aims import ratios
from benchmarks.harness.arena import Arena, Contestant, Request, arena, turns
from benchmarks.harness.ground import connect
from benchmarks.harness.numbers import Numbers
from benchmarks.harness.outcome import Check, Outcome
from benchmarks.harness.process import PeerFailed
from benchmarks.workloads.live import Live

__all__ = ["Parameters", "run"]

PATIENCE = 60.0
"""Seconds until what was not received counts as lost."""
MODES: Final = ("in batches", "live")
_LSN = "select (pg_current_wal_insert_lsn() - '0/0')::bigint"


@dataclass(frozen=True, slots=True)
class Parameters:
    """Messages a turn, and how many jobs a worker claims at a time."""

    messages: int = 4_000
    claim: int = 100
    modes: tuple[str, ...] = MODES
    rounds: int = 3


def run(parameters: Parameters, request: Request) -> Outcome:
    """Logs have events, job queues have jobs."""
    numbers = Numbers()
    with arena("wal", ("live",), request, asdict(parameters), consumers=1) as found:
        if found.ground.server is not None:
            with connect(found.ground.admin) as conn:
                conn.execute("alter system set autovacuum = off")
                conn.execute("select pg_reload_conf()")

        for mode in parameters.modes:

            def turn(contestant: Contestant, nth: int, mode: str = mode) -> None:
                count = parameters.messages if nth else max(20, parameters.messages // 10)
                spent = _measure(
                    found, contestant, mode, first=numbers.take(count), count=count, claim=parameters.claim
                )
                if nth:
                    figure = f"WAL per {contestant.peer.adapter.unit}, {mode}"
                    found.outcome.add(contestant.name, figure, spent / count, "bytes", "lower")

            turns(found, parameters.rounds, f"wal, {mode}", "live", turn)
        found.outcome.ratios.extend(ratios(found.outcome))
        return found.outcome


def _measure(found: Arena, contestant: Contestant, mode: str, *, first: int, count: int, claim: int) -> int:
    control = contestant.control
    control.ask("make", first=first, count=count, seed=found.request.seed)
    with connect(contestant.dsn) as conn:
        (before,) = conn.execute(_LSN).fetchone() or (0,)
        if mode == "in batches":
            control.ask("send", first=first, how="single")
        with Live(contestant, claim) as live:
            if mode == "live":
                control.ask("send", first=first, how="single")
            received = _await(contestant, live, count)
            (after,) = conn.execute(_LSN).fetchone() or (0,)
            live.background.ask("stop")
    found.outcome.checks.append(Check.of(contestant.name, mode, first, count, received))
    return int(after) - int(before)


def _await(contestant: Contestant, live: Live, count: int) -> dict[str, Any]:
    """What arrived, when all has arrived and is finished."""
    deadline = monotonic() + PATIENCE
    while live.receiver.ask("progress") < count:
        if monotonic() > deadline:
            raise PeerFailed(f"{contestant.name}: not all messages were received within {PATIENCE:g} s of the last")
        sleep(0.02)
    while contestant.peer.adapter.unit == "job" and contestant.control.ask("unfinished") and monotonic() < deadline:
        sleep(0.02)
    live.receiver.ask("stop")
    received: dict[str, Any] = live.receiver.ask("received")
    return received
