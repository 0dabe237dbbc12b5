"""What holds the xmin horizon: nothing, an idle snapshot, a long writer in another database, an active reader."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import psycopg

from benchmarks.harness.ground import Ground, connect

__all__ = ["HORIZONS", "held"]


@contextmanager
def _free(place: Ground, dsn: str) -> Iterator[None]:
    del place, dsn
    yield


@contextmanager
def _idle_snapshot(place: Ground, dsn: str) -> Iterator[None]:
    """A REPEATABLE READ transaction that has read something and does nothing more, in the peer's database."""
    del place
    with connect(dsn) as conn:
        conn.execute("begin isolation level repeatable read")
        conn.execute("select count(*) from pg_class")
        yield
        conn.execute("rollback")


@contextmanager
def _foreign_writer(place: Ground, dsn: str) -> Iterator[None]:
    """A transaction that has written, in another database, and stays open: its id holds everybody's horizon back for
    snapshots taken after it, though no snapshot here shows it."""
    del dsn
    other = place.database("writer")
    try:
        with connect(other) as conn:
            conn.execute("create table written (at timestamptz)")
            conn.execute("begin")
            conn.execute("insert into written values (now())")
            yield
            conn.execute("rollback")
    finally:
        place.drop(other)


@contextmanager
def _active_reader(place: Ground, dsn: str) -> Iterator[None]:
    """One snapshot, in which a report reads on and on: what analytics look like to a queue."""
    del place
    stop = threading.Event()

    def read() -> None:
        with suppress(psycopg.Error), connect(dsn) as conn:
            conn.execute("begin isolation level repeatable read")
            while not stop.is_set():
                conn.execute("select sum(aid) from bystander where aid % 7 = 3")
                stop.wait(0.2)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)


_HOLDERS: Final = {
    "free": _free,
    "idle snapshot": _idle_snapshot,
    "foreign writer": _foreign_writer,
    "active reader": _active_reader,
}
HORIZONS: Final = tuple(_HOLDERS)


@contextmanager
def held(horizon: str, place: Ground, dsn: str) -> Iterator[None]:
    """Hold it for the block."""
    with _HOLDERS[horizon](place, dsn):
        yield
