"""What failing costs: a nack per event, of few and of many events, and many retries that are due at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final

import psycopg

from pgq_py.app import PgQ
from pgq_py.bench.payloads import EVENT_TYPE, payloads, texts
from pgq_py.bench.results import Line, Spread
from pgq_py.bench.rounds import Progress, alternate
from pgq_py.bench.targets import connect
from pgq_py.errors import PgqError

__all__ = ["Backlog", "NackTimes", "measure_backlog", "measure_nack"]

CONSUMER: Final = "consumer"
ROUNDS: Final = 5
MOST_POKES: Final = 100


@dataclass(frozen=True, slots=True)
class NackTimes:
    """Microseconds per event of a nack of a twentieth and of half of a batch of `batch` events, and their ratio."""

    batch: int
    few: int
    many: int
    few_us: Spread
    many_us: Spread
    ratio: float

    def lines(self) -> list[Line]:
        return [
            Line.of(f"nack of {self.few:,} of {self.batch:,}, per event", self.few_us, "us"),
            Line.of(f"nack of {self.many:,} of {self.batch:,}, per event", self.many_us, "us"),
            Line("many / few", self.ratio, "ratio"),
        ]


@dataclass(frozen=True, slots=True)
class Backlog:
    """`back` of `events` retries, all due at once, were in their queue and visible after `seconds`."""

    events: int
    back: int
    seconds: float
    nack_seconds: float

    def lines(self) -> list[Line]:
        return [
            Line(f"nack of {self.events:,} events", self.nack_seconds, "s"),
            Line(f"{self.events:,} due events back in their queue", self.seconds, "s"),
        ]


def measure_nack(dsn: str, batch: int, progress: Progress) -> NackTimes:
    """In turns, each in a transaction that is rolled back, so that all meet the same batch."""
    few, many = max(batch // 20, 1), max(batch // 2, 1)
    with connect(dsn) as conn:
        number, ids = _open_batch(dsn, conn, "bench_nack", batch)

        def way(count: int) -> Callable[[], float]:
            chosen = ids[:: len(ids) // count][:count]
            return lambda: _nack(conn, "bench_nack", number, chosen, rollback=True) / count * 1e6

        taken = alternate({"few": way(few), "many": way(many)}, ROUNDS, "nack", progress)
    ratio = Spread.of_ratio(taken["many"], taken["few"]).median
    return NackTimes(batch, few, many, Spread.of(taken["few"]), Spread.of(taken["many"]), ratio)


def measure_backlog(dsn: str, events: int, progress: Progress) -> Backlog:
    """Nack all of a batch for now, finish it, and poke as a consumer does when no ticker runs."""
    queue = "bench_backlog"
    with connect(dsn) as conn:
        number, ids = _open_batch(dsn, conn, queue, events)
        progress("backlog", 0, 2)
        nacking = _nack(conn, queue, number, ids, rollback=False)
        conn.execute("select pgq.finish_batch(%s)", [number])
        progress("backlog", 1, 2)
        begin = perf_counter()
        for _ in range(MOST_POKES):
            if conn.execute("select pgq.poke(%s)", [queue]).fetchone() == (None,):
                break
        seconds = perf_counter() - begin
        back = _count(conn, queue, events)
        progress("backlog", 2, 2)
    return Backlog(events, back, round(seconds, 3), round(nacking, 3))


def _open_batch(dsn: str, conn: psycopg.Connection[Any], queue: str, events: int) -> tuple[int, list[int]]:
    """A queue with one open batch of so many events: its number and their ids."""
    with PgQ(dsn) as pgq:
        pgq.create_queue(queue)
        pgq.register_consumer(queue, CONSUMER)
        pgq.send_many(queue, texts(payloads(events, 1)), type=EVENT_TYPE)
        pgq.force_tick(queue)
    number = _take(conn, queue, events)
    rows = conn.execute("select ev_id from pgq.get_batch_events(%s)", [number]).fetchall()
    return number, [event for (event,) in rows]


def _take(conn: psycopg.Connection[Any], queue: str, events: int) -> int:
    query = "select batch_id from pgq.open_batch(%s, %s, %s)"
    row = conn.execute(query, [queue, CONSUMER, events]).fetchone()
    if row is None or row[0] is None:
        raise PgqError(f"no batch in {queue}")
    return int(row[0])


def _nack(conn: psycopg.Connection[Any], queue: str, number: int, ids: Sequence[int], *, rollback: bool) -> float:
    """Seconds of a nack for at once, without its commit."""
    with conn.transaction(force_rollback=rollback):
        begin = perf_counter()
        conn.execute("select pgq.nack(%s, %s, %s, %s, 'bench', interval '0')", [queue, CONSUMER, number, list(ids)])
        return perf_counter() - begin


def _count(conn: psycopg.Connection[Any], queue: str, events: int) -> int:
    number = _take(conn, queue, events * 2)
    (count,) = conn.execute("select count(*) from pgq.get_batch_events(%s)", [number]).fetchone() or (0,)
    conn.execute("select pgq.finish_batch(%s)", [number])
    return int(count)
