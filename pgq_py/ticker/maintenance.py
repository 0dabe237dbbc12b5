"""Rotation and whatever else the database asks for, beside the ticks: a slow step must not delay them.

APScheduler runs one round after the other on a connection of its own, never two at once, and never makes up for missed
ones. Each operation is its own transaction, for a rotation step has to be committed before the next one can be judged.
"""

from __future__ import annotations

import logging
from collections import deque
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import psycopg
from apscheduler.schedulers.background import BackgroundScheduler
from psycopg.sql import Identifier

from pgq_py.client import queries
from pgq_py.client._sync import calls
from pgq_py.client._sync.connections import connect
from pgq_py.client.acompat import Stop
from pgq_py.errors import ConnectionFailed, PgqError
from pgq_py.settings import Settings
from pgq_py.ticker.complaints import Complaints

__all__ = ["Maintenance"]

logger = logging.getLogger("pgq_py.ticker")

_rounds = logging.getLogger("pgq_py.ticker.rounds")
_rounds.setLevel(logging.ERROR)  # it warns of each round that is left out while one runs, which was asked for

LONG, REST, ROUNDS, LONGEST = 0.02, 200, 3, 60.0
"""With very many queues it takes a while to find out that there is nothing to do. From so many seconds on, in
each of so many rounds, the next one comes so many times later: idle queues may cost half a percent of a processor.
It may be a server that stalls, too, which has to rotate when it can again: no rest is longer than so many seconds."""

MOST_REPEATS = 20
"""How often in a row an operation may ask to be called again. A ring needs three steps for a whole turn."""


class Maintenance:
    """`start()` it in the background, or `run_round()` once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stop = Stop()
        self._complaints = Complaints()
        self._conn: psycopg.Connection[Any] | None = None
        self._rests_until = 0.0
        self._took: deque[float] = deque(maxlen=ROUNDS)
        self._scheduler = BackgroundScheduler(timezone=UTC, logger=_rounds)

    def start(self) -> None:
        """Run a round now and then every `maintenance_interval`."""
        self._scheduler.add_job(
            self.run_round,
            "interval",
            seconds=self._settings.maintenance_interval,
            next_run_time=datetime.now(UTC),
            coalesce=True,
            max_instances=1,
            misfire_grace_time=None,
        )
        self._scheduler.start()

    def stop(self) -> None:
        """Return when the operation under way is finished."""
        self._stop.set()
        if self._scheduler.running:
            self._scheduler.shutdown(wait=True)
        if self._conn is not None:
            self._conn.close()

    def run_round(self) -> int:
        """Do what the database lists, and return how many calls that took. Failures are logged, not raised."""
        if monotonic() < self._rests_until:
            return 0
        try:
            conn = self._connection()
            started = monotonic()
            operations = self._operations(conn)
            spent = monotonic() - started
            self._took.append(spent)
            if not operations and len(self._took) == ROUNDS and min(self._took) > LONG:
                self._rests_until = started + min(REST * min(self._took), LONGEST)
            self._complaints.settled("maintenance")
            return sum(self._operate(conn, name, argument) for name, argument in operations)
        except (PgqError, psycopg.Error) as exc:
            self._complaints.about("maintenance", exc)
            return 0

    def _connection(self) -> psycopg.Connection[Any]:
        if self._conn is None or self._conn.closed:
            self._conn = connect(self._settings, "maintenance")
        return self._conn

    def _operations(self, conn: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
        """The list, asked for twice where that fails: it may be over a queue that is just being dropped."""
        try:
            return calls.rows(conn, queries.MAINT_OPERATIONS)
        except psycopg.Error:
            if conn.closed:
                raise
            return calls.rows(conn, queries.MAINT_OPERATIONS)

    def _operate(self, conn: psycopg.Connection[Any], name: str, argument: str | None) -> int:
        """Call one operation until it is satisfied, and return how often; its failure stops no other one."""
        subject = f"{name}({argument or ''})"
        done = 0
        try:
            while not self._stop.is_set() and done < MOST_REPEATS:
                done += 1
                if not self._call(conn, name, argument):
                    break
            self._complaints.settled(subject)
        except ConnectionFailed:
            raise
        except (PgqError, psycopg.Error) as exc:
            if conn.closed:
                raise
            self._complaints.about(subject, exc)
        return done

    def _call(self, conn: psycopg.Connection[Any], name: str, argument: str | None) -> bool:
        """One call; True when it asks for another."""
        if name == "vacuum" and argument:
            calls.command(conn, queries.MAINT_VACUUM.format(Identifier(*argument.split("."))))
            return False
        function = Identifier(*name.split("."))
        if argument is None:
            return bool(calls.value(conn, queries.MAINT_CALL_BARE.format(function)) == 1)
        return bool(calls.value(conn, queries.MAINT_CALL.format(function), [argument]) == 1)
