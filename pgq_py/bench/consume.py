"""How fast do events get out? A large batch streamed through the client, beside a plain fetch of the same rows.

The limit is a SELECT of the same columns from the same slot, in binary, rows as tuples, all fetched before the first
is looked at: no order, no snapshots, no acknowledgement, and memory for everything. Both ways hand every row to a
Python loop. The client's way ends with the acknowledgement; seeking back for the next turn is not measured.

How much memory a batch needs is measured where nothing else is in memory: in a fresh interpreter that streams a batch
of a million events and reports its own peak.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any, Final

import psycopg
from psycopg.pq import Format
from psycopg.sql import SQL

from pgq_py.app import PgQ
from pgq_py.bench.payloads import EVENT_TYPE, payloads, texts
from pgq_py.bench.results import Line, Promise, Result, Spread
from pgq_py.bench.rounds import Progress, alternate, silent
from pgq_py.bench.targets import connect, target

__all__ = ["ConsumeParameters", "ConsumeResult", "Memory", "run_consume"]

QUEUE: Final = "bench"
MEMORY_QUEUE: Final = "bench_memory"
CONSUMER: Final = "reader"
FETCH_SHARE: Final = 0.7
"""What streaming a batch must reach of a raw fetch."""
PEAK_MIB: Final = 200.0
"""What a process that streams a batch may need, interpreter included."""

_COLUMNS: Final = SQL(
    "select ev_id, ev_time, ev_txid, ev_retry, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4 from {}"
)


@dataclass(frozen=True, slots=True)
class ConsumeParameters:
    """Events in the batch that is timed, and in the one whose memory is measured."""

    events: int = 200_000
    memory_events: int = 1_000_000
    rounds: int = 9
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Memory:
    """What the reading process reported: its peak resident set, and that before it connected."""

    events: int
    peak_mib: float
    start_mib: float
    events_per_second: float


@dataclass(frozen=True, slots=True)
class ConsumeResult(Result):
    """Events per second of each way, and their ratios."""

    events_per_second: dict[str, Spread]
    ratios: dict[str, Spread]
    memory: Memory

    def lines(self) -> list[Line]:
        return [
            *(Line.of(name, spread, "events/s") for name, spread in self.events_per_second.items()),
            *(Line.of(name, spread, "ratio") for name, spread in self.ratios.items()),
            Line(f"peak memory, batch of {self.memory.events:,}", self.memory.peak_mib, "MiB"),
            Line("memory before it connects", self.memory.start_mib, "MiB"),
        ]


def run_consume(
    parameters: ConsumeParameters | None = None, *, dsn: str | None = None, progress: Progress = silent
) -> ConsumeResult:
    """Run the benchmark on a server of its own, or in a new database on the server of `dsn`."""
    chosen = parameters or ConsumeParameters()
    with target(dsn) as place, PgQ(place.dsn) as pgq, connect(place.dsn) as conn:
        ways = _Ways(place.dsn, pgq, conn, chosen, progress)
        taken = alternate(ways.group(), chosen.rounds, "read", progress)
        _fill(pgq, MEMORY_QUEUE, chosen.memory_events, chosen.seed, progress)
        progress("memory", 0, 1)
        memory = _measure_memory(place.dsn)
        progress("memory", 1, 1)
        ratios = {f"{name} / raw_fetch": Spread.of_ratio(rates, taken["raw_fetch"]) for name, rates in taken.items()}
        del ratios["raw_fetch / raw_fetch"]
        return ConsumeResult(
            place.record("consume", asdict(chosen)),
            promises=_promises(ratios["stream / raw_fetch"], memory, ways, chosen),
            events_per_second={name: Spread.of(rates) for name, rates in taken.items()},
            ratios=ratios,
            memory=memory,
        )


def _promises(share: Spread, memory: Memory, ways: _Ways, parameters: ConsumeParameters) -> tuple[Promise, ...]:
    return (
        Promise("streaming a batch / raw fetch", share.median, FETCH_SHARE, True),
        Promise("peak memory of a large batch, MiB", memory.peak_mib, PEAK_MIB, False),
        Promise("events read of those sent", ways.read, ways.sent, True),
        Promise("events read of the large batch", memory.events, parameters.memory_events, True),
    )


class _Ways:
    """The ways to be compared; each reads the whole batch and returns the rate."""

    def __init__(
        self,
        dsn: str,
        pgq: PgQ,
        conn: psycopg.Connection[Any],
        parameters: ConsumeParameters,
        progress: Progress,
    ) -> None:
        self.read = self.sent = 0
        self._dsn, self._pgq, self._conn, self._parameters = dsn, pgq, conn, parameters
        _fill(pgq, QUEUE, parameters.events, parameters.seed, progress)
        row = conn.execute("select pgq.current_event_table(%s)", [QUEUE]).fetchone()
        assert row is not None
        self._query = _COLUMNS.format(SQL(row[0]))
        self._start = pgq.consumer_info(QUEUE, CONSUMER).last_tick or 0
        _read_xid8(conn)

    def group(self) -> Mapping[str, Callable[[], float]]:
        return {
            "stream": self._stream,
            "raw_fetch": self._raw_fetch,
            "raw_server_side_cursor": self._raw_server_side_cursor,
        }

    def _stream(self) -> float:
        self._pgq.seek(QUEUE, CONSUMER, self._start)
        count = 0
        with self._pgq.batches(QUEUE, CONSUMER, wait=0) as batches:
            begin = perf_counter()
            for batch in batches:
                for _ in batch:
                    count += 1
            return self._rate(count, begin)

    def _raw_fetch(self) -> float:
        count = 0
        with self._conn.cursor(binary=True) as cursor:
            begin = perf_counter()
            for _ in cursor.execute(self._query).fetchall():
                count += 1
            return self._rate(count, begin)

    def _raw_server_side_cursor(self) -> float:
        count = 0
        with self._conn.transaction(), self._conn.cursor("raw", binary=True) as cursor:
            cursor.itersize = 2_000
            begin = perf_counter()
            for _ in cursor.execute(self._query, binary=True):
                count += 1
            return self._rate(count, begin)

    def _rate(self, count: int, begin: float) -> float:
        elapsed = perf_counter() - begin
        self.read += count
        self.sent += self._parameters.events
        return count / elapsed


def _read_xid8(conn: psycopg.Connection[Any]) -> None:
    """psycopg does not know xid8, which is eight bytes as int8 is: the limit shall not pay for a cast in the server."""
    adapters = conn.adapters
    loader = adapters.get_loader(adapters.types["int8"].oid, Format.BINARY)
    assert loader is not None
    adapters.register_loader(adapters.types["xid8"].oid, loader)


def _fill(pgq: PgQ, queue: str, count: int, seed: int, progress: Progress) -> None:
    """A queue with one batch of `count` events waiting for its consumer."""
    pgq.create_queue(queue)
    pgq.register_consumer(queue, CONSUMER)
    data = texts(payloads(min(count, 100_000), seed))
    for done in range(0, count, len(data)):
        progress(f"fill {queue}", done, count)
        pgq.send_many(queue, data[: count - done], type=EVENT_TYPE)
    progress(f"fill {queue}", count, count)
    pgq.force_tick(queue)


def _measure_memory(dsn: str) -> Memory:
    """Have a fresh interpreter stream the batch. The DSN goes through the environment, where `ps` does not show it."""
    command = [sys.executable, "-m", "pgq_py.bench.reader", MEMORY_QUEUE, CONSUMER]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, "PGQ_DSN": dsn})
    report = json.loads(done.stdout)
    return Memory(
        events=report["events"],
        peak_mib=round(report["peak_bytes"] / 2**20, 1),
        start_mib=round(report["start_bytes"] / 2**20, 1),
        events_per_second=round(report["events"] / report["seconds"]),
    )
