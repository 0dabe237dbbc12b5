"""The ticker of one database: makes delivery quick, releases what is delayed, and drives maintenance.

Nothing rests on it: consumers tick for themselves when nobody else does. Any number may run side by side: one leads,
which is the one that holds an advisory lock, and the others stand by and take over within a second. Two leaders, should
it ever come to that, would do no harm: the database lets one tick at a time.

A lost connection is made anew, at first at once, then every second.
"""

from __future__ import annotations

import logging
from typing import Any

import psycopg

from pgq_py import schema
from pgq_py.client import queries
from pgq_py.client._sync import calls
from pgq_py.client._sync.connections import connect, connect_until
from pgq_py.client.acompat import Stop
from pgq_py.errors import PgqError
from pgq_py.settings import Settings, load_settings
from pgq_py.signals import stop_on_signals
from pgq_py.ticker.complaints import Complaints
from pgq_py.ticker.maintenance import Maintenance
from pgq_py.ticker.session import Session

__all__ = ["STANDBY_INTERVAL", "Ticker"]

logger = logging.getLogger("pgq_py.ticker")

STANDBY_INTERVAL = 0.5
"""Seconds between two attempts to lead. Waiting inside the database would hold a snapshot, and with it the horizon of
every table, for as long as the leader lives."""


class Ticker:
    """One ticker for one database: `run()` it in the main thread, or in any other one and `stop()` it from outside."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or load_settings()
        self.leads = False
        self._earlier_ticks = 0
        self._session: Session | None = None
        self._stop = Stop()
        self._complaints = Complaints()

    @property
    def ticks(self) -> int:
        """How many ticks it has made."""
        return self._earlier_ticks + (self._session.ticks if self._session else 0)

    def run(self) -> None:
        """Tick and maintain, or stand by, until SIGTERM, SIGINT or `stop`.

        Raises what is wrong at the start (no server, no schema or an old one); afterwards it tries on, whatever
        happens.
        """
        conn: psycopg.Connection[Any] | None = self._first_connection()
        with stop_on_signals(self.stop):
            while conn is not None:
                self._serve(conn)
                conn = connect_until(self.settings, "ticker", self._stop)
        logger.info("stopped after %d ticks", self.ticks)

    def run_once(self) -> int:
        """Make the releases and ticks that are due and one round of maintenance; returns the number of ticks."""
        with self._first_connection() as conn:
            session = Session(conn, self.settings, self._stop, self._complaints)
            session.once()
        maintenance = Maintenance(self.settings)
        try:
            maintenance.run_round()
        finally:
            maintenance.stop()
        return session.ticks

    def stop(self) -> None:
        """End `run` after the tick under way; may be called from anywhere."""
        self._stop.set()

    def _first_connection(self) -> psycopg.Connection[Any]:
        conn = connect(self.settings, "ticker")
        try:
            schema.check(conn)
        except BaseException:
            conn.close()
            raise
        return conn

    def _serve(self, conn: psycopg.Connection[Any]) -> None:
        """Lead or stand by for as long as the connection lasts, or until stopped."""
        try:
            with conn:
                while not self._stop.is_set() and not calls.value(conn, queries.LEAD):
                    self._stop.sleep(STANDBY_INTERVAL)
                if not self._stop.is_set():
                    self._lead(conn)
        except (PgqError, psycopg.Error) as exc:
            if conn.broken:
                logger.warning("connection lost, connecting again: %s", exc)
            else:
                self._complaints.about("ticker", exc)
                self._stop.sleep(STANDBY_INTERVAL)

    def _lead(self, conn: psycopg.Connection[Any]) -> None:
        maintenance = Maintenance(self.settings)
        self._session = Session(conn, self.settings, self._stop, self._complaints)
        self.leads = True
        logger.info("leading: ticking and maintaining")
        maintenance.start()
        try:
            self._session.run()
        finally:
            self.leads = False
            self._earlier_ticks, self._session = self.ticks, None
            maintenance.stop()
