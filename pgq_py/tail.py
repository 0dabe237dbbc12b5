"""Following a queue without being a consumer of it: nothing is registered, and no cursor moves.

Each look takes a snapshot and shows what is visible in it and was not in the one before. So an event whose transaction
commits late is shown late, never skipped, and each event once. Only whoever may read the queue's tables can do it.

A look reads through a cursor WITH HOLD: the server keeps its result aside, and a slow reader of ours holds neither a
snapshot nor a lock on the slots, which rotation would wait for. Behind a pooler, where such a cursor would be lost, the
result of a look is kept here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from psycopg import IsolationLevel
from psycopg.sql import SQL, Composed, Identifier

from pgq_py.client import queries
from pgq_py.client._sync import calls
from pgq_py.client._sync.connections import connect
from pgq_py.client.connecting import is_pooled
from pgq_py.client.rows import event_rows, read_lightly
from pgq_py.errors import QueueNotFound, SchemaMissing, translate
from pgq_py.settings import Settings
from pgq_py.types import Event

__all__ = ["Tail", "Where"]

_SNAPSHOT: Final = (
    "select pg_snapshot_xmax(s)::text, array(select pg_snapshot_xip(s)::text) from (select pg_current_snapshot() s) now"
)
"""What the snapshot of this transaction does not show: transactions from xmax on, and those in progress."""

_EVENTS: Final = SQL(
    "select ev_id, ev_time, ev_txid::text::bigint, ev_retry, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, "
    "ev_extra4 from {table} where ev_owner is null and (%(type)s::text is null or ev_type = %(type)s) and {window}"
)
"""The columns of Event, without the retries of single consumers (templates: the queue's parent table, which events)."""

_NEW: Final = SQL("(ev_txid >= %(xmax)s::xid8 or ev_txid = any (%(xip)s::xid8[])) order by ev_id")
"""Those that an earlier snapshot did not show: two ranges of the index on ev_txid."""

_SINCE: Final = SQL("(%(since)s::timestamptz is null or ev_time >= %(since)s) order by ev_id")
"""Those of transactions that began at a time or later; null: all that are left."""

_LAST: Final = SQL(
    "(%(since)s::timestamptz is null or ev_time >= %(since)s) order by ev_txid desc, ev_id desc limit {n}"
)
"""The same, but only the last ones (template: how many), in reverse: the index on ev_txid finds them."""

_FETCH = 1_000


@dataclass(frozen=True)
class Where:
    """Where to begin: the last `lines` events (None: all that are left), of a time or later, of one type."""

    lines: int | None = None
    since: datetime | None = None
    type: str | None = None


class Tail:
    """The events of one queue as they become visible. Use as a context manager."""

    def __init__(self, settings: Settings, queue: str, where: Where) -> None:
        self._settings, self._queue, self._where = settings, queue, where
        self._seen: tuple[Any, ...] | None = None

    def __enter__(self) -> Tail:
        self._conn = connect(self._settings, "tail")
        channel: str = calls.value(self._conn, queries.TICK_CHANNEL, [self._queue])
        self._table = Identifier("pgq", f"event_{channel.rpartition('_')[2]}")
        self._conn.isolation_level = IsolationLevel.REPEATABLE_READ
        self._conn.read_only = True
        return self

    def __exit__(self, *exc: object) -> None:
        self._conn.close()

    def look(self) -> Iterator[Event]:
        """The first time what `where` asks for, then what has become visible since. Raises QueueNotFound when the queue
        is dropped meanwhile."""
        try:
            yield from self._look()
        except SchemaMissing as exc:
            raise QueueNotFound(f"queue {self._queue} was dropped") from exc

    def _look(self) -> Iterator[Event]:
        hold = not is_pooled(self._conn)
        query, parameters, backwards = self._query()
        with translate(), self._conn.cursor("pgq_tail", row_factory=event_rows, withhold=hold) as cursor:
            read_lightly(cursor)
            with self._conn.transaction():
                (self._seen,) = calls.rows(self._conn, _SNAPSHOT)
                cursor.execute(query, parameters, binary=True)
                kept = None if hold and not backwards else list(_fetched(cursor))
            yield from _fetched(cursor) if kept is None else reversed(kept) if backwards else kept

    def _query(self) -> tuple[Composed, dict[str, Any], bool]:
        """What to ask this time; whether the answer is in reverse."""
        where = self._where
        if self._seen is not None:
            xmax, xip = self._seen
            return self._select(_NEW), {"type": where.type, "xmax": xmax, "xip": xip}, False
        parameters = {"type": where.type, "since": where.since}
        if where.lines is None:
            return self._select(_SINCE), parameters, False
        return self._select(_LAST.format(n=where.lines)), parameters, True

    def _select(self, window: SQL | Composed) -> Composed:
        return _EVENTS.format(table=self._table, window=window)


def _fetched(cursor: Any) -> Iterator[Event]:
    while rows := cursor.fetchmany(_FETCH):
        yield from rows
