"""The physical limits: COPY, INSERT and SELECT on one plain table with the log's columns and one index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.peers.load import TYPE, Message, chunks
from benchmarks.peers.sqlbase import SqlAdapter

__all__ = ["Raw"]

_TABLE = """
create table plain (
    ev_id bigint generated always as identity, ev_time timestamptz not null default now(),
    ev_txid xid8 not null default pg_current_xact_id(), ev_retry int, ev_type text, ev_data text,
    ev_extra1 text, ev_extra2 text, ev_extra3 text, ev_extra4 text
);
create index on plain (ev_txid);
"""


class Raw(SqlAdapter):
    """No queue: what no queue in this server can beat."""

    name = "raw"
    title = "raw COPY / SELECT"
    kind = "limit"
    practice = (
        "COPY of rows rendered beforehand, 10,000 a transaction; INSERT; SELECT of all columns in binary, fetchall."
    )
    can = frozenset({"single", "pipelined", "bulk", "read"})

    def install(self) -> None:
        self.conn.execute(_TABLE)

    def prepare(self, consumers: int = 0) -> None:
        del consumers

    def send(self, message: Message) -> None:
        self.conn.execute("insert into plain (ev_type, ev_data) values (%s, %s)", (TYPE, message.text))

    def send_pipelined(self, batch: Sequence[Message]) -> None:
        self.pipeline("insert into plain (ev_type, ev_data) values (%s, %s)", [(TYPE, m.text) for m in batch])

    def send_bulk(self, batch: Sequence[Message]) -> None:
        for chunk in chunks(batch, 10_000):
            rendered = "".join([f"{TYPE}\t{message.text}\n" for message in chunk]).encode()
            with self.conn.cursor().copy("copy plain (ev_type, ev_data) from stdin") as copy:
                copy.write(rendered)

    def contents(self) -> Sequence[Any]:
        return self.column("select ev_data from plain")

    def clear(self) -> None:
        self.conn.execute("truncate plain")

    def read(self, consumer: int) -> Sequence[Any]:
        del consumer
        columns = "ev_id, ev_time, ev_txid::text::bigint, ev_retry, ev_type, ev_data, ev_extra1, ev_extra2"
        with self.conn.cursor(binary=True) as cursor:
            return [row[5] for row in cursor.execute(f"select {columns} from plain").fetchall()]
