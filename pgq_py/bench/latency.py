"""How long does an event take? From the moment at which it was meant to be sent to its handler, in another process.

Producer, `pgq ticker` and consumer are processes of their own at default settings, every commit is durable, and the
producer keeps to its schedule whatever happens, so the time of the commit and of every stall is in the figure.

Scenarios: `plain`; `idle-writer`, with a transaction that has written in another database and stays open;
`dead-ticker`, which was killed before, so that the consumer ticks for itself; `failover`, in which the leading one of
two tickers is killed in the middle.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from time import monotonic, sleep
from typing import Any, Final, Literal, get_args

import psycopg

from pgq_py.app import PgQ
from pgq_py.bench.histogram import Percentiles
from pgq_py.bench.live import QUEUE, Process, Processes, leader
from pgq_py.bench.results import Line, Promise, Result
from pgq_py.bench.rounds import Progress, silent
from pgq_py.bench.targets import Target, connect, scratch_database, target

__all__ = ["SCENARIOS", "LatencyParameters", "LatencyResult", "Scenario", "run_latency", "seconds_until_back"]

Scenario = Literal["plain", "idle-writer", "dead-ticker", "failover"]
SCENARIOS: Final[tuple[Scenario, ...]] = get_args(Scenario)

CONSUMER: Final = "consumer"
GOOD_MS: Final = 6.0
BACK_SECONDS: Final = 2.0
BOUNDS: Final[dict[Scenario, dict[str, float]]] = {
    "plain": {"p50_ms": 2.5, "p99_ms": GOOD_MS},
    "idle-writer": {"p50_ms": 3.0},
    "dead-ticker": {"p99_ms": 600.0},
    "failover": {"p50_ms": 2.5},
}
IN_A_ROW: Final = 10
"""So many events in good time, one after the other, and the outage is over."""


@dataclass(frozen=True, slots=True)
class LatencyParameters:
    """`seconds` are measured, after `warm_up` others. Without `bounds`, only losses break a promise."""

    rate: float = 50.0
    seconds: float = 20.0
    scenario: Scenario = "plain"
    bounds: bool = True
    warm_up: float = 2.0


@dataclass(frozen=True, slots=True)
class LatencyResult(Result):
    """`latency` is of the measured events, `send` the time that the producer's calls took, all of them.

    `back_after` counts seconds from the death of the leading ticker; None in other scenarios, and when it never ended.
    """

    latency: Percentiles
    send: Percentiles
    sent: int
    received: int
    ticks: int
    back_after: float | None

    def lines(self) -> list[Line]:
        back = [] if self.back_after is None else [Line("back in time after", self.back_after, "s")]
        return [
            *self.latency.lines("sent to handled"),
            *self.send.lines("of which sending"),
            Line("events sent", self.sent, "events"),
            Line("events received", self.received, "events"),
            Line("ticks", self.ticks, "ticks"),
            *back,
        ]


@dataclass(frozen=True)
class _Seen:
    """Intended time and latency of each event, by time; when the leader was killed."""

    events: list[tuple[float, float]]
    spent: list[float]
    done: int
    start: float
    killed: float | None


def run_latency(
    parameters: LatencyParameters | None = None, *, dsn: str | None = None, progress: Progress = silent
) -> LatencyResult:
    """Run the benchmark on a server of its own, or in a new database on the server of `dsn`."""
    chosen = parameters or LatencyParameters()
    with target(dsn) as place, connect(place.dsn) as conn:
        with PgQ(place.dsn) as pgq:
            pgq.create_queue(QUEUE)
            pgq.register_consumer(QUEUE, CONSUMER)
        progress("latency", 0, 1)
        with ExitStack() as stack:
            if chosen.scenario == "idle-writer":
                stack.enter_context(_idle_writer(place.dsn))
            before = _last_tick(conn)
            seen = _measure(stack.enter_context(Processes(place.dsn)), conn, chosen)
        ticks = _last_tick(conn) - before
        progress("latency", 1, 1)
        return _result(place, chosen, seen, ticks)


def _measure(processes: Processes, conn: psycopg.Connection[Any], parameters: LatencyParameters) -> _Seen:
    names = ["first", "second"] if parameters.scenario == "failover" else ["first"]
    tickers = {name: processes.ticker(name) for name in names}
    consumer = processes.consumer(CONSUMER)
    leading = leader(conn)
    if parameters.scenario == "dead-ticker":
        tickers[leading].kill()
    producer = processes.producer(parameters.rate, parameters.warm_up + parameters.seconds)
    start = producer.report()["start"] + parameters.warm_up
    killed = None
    if parameters.scenario == "failover":
        killed = _kill_leader(conn, tickers, start + parameters.seconds / 2)
    sent = producer.report()
    consumer.tell(str(sent["sent"]))
    report = consumer.report()
    events = [(stamp, at - stamp) for stamp, at, _ in report["first"]]
    return _Seen(events, sent["spent"], report["done"], start, killed)


def _kill_leader(conn: psycopg.Connection[Any], tickers: dict[str, Process], at: float) -> float:
    sleep(max(0.0, at - monotonic()))
    tickers[leader(conn)].kill()
    return monotonic()


@contextmanager
def _idle_writer(dsn: str) -> Iterator[None]:
    """A transaction with an id of its own in another database, open all the time."""
    with scratch_database(dsn) as other, connect(other) as conn, conn.transaction():
        conn.execute("select pg_current_xact_id()")
        yield


def _last_tick(conn: psycopg.Connection[Any]) -> int:
    (tick,) = conn.execute("select coalesce(max(tick_id), 0) from pgq.tick").fetchone() or (0,)
    return int(tick)


def seconds_until_back(events: list[tuple[float, float]], killed: float) -> float | None:
    """From the kill to the first of ten events in a row in good time; None when there is none."""
    after = [(stamp, latency * 1000 <= GOOD_MS) for stamp, latency in events if stamp >= killed]
    for nth, (stamp, _) in enumerate(after[: 1 - IN_A_ROW]):
        if all(good for _, good in after[nth : nth + IN_A_ROW]):
            # with the very first ones in time, nobody noticed anything
            return round(stamp - killed, 3) if nth else 0.0
    return None


def _result(place: Target, parameters: LatencyParameters, seen: _Seen, ticks: int) -> LatencyResult:
    latency = Percentiles.of(latency for stamp, latency in seen.events if stamp >= seen.start)
    back = None if seen.killed is None else seconds_until_back(seen.events, seen.killed)
    return LatencyResult(
        place.record("latency", asdict(parameters)),
        promises=tuple(_promises(parameters, latency, seen, back)),
        latency=latency,
        send=Percentiles.of(seen.spent),
        sent=len(seen.spent),
        received=seen.done,
        ticks=ticks,
        back_after=back,
    )


def _promises(
    parameters: LatencyParameters, latency: Percentiles, seen: _Seen, back: float | None
) -> Iterator[Promise]:
    yield Promise("events received of those sent", seen.done, len(seen.spent), at_least=True)
    if not parameters.bounds:
        return
    for name, bound in BOUNDS[parameters.scenario].items():
        yield Promise(f"latency {name}", getattr(latency, name), bound, at_least=False)
    if seen.killed is not None:
        never = "" if back is not None else "it did not come back"
        measured = parameters.seconds if back is None else back
        yield Promise("seconds until back in time", measured, BACK_SECONDS, at_least=False, note=never)
