"""The demo from start to proof. At the same time there are

    pgbench         from several clients: accounts, tellers, branches, history, event and job, in one transaction
    the ticker      ticks and rotates, as `pgq ticker` does
    mirror          a consumer, exactly once: account balances into a table of its own
    counter         another one, exactly once: how many
    workers         a pool of them: each job writes a receipt, exactly once
    an idle session which pins the xmin horizon from before the first event until after the last measurement

Ticker, consumers and workers are threads of this process, so that nothing is left behind however it ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any

import psycopg
from psycopg.sql import Identifier

from pgq_py import schema
from pgq_py.app import PgQ
from pgq_py.demo import proof, statements
from pgq_py.demo.horizon import PinnedHorizon
from pgq_py.demo.latency import Latency
from pgq_py.demo.place import Place, place
from pgq_py.demo.result import Options, Result, Sample
from pgq_py.demo.subscribers import COUNTER, MIRROR, Subscribers
from pgq_py.demo.traffic import Traffic, prepare_accounts
from pgq_py.demo.workers import Workers
from pgq_py.settings import Settings, load_settings
from pgq_py.ticker import Ticker
from pgq_py.types import RingInfo, TickId

__all__ = ["run_demo"]

Tell = Callable[[Sample], None]

_MAINTENANCE_INTERVAL = 0.2
_GIVE_UP = 60.0
_LOOK = 0.02
_TELL = 0.5


def run_demo(options: Options, tell: Tell) -> Result:
    """Run the demo and judge it. `tell` is called with a Sample now and then, from this thread.

    Raises PgqError when it could not be run; a promise that does not hold is in the result.
    """
    tell(Sample("starting PostgreSQL"))
    with place(options.dsn) as here:
        tell(Sample("filling pgbench's tables"))
        _prepare(here, options)
        _settle(here)
        with here.connect("observer") as conn, PinnedHorizon(here) as horizon, PgQ(settings=_settings(here)) as pgq:
            stage = _Stage(pgq, conn, horizon, options, tell)
            stage.play(here)
            return stage.judge()


def _prepare(here: Place, options: Options) -> None:
    """The schema, pgbench's tables, the consumers' tables, and a queue that rotates so often that it can be seen."""
    prepare_accounts(here, options.scale)
    with here.connect("set-up") as conn, PgQ(settings=_settings(here)) as pgq:
        schema.install(conn)
        conn.execute(statements.CREATE_TABLES)
        pgq.create_queue(statements.QUEUE, conn=conn)
        pgq.create_job_queue(statements.JOBS, conn=conn)
        for queue in (statements.QUEUE, statements.JOBS):
            pgq.set_queue_config(queue, "rotation_period", f"{options.rotation_period} seconds", conn=conn)


def _settle(here: Place) -> None:
    """Remove the one dead row that the set-up leaves, once the statistics have counted it, and wait until they know."""
    with here.connect("set-up") as conn:
        _wait(lambda: conn.execute(statements.SETTING_COUNTED).fetchone() == (True,), 5.0)
        conn.execute(statements.VACUUM_SETTINGS)
        _wait(lambda: proof.dead_tuples(conn)[0] == 0, 2.0)


def _wait(done: Callable[[], bool], at_most: float, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Return when it is done, or when so many seconds have passed."""
    deadline = monotonic() + at_most
    while not done() and monotonic() < deadline:
        meanwhile()
        sleep(_LOOK)


def _settings(here: Place) -> Settings:
    return load_settings(dsn=here.dsn, application_name="pgq demo", maintenance_interval=_MAINTENANCE_INTERVAL)


@contextmanager
def _ticking(settings: Settings) -> Iterator[None]:
    """The real ticker, in a thread."""
    ticker = Ticker(settings)
    thread = threading.Thread(target=ticker.run, name="pgq-ticker", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ticker.stop()
        thread.join()


class _Stage:
    """What happens between the curtains, and what is seen of it. All calls are made by one thread."""

    def __init__(
        self, pgq: PgQ, conn: psycopg.Connection[Any], horizon: PinnedHorizon, options: Options, tell: Tell
    ) -> None:
        self._pgq, self._conn, self._horizon = pgq, conn, horizon
        self._options, self._tell = options, tell
        self._latency = Latency()
        self._subscribers = Subscribers(pgq, self._latency)
        self._workers = Workers(pgq.settings)
        self._generation = self._ring().generation
        self._pinned = horizon.age(conn) is not None
        self._dead_before = proof.dead_tuples(conn)[0]
        self._started = self._told = monotonic()
        self._seconds = 0.0
        self._transactions = 0
        self._shown = 0

    def play(self, here: Place) -> None:
        """Traffic to its end; then until everything is delivered and the log is empty again."""
        options = self._options
        with _ticking(self._pgq.settings), self._pgq.runner(), self._workers:
            with Traffic(here, clients=options.clients, seconds=options.seconds, scale=options.scale) as traffic:
                self._started = monotonic()
                self._watch("traffic", lambda: not traffic.running, options.seconds + _GIVE_UP)
                self._seconds = monotonic() - self._started
                self._transactions = traffic.transactions()
            last = self._pgq.force_tick(statements.QUEUE, conn=self._conn)
            self._watch("delivering the rest", lambda: self._delivered(last) and self._is_worked(), _GIVE_UP)
            self._watch("emptying the log", lambda: self._left() == 0, _GIVE_UP)

    def judge(self) -> Result:
        """Ask the database for the outcome; everything has ended but the session that pins the horizon."""
        self._tell(Sample("proving"))
        facts = proof.gather(self._conn, self._dead_before)
        age = self._horizon.age(self._conn)
        rotations = self._ring().generation - self._generation
        events = facts.applied[MIRROR]
        return Result(
            postgresql=self._conn.info.parameter_status("server_version") or "",
            seconds=round(self._seconds, 2),
            clients=self._options.clients,
            transactions=self._transactions,
            events=events,
            events_per_second=round(events / self._seconds, 1),
            latency_ms=self._latency.summary(),
            rotations=rotations,
            dead_tuples=facts.dead_tuples,
            dead_tuples_elsewhere=facts.dead_tuples_elsewhere,
            mirror_equal=facts.differences == 0,
            consumers=facts.applied,
            horizon_age=age or 0,
            jobs=facts.jobs,
            promises=self._promises(facts, rotations, age),
        )

    def _promises(self, facts: proof.Facts, rotations: int, horizon_age: int | None) -> tuple[proof.Promise, ...]:
        return proof.promises(
            facts,
            transactions=self._transactions,
            rotations=rotations,
            left=self._left(),
            horizon_age=horizon_age if self._pinned else None,
        )

    def _watch(self, stage: str, done: Callable[[], bool], at_most: float) -> None:
        """Show how it goes until it is done. What is still not done after `at_most` seconds, the proof will tell."""

        def tell() -> None:
            if monotonic() - self._told >= _TELL:
                self._tell(self._sample(stage))

        _wait(done, at_most, tell)
        self._tell(self._sample(stage))

    def _sample(self, stage: str) -> Sample:
        ring = self._ring()
        seen, now = self._subscribers.seen, monotonic()
        rate = (seen[MIRROR] - self._shown) / max(now - self._told, 1e-3)
        self._shown, self._told = seen[MIRROR], now
        dead, _ = proof.dead_tuples(self._conn)
        return Sample(
            stage,
            elapsed=min(now - self._started, self._options.seconds),
            seconds=self._options.seconds,
            mirrored=seen[MIRROR],
            counted=seen[COUNTER],
            events_per_second=rate,
            p50_ms=self._latency.milliseconds(50),
            p99_ms=self._latency.milliseconds(99),
            rotations=ring.generation - self._generation,
            log_bytes=ring.bytes,
            dead_tuples=dead - self._dead_before,
            horizon_age=self._horizon.age(self._conn) or 0,
            worked=self._workers.done,
        )

    def _ring(self) -> RingInfo:
        """The ring of the transfers' events; the queue may have others beside."""
        return next(ring for ring in self._event_rings() if ring.queue_name == statements.QUEUE)

    def _event_rings(self) -> list[RingInfo]:
        return [ring for ring in self._pgq.rings(conn=self._conn) if ring.ring.startswith("event_")]

    def _is_worked(self) -> bool:
        (stats,) = self._pgq.job_stats(statements.JOBS, conn=self._conn)
        return not (stats.pending or stats.running or stats.scheduled or stats.retrying)

    def _delivered(self, last: TickId) -> bool:
        consumers = self._pgq.consumers(statements.QUEUE, conn=self._conn)
        return all((consumer.last_tick or 0) >= last for consumer in consumers)

    def _left(self) -> int:
        """Events and jobs that still take space."""
        queries = [statements.COUNT_LEFT.format(Identifier(ring.ring)) for ring in self._event_rings()]
        rows = [self._conn.execute(query).fetchone() for query in queries]
        return sum(int(row[0]) for row in rows if row)
