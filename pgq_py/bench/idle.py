"""What a log costs that has nothing to do: a consumer's poll, the ticker's beat. They are to write nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, LiteralString

import psycopg

from pgq_py.bench.results import Line, Spread
from pgq_py.bench.targets import connect

__all__ = ["Idle", "measure_idle"]

_ROUNDS: Final = 5
_CALLS: Final = 100


@dataclass(frozen=True, slots=True)
class Idle:
    """Milliseconds per call, and the bytes of WAL that a round of `calls` polls and ticks wrote.

    The fewest bytes of several rounds: the server itself writes a little now and then.
    """

    poll_ms: Spread
    tick_ms: Spread
    due_ms: Spread
    calls: int
    wal_bytes: int

    def lines(self) -> list[Line]:
        return [
            Line.of("idle poll of a consumer", self.poll_ms, "ms"),
            Line.of("idle ticker(queue)", self.tick_ms, "ms"),
            Line.of("idle queues_due()", self.due_ms, "ms"),
            Line("WAL of idle calls", self.wal_bytes, "bytes"),
        ]


def measure_idle(dsn: str, queue: str, consumer: str) -> Idle:
    """Poll and tick a queue whose consumer has finished everything."""
    ways: dict[str, tuple[LiteralString, Sequence[Any]]] = {
        "poll": ("select batch_id from pgq.next_batch_info(%s, %s)", [queue, consumer]),
        "tick": ("select pgq.ticker(%s)", [queue]),
        "due": ("select * from pgq.queues_due()", []),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    written = []
    with connect(dsn) as conn:
        _settle(conn, queue, consumer)
        for nth in range(_ROUNDS + 1):
            before = _wal_position(conn)
            spent = _round(conn, ways)
            written.append(_wal_position(conn) - before)
            for name, ms in spent.items():
                if nth > 0:
                    taken[name].append(ms)
    spreads = {name: Spread.of(values) for name, values in taken.items()}
    return Idle(spreads["poll"], spreads["tick"], spreads["due"], _CALLS, min(written))


def _settle(conn: psycopg.Connection[Any], queue: str, consumer: str) -> None:
    """Make the ticks that are due still, for they free slots that rotation has closed, and finish what they bring."""
    busy = True
    while busy:
        busy = _value(conn, "select pgq.ticker(%s)", [queue]) is not None
        batch = _value(conn, "select batch_id from pgq.next_batch_info(%s, %s)", [queue, consumer])
        if batch is not None:
            busy = True
            conn.execute("select pgq.finish_batch(%s)", [batch])


def _round(conn: psycopg.Connection[Any], ways: Mapping[str, tuple[LiteralString, Sequence[Any]]]) -> dict[str, float]:
    spent = {}
    for name, (query, parameters) in ways.items():
        begin = perf_counter()
        for _ in range(_CALLS):
            conn.execute(query, parameters or None).fetchall()
        spent[name] = (perf_counter() - begin) / _CALLS * 1000
    return spent


def _wal_position(conn: psycopg.Connection[Any]) -> int:
    return int(_value(conn, "select (pg_current_wal_insert_lsn() - '0/0')::bigint", []))


def _value(conn: psycopg.Connection[Any], query: LiteralString, parameters: Sequence[Any]) -> Any:
    row = conn.execute(query, parameters or None).fetchone()
    return row[0] if row else None
