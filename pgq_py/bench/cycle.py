"""Does it stay as fast as it was? One event at a time through the whole log, thousands of times.

A cycle inserts one event, ticks, and lets every consumer take, read and finish the batch; each step is a transaction of
its own, each role a session of its own, as in production, and so is maintenance, every second. A queue that marks or
deletes rows slows down from cycle to cycle while somebody holds an old snapshot (`pin_xmin`), for vacuum can remove
nothing; the ratio of the last sixth of the cycles to the first shows it.

The slots are made small and short-lived enough to rotate several times in such a short run.

A machine that slows down meanwhile looks the same. So every cycle has a control: an insert into a plain table beside
the log, whose cost cannot grow. `machine_drift` is the same ratio for the controls; the promise is kept if the cycles
did not slow down, or did so no more than the controls. And the server counts the pages that it looks at in schema pgq,
which no noise reaches: their number per cycle is held to the same bound.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any, Final, LiteralString, Self

import psycopg

from pgq_py.app import PgQ
from pgq_py.bench.idle import Idle, measure_idle
from pgq_py.bench.results import Line, Promise, Result
from pgq_py.bench.rounds import Progress, silent
from pgq_py.bench.targets import Target, connect, target
from pgq_py.bench.traces import Traces, buffers, traces, vacuum
from pgq_py.settings import load_settings
from pgq_py.ticker.maintenance import Maintenance

__all__ = ["CycleParameters", "CycleResult", "Sixth", "run_cycle"]

QUEUE: Final = "bench"
STEPS: Final = ("insert", "tick", "take", "read", "finish")
GROWTH: Final = 1.2
"""The last sixth may take so many times as long as the first: the noise of a quiet machine, not a slope."""


@dataclass(frozen=True, slots=True)
class CycleParameters:
    """`cycles` are measured after `warm_up` others. Slots switch after `rotation_seconds`, those of the global rings
    when they have `slot_kib` KiB."""

    cycles: int = 6000
    consumers: int = 3
    pin_xmin: bool = False
    rotation_seconds: float = 5.0
    slot_kib: int = 512
    warm_up: int = 200
    maintenance_seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class Sixth:
    """A sixth of the cycles: milliseconds per cycle, of the control, of each step (all consumers together).

    `pages` of schema pgq are looked at per cycle; None before PostgreSQL 15.
    """

    cycles: int
    mean_ms: float
    median_ms: float
    p95_ms: float
    control_ms: float
    steps_ms: dict[str, float]
    pages: float | None


@dataclass(frozen=True, slots=True)
class CycleResult(Result):
    """`rotations` counts the switches of each kind of ring, `received` all events over all consumers."""

    sixths: tuple[Sixth, ...]
    last_over_first: float
    machine_drift: float
    pages_last_over_first: float | None
    received: int
    dead_tuples: int
    dead_tuples_by_table: dict[str, int]
    dead_tuples_in_pg_class: int
    rotations: int
    rotations_by_ring: dict[str, int]
    idle: Idle

    def lines(self) -> list[Line]:
        sixths = [Line(f"cycle, sixth {nr}", sixth.mean_ms, "ms") for nr, sixth in enumerate(self.sixths, 1)]
        last = self.sixths[-1].steps_ms
        return [
            *sixths,
            Line("last sixth / first", self.last_over_first, "ratio"),
            Line("last / first of the controls", self.machine_drift, "ratio"),
            *(Line("last / first of pages", pages, "ratio") for pages in [self.pages_last_over_first] if pages),
            *(Line(f"{step}, last sixth", last[step], "ms") for step in STEPS),
            Line("dead tuples in schema pgq", self.dead_tuples, "tuples"),
            Line("rotations", self.rotations, "switches"),
            *self.idle.lines(),
        ]


def run_cycle(
    parameters: CycleParameters | None = None, *, dsn: str | None = None, progress: Progress = silent
) -> CycleResult:
    """Run the benchmark on a server of its own, or in a new database on the server of `dsn`."""
    chosen = parameters or CycleParameters()
    if chosen.cycles < 6 or chosen.consumers < 1:
        raise ValueError("six cycles and one consumer are the least")
    with target(dsn) as place:
        _prepare(place, chosen)
        with _pinned(place.dsn, chosen.pin_xmin):
            before = traces(place.dsn, 0)
            with _maintained(place.dsn, chosen), _Cycle(place.dsn, chosen.consumers) as cycle:
                cycle.repeat(chosen.warm_up, lambda done: progress("warm-up", done, chosen.warm_up))
                sixths = tuple(_sixths(cycle, chosen.cycles, progress))
            after = traces(place.dsn, (chosen.warm_up + chosen.cycles) * (2 + 2 * chosen.consumers))
            idle = measure_idle(place.dsn, QUEUE, "consumer_0")
        return _result(place, chosen, _Findings(sixths, cycle.received, before, after, idle))


def _prepare(place: Target, parameters: CycleParameters) -> None:
    """The queue, its consumers and quickly rotating slots. Configuring updates three rows; their traces go."""
    with PgQ(place.dsn) as pgq, connect(place.dsn) as conn:
        pgq.create_queue(QUEUE)
        pgq.set_queue_config(QUEUE, "rotation_period", f"{parameters.rotation_seconds} seconds")
        for nr in range(parameters.consumers):
            pgq.register_consumer(QUEUE, f"consumer_{nr}")
        conn.execute("update pgq.ring set ring_min_bytes = %s where ring_queue is null", [parameters.slot_kib * 1024])
        conn.execute("create table public.control (id bigserial primary key, at timestamptz default clock_timestamp())")
    vacuum(place.dsn, 3)


@contextmanager
def _pinned(dsn: str, pin: bool) -> Iterator[None]:
    """Another session with a snapshot from before everything, which vacuum has to respect."""
    if not pin:
        yield
        return
    with connect(dsn) as conn:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with conn.transaction():
            conn.execute("select count(*) from public.control")
            yield


@contextmanager
def _maintained(dsn: str, parameters: CycleParameters) -> Iterator[None]:
    """The maintenance that `pgq ticker` does, as it does it."""
    maintenance = Maintenance(load_settings(dsn=dsn, maintenance_interval=parameters.maintenance_seconds))
    maintenance.start()
    try:
        yield
    finally:
        maintenance.stop()


class _Cycle:
    """The sessions, and what they do in one cycle. `spent` and `control` are seconds since the last `forget`."""

    def __init__(self, dsn: str, consumers: int) -> None:
        self.forget()
        self.received = 0
        self._names = [f"consumer_{nr}" for nr in range(consumers)]
        self._open = ExitStack()
        self._producer, self._ticker = self._connect(dsn), self._connect(dsn)
        self._consumers = [self._connect(dsn) for _ in self._names]

    def _connect(self, dsn: str) -> psycopg.Connection[Any]:
        return self._open.enter_context(connect(dsn))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._open.close()

    def forget(self) -> None:
        self.spent = dict.fromkeys(STEPS, 0.0)
        self.control = 0.0

    @property
    def sessions(self) -> list[psycopg.Connection[Any]]:
        return [self._producer, self._ticker, *self._consumers]

    def repeat(self, times: int, done: Callable[[int], None]) -> list[float]:
        """Seconds of each cycle, without its control. `done` is told now and then how many there were."""
        taken = []
        for nth in range(times):
            begin = perf_counter()
            self._once()
            end = perf_counter()
            self._producer.execute("insert into public.control default values")
            self.control += perf_counter() - end
            taken.append(end - begin)
            if nth % 50 == 49:
                done(nth + 1)
        return taken

    def _once(self) -> None:
        self._call("insert", self._producer, "select pgq.insert_event(%s, 'cycle', 'an event')", [QUEUE])
        self._call("tick", self._ticker, "select pgq.ticker(%s)", [QUEUE])
        for name, conn in zip(self._names, self._consumers, strict=True):
            ((batch,),) = self._call("take", conn, "select batch_id from pgq.next_batch_info(%s, %s)", [QUEUE, name])
            self.received += len(self._call("read", conn, "select * from pgq.get_batch_events(%s)", [batch]))
            self._call("finish", conn, "select pgq.finish_batch(%s)", [batch])

    def _call(
        self, step: str, conn: psycopg.Connection[Any], query: LiteralString, parameters: list[Any]
    ) -> list[tuple[Any, ...]]:
        begin = perf_counter()
        rows = conn.execute(query, parameters).fetchall()
        self.spent[step] += perf_counter() - begin
        return rows


def _sixths(cycle: _Cycle, cycles: int, progress: Progress) -> Iterator[Sixth]:
    for nr in range(6):
        first, last = cycles * nr // 6, cycles * (nr + 1) // 6
        cycle.forget()
        before = buffers(cycle.sessions)
        taken = sorted(cycle.repeat(last - first, _report(progress, first, cycles)))
        after = buffers(cycle.sessions)
        yield Sixth(
            cycles=len(taken),
            mean_ms=_ms(sum(taken), len(taken)),
            median_ms=_ms(statistics.median(taken), 1),
            p95_ms=_ms(taken[len(taken) * 95 // 100], 1),
            control_ms=_ms(cycle.control, len(taken)),
            steps_ms={step: _ms(cycle.spent[step], len(taken)) for step in STEPS},
            pages=None if before is None or after is None else round((after - before) / len(taken), 1),
        )
    progress("cycles", cycles, cycles)


def _report(progress: Progress, first: int, total: int) -> Callable[[int], None]:
    return lambda done: progress("cycles", first + done, total)


@dataclass(frozen=True)
class _Findings:
    sixths: tuple[Sixth, ...]
    received: int
    before: Traces
    after: Traces
    idle: Idle

    @property
    def growth(self) -> float:
        return round(self.sixths[-1].mean_ms / self.sixths[0].mean_ms, 3)

    @property
    def drift(self) -> float:
        return round(self.sixths[-1].control_ms / self.sixths[0].control_ms, 3)

    @property
    def pages_growth(self) -> float | None:
        first, last = self.sixths[0].pages, self.sixths[-1].pages
        return round(last / first, 3) if first and last else None

    @property
    def rotations(self) -> dict[str, int]:
        return {ring: self.after.generations[ring] - first for ring, first in self.before.generations.items()}


def _result(place: Target, parameters: CycleParameters, found: _Findings) -> CycleResult:
    dead = found.after.dead
    return CycleResult(
        place.record("cycle", asdict(parameters)),
        promises=tuple(_promises(place, parameters, found)),
        sixths=found.sixths,
        last_over_first=found.growth,
        machine_drift=found.drift,
        pages_last_over_first=found.pages_growth,
        received=found.received,
        dead_tuples=sum(dead.values()),
        dead_tuples_by_table={name: count for name, count in dead.items() if count},
        dead_tuples_in_pg_class=found.after.dead_in_pg_class,
        rotations=sum(found.rotations.values()),
        rotations_by_ring=found.rotations,
        idle=found.idle,
    )


def _promises(place: Target, parameters: CycleParameters, found: _Findings) -> Iterator[Promise]:
    growth = round(min(found.growth, found.growth / found.drift), 3)
    note = f"measured {found.growth:g}, of the controls beside it {found.drift:g}"
    yield Promise("last sixth / first", growth, GROWTH, at_least=False, note=note)
    if found.pages_growth is not None:
        yield Promise("pages looked at, last sixth / first", found.pages_growth, GROWTH, at_least=False)
    yield Promise("dead tuples in schema pgq", sum(found.after.dead.values()), 0, at_least=False)
    sent = (parameters.cycles + parameters.warm_up) * parameters.consumers
    yield Promise("events received by all consumers", found.received, sent, at_least=True)
    if place.private:  # elsewhere others write WAL too
        yield Promise("bytes of WAL of idle calls", found.idle.wal_bytes, 0, at_least=False)


def _ms(seconds: float, count: int) -> float:
    return round(seconds / count * 1000, 4)
