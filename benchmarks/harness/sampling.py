"""What a server looks like, once a second: dead tuples and size of every relation of a peer, and autovacuum's work."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, Self

from benchmarks.harness.ground import connect

__all__ = ["Sample", "Sampler"]

_RELATIONS: Final = """
select schemaname || '.' || relname, n_live_tup, n_dead_tup, pg_relation_size(relid),
       coalesce(pg_indexes_size(relid), 0), vacuum_count + autovacuum_count
  from pg_stat_all_tables
 where schemaname = any(%s) and relname not like 'bystander%%'
"""
_CATALOG: Final = """
select coalesce(sum(n_dead_tup), 0)::bigint from pg_stat_all_tables where schemaname = 'pg_catalog'
"""
_VACUUMING: Final = "select count(*) from pg_stat_progress_vacuum"
_HORIZON: Final = """
select coalesce(max(age(backend_xmin)), 0) from pg_stat_activity where backend_xmin is not null
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """At `at` seconds of the monotonic clock. `relations`: name to (live, dead, heap bytes, index bytes)."""

    at: float
    relations: dict[str, tuple[int, int, int, int]]
    dead: int
    bytes: int
    vacuums: int
    vacuuming: int
    catalog_dead: int
    horizon_age: int


class Sampler:
    """Samples in a thread, through a session of its own, until the end of the block."""

    def __init__(self, dsn: str, schemas: Sequence[str], every: float = 1.0) -> None:
        self.samples: list[Sample] = []
        self.error: Exception | None = None
        self._dsn, self._schemas, self._every = dsn, list(schemas), every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        try:
            with connect(self._dsn) as conn:
                due = monotonic()
                while not self._stop.is_set():
                    self.samples.append(self._take(conn))
                    due += self._every
                    self._stop.wait(max(0.0, due - monotonic()))
        except Exception as exc:
            self.error = exc

    def _take(self, conn: Any) -> Sample:
        at = monotonic()
        rows = conn.execute(_RELATIONS, [self._schemas]).fetchall()
        (catalog_dead,) = conn.execute(_CATALOG).fetchone()
        (vacuuming,) = conn.execute(_VACUUMING).fetchone()
        (horizon,) = conn.execute(_HORIZON).fetchone()
        return Sample(
            at=at,
            relations={name: (live, dead, heap, indexes) for name, live, dead, heap, indexes, _ in rows},
            dead=sum(row[2] for row in rows),
            bytes=sum(row[3] + row[4] for row in rows),
            vacuums=sum(row[5] for row in rows),
            vacuuming=int(vacuuming),
            catalog_dead=int(catalog_dead),
            horizon_age=int(horizon),
        )
