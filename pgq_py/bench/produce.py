"""How fast do events get in? In bulk, one by one, inside the server; each beside the fastest that PostgreSQL can do.

- Bulk: `send_many` checks, renders and streams str, or dicts that have to become JSON first; the limit is a COPY of
  rows that were rendered before, in chunks of the same size, into the same table.
- One by one from Python: `send` with a commit each, many in a transaction, and in a pipeline; the limit is an INSERT
  into a plain table, in a transaction and in a pipeline of psycopg's.
- Inside the server: PL/pgSQL loops over `insert_event` and over the queue's own function, which is what the client
  calls; the limit is a loop over INSERT into that plain table.

The plain table has the log's columns, defaults and index, but no guard. No consumer and no ticker runs. Before each run
the tables are emptied, the queue's by rotation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any, Final, Self

import psycopg
from psycopg.sql import SQL, Composed, Identifier, Literal

from pgq_py.app import PgQ
from pgq_py.bench.payloads import EVENT_TYPE, copy_chunks, payloads, texts
from pgq_py.bench.results import Line, Promise, Result, Spread
from pgq_py.bench.rounds import Progress, alternate, silent
from pgq_py.bench.targets import connect, target

__all__ = ["ProduceParameters", "ProduceResult", "run_produce"]

QUEUE: Final = "bench"
COPY_SHARE: Final = 0.8
"""What `send_many` must reach of a raw COPY."""

_INSERT: Final = SQL("insert into public.plain (ev_type, ev_data) values (%s, %s)")
_LOOP: Final = SQL("do $$ begin for nr in 1 .. {} loop {}; end loop; end $$")


@dataclass(frozen=True, slots=True)
class ProduceParameters:
    """How many events a run sends: in bulk, inside the server, from Python in one transaction, with a commit each."""

    bulk: int = 100_000
    loop: int = 20_000
    single: int = 4_000
    commits: int = 500
    chunk: int = 10_000
    rounds: int = 9
    seed: int = 1

    @classmethod
    def of(cls, bulk: int, rounds: int) -> Self:
        """The usual proportions for another size."""
        usual = cls()
        loop, single, commits = (
            max(1, usual_count * bulk // usual.bulk) for usual_count in (usual.loop, usual.single, usual.commits)
        )
        return cls(bulk, loop, single, commits, rounds=rounds)


@dataclass(frozen=True, slots=True)
class ProduceResult(Result):
    """Events per second of each way, and ratios of the pairs that were measured in turns."""

    events_per_second: dict[str, Spread]
    ratios: dict[str, Spread]

    def lines(self) -> list[Line]:
        return [
            *(Line.of(name, spread, "events/s") for name, spread in self.events_per_second.items()),
            *(Line.of(name, spread, "ratio") for name, spread in self.ratios.items()),
        ]


_RATIOS: Final = (
    ("send_many_text", "raw_copy"),
    ("send_many_json", "raw_copy"),
    ("send_in_transaction", "raw_insert_in_transaction"),
    ("send_pipelined", "raw_insert_pipelined"),
    ("loop_insert_event", "loop_raw_insert"),
    ("loop_produce", "loop_raw_insert"),
)


def run_produce(
    parameters: ProduceParameters | None = None, *, dsn: str | None = None, progress: Progress = silent
) -> ProduceResult:
    """Run the benchmark on a server of its own, or in a new database on the server of `dsn`."""
    chosen = parameters or ProduceParameters()
    with target(dsn) as place, PgQ(place.dsn) as pgq, connect(place.dsn) as conn:
        ways = _Ways(pgq, conn, chosen)
        taken: dict[str, list[float]] = {}
        for stage, group in ways.groups().items():
            taken |= alternate(group, chosen.rounds, stage, progress)
        ratios = {f"{a} / {b}": Spread.of_ratio(taken[a], taken[b]) for a, b in _RATIOS}
        return ProduceResult(
            place.record("produce", asdict(chosen)),
            promises=(
                Promise("send_many / raw COPY", ratios["send_many_text / raw_copy"].median, COPY_SHARE, True),
                Promise("events found of those sent", ways.found, ways.sent, True),
            ),
            events_per_second={name: Spread.of(rates) for name, rates in taken.items()},
            ratios=ratios,
        )


class _Ways:
    """The ways to be compared; each empties its table, sends, and returns the rate. `found` is counted afterwards."""

    def __init__(self, pgq: PgQ, conn: psycopg.Connection[Any], parameters: ProduceParameters) -> None:
        self.sent = self.found = 0
        self._pgq, self._conn, self._parameters = pgq, conn, parameters
        self._objects = payloads(max(parameters.bulk, parameters.single, parameters.commits), parameters.seed)
        self._texts = texts(self._objects)
        self._chunks = copy_chunks(self._texts[: parameters.bulk], parameters.chunk)
        pgq.create_queue(QUEUE)
        self._events = pgq_parent(self._table())
        conn.execute(
            SQL("create table public.plain (like {} including all) with (autovacuum_enabled = off)").format(
                self._events
            )
        )

    def groups(self) -> dict[str, Mapping[str, Callable[[], float]]]:
        """Ways that are measured in turns with each other, by stage."""
        return {
            "bulk": {
                "send_many_text": lambda: self._bulk(self._texts),
                "raw_copy": self._raw_copy,
                "send_many_json": lambda: self._bulk(self._objects),
            },
            "one by one": {
                "send_autocommit": self._send_autocommit,
                "send_in_transaction": self._send_in_transaction,
                "raw_insert_in_transaction": self._raw_insert_in_transaction,
                "send_pipelined": self._send_pipelined,
                "raw_insert_pipelined": self._raw_insert_pipelined,
            },
            "in the server": {
                "loop_insert_event": self._loop_insert_event,
                "loop_produce": self._loop_produce,
                "loop_raw_insert": self._loop_raw_insert,
            },
        }

    def _bulk(self, events: list[Any]) -> float:
        bulk, chunk = events[: self._parameters.bulk], self._parameters.chunk
        with self._measured(self._events, len(bulk)) as clock:
            self._pgq.send_many(QUEUE, bulk, type=EVENT_TYPE, chunk_size=chunk)
        return clock.rate

    def _raw_copy(self) -> float:
        with self._measured(self._events, self._parameters.bulk) as clock:
            statement = SQL("copy {} (ev_type, ev_data) from stdin").format(Identifier(*self._table().split(".")))
            for chunk in self._chunks:
                with self._conn.cursor().copy(statement) as copy:
                    copy.write(chunk)
        return clock.rate

    def _send_autocommit(self) -> float:
        events = self._texts[: self._parameters.commits]
        with self._measured(self._events, len(events)) as clock:
            for event in events:
                self._pgq.send(QUEUE, event, type=EVENT_TYPE)
        return clock.rate

    def _send_in_transaction(self) -> float:
        events = self._texts[: self._parameters.single]
        with self._measured(self._events, len(events)) as clock, self._pgq.transaction() as tx:
            for event in events:
                self._pgq.send(QUEUE, event, type=EVENT_TYPE, conn=tx)
        return clock.rate

    def _send_pipelined(self) -> float:
        events = self._texts[: self._parameters.single]
        with self._measured(self._events, len(events)) as clock, self._pgq.pipeline() as pipeline:
            for event in events:
                pipeline.send(QUEUE, event, type=EVENT_TYPE)
        return clock.rate

    def _raw_insert_in_transaction(self) -> float:
        events = self._texts[: self._parameters.single]
        with self._measured(_PLAIN, len(events)) as clock, self._conn.transaction(), self._conn.cursor() as cursor:
            for event in events:
                cursor.execute(_INSERT, (EVENT_TYPE, event))
        return clock.rate

    def _raw_insert_pipelined(self) -> float:
        events = self._texts[: self._parameters.single]
        with self._measured(_PLAIN, len(events)) as clock, self._conn.transaction(), self._conn.pipeline():
            cursor = self._conn.cursor()
            for event in events:
                cursor.execute(_INSERT, (EVENT_TYPE, event))
        return clock.rate

    def _loop_insert_event(self) -> float:
        call = SQL("perform pgq.insert_event({}, {}, {})")
        return self._loop(self._events, call.format(Literal(QUEUE), Literal(EVENT_TYPE), Literal(self._texts[0])))

    def _loop_produce(self) -> float:
        row = self._conn.execute("select pgq.producer_function(%s)", [QUEUE]).fetchone()
        assert row is not None
        call = SQL("perform pgq.{}({}, {}, null, null, null, null)")
        function = Identifier(row[0])
        return self._loop(self._events, call.format(function, Literal(EVENT_TYPE), Literal(self._texts[0])))

    def _loop_raw_insert(self) -> float:
        call = SQL("insert into public.plain (ev_type, ev_data) values ({}, {})")
        return self._loop(_PLAIN, call.format(Literal(EVENT_TYPE), Literal(self._texts[0])))

    def _loop(self, table: Identifier, call: Composed) -> float:
        statement = _LOOP.format(Literal(self._parameters.loop), call)
        with self._measured(table, self._parameters.loop) as clock:
            self._conn.execute(statement)
        return clock.rate

    @contextmanager
    def _measured(self, table: Identifier, count: int) -> Iterator[_Clock]:
        """Empty the tables, time the block, and count what it left in the table."""
        self._conn.execute("truncate public.plain")
        _empty_slots(self._pgq)
        clock = _Clock(count)
        yield clock
        clock.stop()
        row = self._conn.execute(SQL("select count(*) from {}").format(table)).fetchone()
        self.sent += count
        self.found += int(row[0]) if row else 0

    def _table(self) -> str:
        row = self._conn.execute("select pgq.current_event_table(%s)", [QUEUE]).fetchone()
        assert row is not None
        return str(row[0])


class _Clock:
    """Started when made; `rate` is events per second until `stop`."""

    def __init__(self, count: int) -> None:
        self._count, self._begin, self._end = count, perf_counter(), 0.0

    def stop(self) -> None:
        self._end = perf_counter()

    @property
    def rate(self) -> float:
        return self._count / (self._end - self._begin)


_PLAIN: Final = Identifier("public", "plain")


def pgq_parent(slot: str) -> Identifier:
    """The parent of a slot: 'pgq.event_7_0' is one of pgq.event_7."""
    return Identifier(*slot.rpartition("_")[0].split("."))


def _empty_slots(pgq: PgQ) -> None:
    """Rotate until every slot is empty. A queue without consumers gives up its events with the next tick."""
    for _ in range(12):
        pgq.force_tick(QUEUE)
        if pgq.rotate_queue(QUEUE) == "idle":
            return
    raise RuntimeError("the queue's slots do not become empty: somebody holds one of them")
