"""One process that ticks every database of a server that has the schema, those that get it later included."""

from __future__ import annotations

import logging
import threading

from psycopg.conninfo import make_conninfo

from pgq_py import schema
from pgq_py.client import queries
from pgq_py.client._sync import calls
from pgq_py.client._sync.connections import connect
from pgq_py.client.acompat import Stop
from pgq_py.errors import ConnectionFailed, PgqError, SchemaMissing
from pgq_py.settings import Settings
from pgq_py.signals import stop_on_signals
from pgq_py.ticker.complaints import Complaints
from pgq_py.ticker.loop import Ticker

__all__ = ["TickerEverywhere"]

logger = logging.getLogger("pgq_py.ticker")

DISCOVERY_INTERVAL = 30.0
"""Seconds between two searches for databases."""


class TickerEverywhere:
    """A thread with a ticker for every database; the DSN names the database from which the others are found."""

    def __init__(self, settings: Settings, discovery_interval: float = DISCOVERY_INTERVAL) -> None:
        self.settings = settings
        self.tickers: dict[str, Ticker] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._interval = discovery_interval
        self._stop = Stop()
        self._complaints = Complaints()

    def run(self) -> None:
        """Until SIGTERM, SIGINT or `stop`. Raises ConnectionFailed when the first database cannot be reached."""
        with stop_on_signals(self.stop):
            self._discover()
            while not self._stop.sleep(self._interval):
                try:
                    self._discover()
                    self._complaints.settled("discovery")
                except ConnectionFailed as exc:
                    self._complaints.about("discovery", exc)
        for ticker in self.tickers.values():
            ticker.stop()
        for thread in self._threads.values():
            thread.join()

    def stop(self) -> None:
        """End `run` after the ticks under way; may be called from anywhere."""
        self._stop.set()

    def _discover(self) -> None:
        with connect(self.settings, "ticker discovery") as conn:
            names = calls.values(conn, queries.DATABASES)
        for name in self._threads.keys() - set(names):
            self.tickers.pop(name).stop()
            self._threads.pop(name).join()
        for name in names:
            if name not in self._threads or not self._threads[name].is_alive():
                self._start(name)

    def _start(self, name: str) -> None:
        dsn = make_conninfo(self.settings.conninfo, dbname=name)
        settings = self.settings.model_copy(update={"dsn": type(self.settings.dsn)(dsn)})
        try:
            with connect(settings, "ticker discovery") as conn:
                schema.check(conn)
            self._complaints.settled(f"database {name}")
        except SchemaMissing:
            return
        except PgqError as exc:
            self._complaints.about(f"database {name}", exc)
            return
        logger.info("database %s: ticking", name)
        self.tickers[name] = ticker = Ticker(settings)
        self._threads[name] = thread = threading.Thread(target=ticker.run, name=f"ticker of {name}", daemon=True)
        thread.start()
