"""The jobs table of the tutorials: one row per job, claimed with FOR UPDATE SKIP LOCKED, marked, then deleted."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event
from typing import Any

from benchmarks.peers.adapter import Handler
from benchmarks.peers.load import Message, chunks
from benchmarks.peers.sqlbase import SqlAdapter

__all__ = ["SkipLocked"]

_TABLE = """
create table jobs (
    id bigint generated always as identity primary key, payload jsonb not null, state text not null default 'ready',
    created_at timestamptz not null default now(), locked_at timestamptz
);
create index on jobs (id) where state = 'ready';
alter table jobs set (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
create function announce() returns trigger language plpgsql as $$
begin notify jobs; return null; end $$;
create trigger announce after insert on jobs for each statement execute function announce();
"""
_CLAIM = """
update jobs set state = 'running', locked_at = now()
 where id in (select id from jobs where state = 'ready' order by id for update skip locked limit %s)
returning id, payload
"""


class SkipLocked(SqlAdapter):
    """As simple as it gets, but well indexed and vacuumed eagerly."""

    name = "skip-locked"
    title = "SKIP LOCKED table"
    unit = "job"
    practice = (
        "partial index on what is ready, autovacuum at 1 %, claim by UPDATE ... RETURNING, DELETE when done, "
        "NOTIFY by a trigger, poll of 1 s beside it; COPY in bulk"
    )
    can = frozenset({"single", "pipelined", "bulk", "read", "jobs", "live"})

    def install(self) -> None:
        self.conn.execute(_TABLE)

    def prepare(self, consumers: int = 0) -> None:
        del consumers

    def send(self, message: Message) -> None:
        self.conn.execute("insert into jobs (payload) values (%s)", (message.text,))

    def send_pipelined(self, batch: Sequence[Message]) -> None:
        self.pipeline("insert into jobs (payload) values (%s)", [(message.text,) for message in batch])

    def send_bulk(self, batch: Sequence[Message]) -> None:
        for chunk in chunks(batch, 10_000):
            with self.conn.cursor().copy("copy jobs (payload) from stdin") as copy:
                copy.write("".join([f"{message.text}\n" for message in chunk]))

    def contents(self) -> Sequence[Any]:
        return self.column("select payload from jobs")

    def clear(self) -> None:
        self.conn.execute("truncate jobs")

    def read(self, consumer: int) -> Sequence[Any]:
        del consumer
        payloads: list[Any] = []
        while taken := self._claim(self.conn, 1000):
            payloads += [payload for _, payload in taken]
            self._finish(self.conn, taken)
        return payloads

    def work(self, handler: Handler, stop: Event, ready: Event, batch: int) -> None:
        with self.connect() as conn:
            conn.execute("listen jobs")
            ready.set()
            while not stop.is_set():
                taken = self._claim(conn, batch)
                for _, payload in taken:
                    handler(payload)
                if taken:
                    self._finish(conn, taken)
                else:
                    list(conn.notifies(timeout=1 if not stop.is_set() else 0, stop_after=1))

    def unfinished(self) -> bool:
        return bool(self.value("select exists (select from jobs)"))

    def _claim(self, conn: Any, batch: int) -> list[Any]:
        found: list[Any] = conn.execute(_CLAIM, (batch,)).fetchall()
        return found

    def _finish(self, conn: Any, taken: Sequence[Any]) -> None:
        conn.execute("delete from jobs where id = any(%s)", ([job for job, _ in taken],))
