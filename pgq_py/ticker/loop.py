"""The ticker: every 50 ms it asks which queues need a tick and makes those, a transaction each.

Nothing rests on it: consumers tick for themselves when nobody else does, and any number of tickers may run side by side
(the database lets one tick at a time). It makes delivery quick and drives maintenance.

One queue's failure stops no other one's tick. A lost connection is made anew, at first at once, then every second.
"""

from __future__ import annotations

import logging
from time import monotonic
from typing import Any

import psycopg

from pgq_py import schema
from pgq_py.client import queries
from pgq_py.client._sync import calls
from pgq_py.client._sync.connections import connect, connect_until
from pgq_py.client.acompat import Stop
from pgq_py.errors import ConnectionFailed, PgqError, QueueNotFound, QueuePaused, translate
from pgq_py.settings import Settings, load_settings
from pgq_py.signals import stop_on_signals
from pgq_py.ticker.complaints import Complaints
from pgq_py.ticker.due import RETRY_AFTER, next_beat, worth_trying
from pgq_py.ticker.maintenance import Maintenance

__all__ = ["Ticker"]

logger = logging.getLogger("pgq_py.ticker")


class Ticker:
    """One ticker for one database: `run()` it in the main thread, or in any other one and `stop()` it from outside.

    `ticks` counts the ticks made.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or load_settings()
        self.ticks = 0
        self._stop = Stop()
        self._complaints = Complaints()
        self._failed_at: dict[str, float] = {}

    def run(self) -> None:
        """Tick and maintain until SIGTERM, SIGINT or `stop`.

        Raises what is wrong at the start (no server, no schema or an old one, no right to tick); afterwards it tries
        on, whatever happens.
        """
        conn: psycopg.Connection[Any] | None = self._first_connection()
        maintenance = Maintenance(self.settings)
        with stop_on_signals(self.stop):
            maintenance.start()
            logger.info("ticking every %g s", self.settings.tick_interval)
            try:
                while conn is not None:
                    self._session(conn)
                    conn = connect_until(self.settings, "ticker", self._stop)
            finally:
                maintenance.stop()
        logger.info("stopped after %d ticks", self.ticks)

    def run_once(self) -> int:
        """Make the ticks that are due and do one round of maintenance; returns the number of ticks."""
        with self._first_connection() as conn:
            self._beat(conn)
        maintenance = Maintenance(self.settings)
        try:
            maintenance.run_round()
        finally:
            maintenance.stop()
        return self.ticks

    def stop(self) -> None:
        """End `run` after the tick under way; may be called from anywhere."""
        self._stop.set()

    def _first_connection(self) -> psycopg.Connection[Any]:
        conn = connect(self.settings, "ticker")
        try:
            with translate():
                schema.check(conn)
            calls.values(conn, queries.QUEUES_DUE)
        except BaseException:
            conn.close()
            raise
        return conn

    def _session(self, conn: psycopg.Connection[Any]) -> None:
        """Tick for as long as the connection lasts, or until stopped."""
        try:
            with conn:
                calls.command(conn, queries.ASYNCHRONOUS_COMMIT)
                last = monotonic()
                while not self._stop.is_set():
                    self._beat(conn)
                    last = next_beat(last, monotonic(), self.settings.tick_interval)
                    self._stop.sleep(max(0.0, last - monotonic()))
        except (ConnectionFailed, psycopg.OperationalError) as exc:
            logger.warning("connection lost, connecting again: %s", exc)
            self._stop.sleep(self.settings.tick_interval)

    def _beat(self, conn: psycopg.Connection[Any]) -> None:
        """Tick every queue that is due."""
        try:
            due = calls.values(conn, queries.QUEUES_DUE)
            self._complaints.settled("queues_due")
        except (PgqError, psycopg.Error) as exc:
            if conn.closed:
                raise
            self._complaints.about("queues_due", exc)
            self._stop.sleep(RETRY_AFTER)
            return
        for queue in worth_trying(due, self._failed_at, monotonic()):
            self._tick(conn, queue)

    def _tick(self, conn: psycopg.Connection[Any], queue: str) -> None:
        try:
            self._try_twice(conn, queue)
        except (QueuePaused, QueueNotFound):
            return  # since it was found to be due
        except (PgqError, psycopg.Error) as exc:
            if conn.closed:
                raise
            self._failed_at[queue] = monotonic()
            self._complaints.about(f"queue {queue}", exc)
            return
        if self._failed_at.pop(queue, None) is not None:
            self._complaints.settled(f"queue {queue}")

    def _try_twice(self, conn: psycopg.Connection[Any], queue: str) -> None:
        """A queue that is being dropped fails in whatever way at first, and is not found at the second try."""
        try:
            tick = calls.value(conn, queries.TICK, [queue])
        except psycopg.Error:
            if conn.closed:
                raise
            tick = calls.value(conn, queries.TICK, [queue])
        self.ticks += tick is not None
