"""The enemy of every queue in a table: a session that is idle in a transaction, and holds a snapshot.

Nothing that has died since can be removed while it lasts. A queue that updates or deletes rows slows down with every
one of them; this log does neither.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg import IsolationLevel

from pgq_py.demo import statements
from pgq_py.demo.place import Place

__all__ = ["PinnedHorizon"]


class PinnedHorizon:
    """Pins the xmin horizon of the database from entry to exit of the block."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._xmin: str | None = None

    def __enter__(self) -> Self:
        self._idle = self._place.connect("idle in transaction")
        self._idle.autocommit = False
        self._idle.isolation_level = IsolationLevel.REPEATABLE_READ
        self._idle.execute(statements.PIN_HORIZON)
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self._idle.close()

    def age(self, conn: psycopg.Connection[Any]) -> int | None:
        """How many transactions the horizon is behind; None when it is not where it was, or nowhere."""
        row = conn.execute(statements.HORIZON, [self._idle.info.backend_pid]).fetchone()
        if row is None or row[0] is None or self._xmin not in (None, row[0]):
            return None
        self._xmin = row[0]
        return int(row[1])
