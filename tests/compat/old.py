"""The vocabulary of tests on a database of PgQ's: what its clients do there, and what ours delivers once it is ours."""

from __future__ import annotations

from pgq_py.client import Client
from tests.clusters import Database
from tests.engine.support import Conn, rows, value

__all__ = ["INSERT", "everything", "send", "take", "tick"]

INSERT = "select pgq.insert_event(%s, %s, %s)"


def send(conn: Conn, queue: str, *data: str) -> list[int]:
    return [value(conn, INSERT, queue, "t", item) for item in data]


def tick(conn: Conn) -> None:
    """PgQ ticks when three seconds are over; with its settings at 0, whenever it is asked."""
    value(conn, "select pgq.ticker()")


def take(conn: Conn, queue: str, consumer: str, *, retry: int | None = None) -> list[str]:
    """A batch, finished, the events beginning with `retry-` to come again in so many seconds."""
    batch = value(conn, "select pgq.next_batch(%s, %s)", queue, consumer)
    if batch is None:
        return []
    events = rows(conn, "select ev_id, ev_data from pgq.get_batch_events(%s)", batch)
    for ev_id, data in events:
        if retry is not None and data.startswith("retry-"):
            value(conn, "select pgq.event_retry(%s, %s, %s)", batch, ev_id, retry)
    value(conn, "select pgq.finish_batch(%s)", batch)
    return [data for _, data in events]


def everything(db: Database, queue: str, consumer: str) -> list[tuple[int, str]]:
    """What our client delivers to a consumer until nothing is waiting: ids and payloads. Releases and ticks itself."""
    found: list[tuple[int, str]] = []
    own = db.connect()
    with Client(db.dsn) as pgq:
        while True:
            released = value(own, "select pgq.release(%s)", queue)
            value(own, "select pgq.ticker(%s)", queue)
            received = pgq.receive(queue, consumer, 1000)
            if not (received or released):
                return found
            found += [(event.id, event.data or "") for event in received]
            if received.batch_id is not None:
                pgq.ack(queue, consumer, received.batch_id)
