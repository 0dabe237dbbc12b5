"""The two consumers: one mirrors the accounts, one counts. Both exactly once, a batch in a transaction."""

from __future__ import annotations

import json
from typing import Any

import psycopg

from pgq_py.app import PgQ
from pgq_py.demo import statements
from pgq_py.demo.latency import Latency
from pgq_py.types import Event

__all__ = ["COUNTER", "MIRROR", "Subscribers"]

MIRROR = "mirror"
COUNTER = "counter"


class Subscribers:
    """Declares the consumers on a PgQ object, and knows how they are doing.

    `seen` is for the display: events handed over, those of a rolled-back transaction included. What is proved at the
    end is what they committed.
    """

    def __init__(self, pgq: PgQ, latency: Latency) -> None:
        self.seen = {MIRROR: 0, COUNTER: 0}
        self._latency = latency
        # A mirror is of no use without the transfer on which it failed, so it does not go on without it.
        pgq.consumer(statements.QUEUE, name=MIRROR, exactly_once=True, batch=True, on_error="block")(self._mirror)
        pgq.consumer(statements.QUEUE, name=COUNTER, exactly_once=True, batch=True)(self._count)

    def _mirror(self, events: list[Event], tx: psycopg.Connection[Any]) -> None:
        transfers = [json.loads(event.data or "{}") for event in events]
        accounts, deltas = [t["aid"] for t in transfers], [t["delta"] for t in transfers]
        tx.execute(statements.APPLY_TRANSFERS, [accounts, deltas])
        self._note(MIRROR, len(events), tx)
        row = tx.execute(statements.NOW).fetchone()
        now = row[0] if row else 0.0
        self._latency.record(now - t["sent"] for t in transfers)

    def _count(self, events: list[Event], tx: psycopg.Connection[Any]) -> None:
        self._note(COUNTER, len(events), tx)

    def _note(self, consumer: str, events: int, tx: psycopg.Connection[Any]) -> None:
        tx.execute(statements.NOTE_APPLIED, [consumer, events])
        self.seen[consumer] += events
