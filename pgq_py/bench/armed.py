"""What does a ticker cost that asked to be woken, and died? While its deadline is ahead, and after that.

Many clients send one event per transaction, each on a connection of its own. While somebody has asked to be woken
(`armed`), every commit notifies, and PostgreSQL lets one of those through at a time; once the deadline is over
(`expired`), that is to cost nothing. Either takes turns with runs in which nobody has asked (`disarmed`): only with
those, for a slow run leaves the disk at rest for the next one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from time import monotonic, sleep
from typing import Any, Final

import psycopg
from psycopg.sql import SQL, Composed, Identifier

from pgq_py.app import PgQ
from pgq_py.bench.results import Line, Promise, Result, Spread
from pgq_py.bench.rounds import Progress, alternate, silent
from pgq_py.bench.targets import connect, target

__all__ = ["ArmedParameters", "ArmedResult", "run_armed"]

QUEUE: Final = "bench"
EXPIRED_SHARE: Final = 0.95
"""What producers must reach after the deadline of what they reach with nobody armed."""

_LONGEST_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class ArmedParameters:
    """Each run sends from `clients` sessions for `seconds`. Without `bounds`, only losses break a promise."""

    clients: int = 16
    seconds: float = 2.0
    rounds: int = 9
    bounds: bool = True


@dataclass(frozen=True, slots=True)
class ArmedResult(Result):
    """Events per second of each way (`disarmed` beside `expired`), and ratios of the runs that took turns."""

    events_per_second: dict[str, Spread]
    ratios: dict[str, Spread]

    def lines(self) -> list[Line]:
        return [
            *(Line.of(name, spread, "events/s") for name, spread in self.events_per_second.items()),
            *(Line.of(name, spread, "ratio") for name, spread in self.ratios.items()),
        ]


def run_armed(
    parameters: ArmedParameters | None = None, *, dsn: str | None = None, progress: Progress = silent
) -> ArmedResult:
    """Run the benchmark on a server of its own, or in a new database on the server of `dsn`."""
    chosen = parameters or ArmedParameters()
    with target(dsn) as place, connect(place.dsn) as conn, ExitStack() as stack:
        with PgQ(place.dsn) as pgq:
            pgq.create_queue(QUEUE)
        clients = [stack.enter_context(connect(place.dsn)) for _ in range(chosen.clients)]
        rush = Rush(clients, chosen.seconds)
        taken: dict[str, list[float]] = {}
        ratios: dict[str, Spread] = {}
        for way, ms in (("armed", _LONGEST_MS), ("expired", 1)):
            ways: dict[str, Callable[[], float]] = {
                "disarmed": partial(_run, conn, rush, 0),
                way: partial(_run, conn, rush, ms),
            }
            taken |= alternate(ways, chosen.rounds, way, progress)
            ratios[f"{way} / disarmed"] = Spread.of_ratio(taken[way], taken["disarmed"])
        bound = EXPIRED_SHARE if chosen.bounds else 0.0
        return ArmedResult(
            place.record("armed", asdict(chosen)),
            promises=(
                Promise("events found of those sent", _found(conn), rush.sent, True),
                Promise("expired / disarmed", ratios["expired / disarmed"].median, bound, True),
            ),
            events_per_second={name: Spread.of(rates) for name, rates in taken.items()},
            ratios=ratios,
        )


class Rush:
    """Clients that send at the same time; `sent` counts the events of all runs."""

    def __init__(self, clients: list[psycopg.Connection[Any]], seconds: float) -> None:
        self.sent = 0
        self._clients, self._seconds = clients, seconds
        (function,) = clients[0].execute("select pgq.producer_function(%s)", [QUEUE]).fetchone() or ("",)
        self._statement = SQL("select pgq.{}('bench', 'x', null, null, null, null)").format(Identifier(function))

    def rate(self) -> float:
        """Send for the time that was set; returns events per second."""
        done = [0] * len(self._clients)
        begin = monotonic()
        threads = [
            threading.Thread(target=_send, args=(client, self._statement, begin + self._seconds, done, nth))
            for nth, client in enumerate(self._clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        spent = monotonic() - begin
        self.sent += sum(done)
        return sum(done) / spent


def _send(conn: psycopg.Connection[Any], statement: Composed, end: float, done: list[int], nth: int) -> None:
    while monotonic() < end:
        conn.execute(statement)
        done[nth] += 1


def _run(conn: psycopg.Connection[Any], rush: Rush, ms: int) -> float:
    """Arm for so many ms, as a ticker does that dies at once; a short time is over before the run begins."""
    conn.execute("select pgq.arm_wake(%s)", [ms])
    if 0 < ms < _LONGEST_MS:
        while conn.execute("select pgq.wake_armed_ms() > 0").fetchone() == (True,):
            sleep(0.001)
    return rush.rate()


def _found(conn: psycopg.Connection[Any]) -> int:
    (found,) = conn.execute("select count(*) from pgq.event_template").fetchone() or (0,)
    return int(found)
