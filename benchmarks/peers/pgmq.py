"""PGMQ: the SQL that its Python client carries, and that client."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any, ClassVar, Final

from benchmarks.peers.adapter import QUEUE, Handler
from benchmarks.peers.load import Message, chunks
from benchmarks.peers.sqlbase import SqlAdapter

__all__ = ["Pgmq", "PgmqNotify"]

_VISIBLE_AFTER: Final = 300


class Pgmq(SqlAdapter):
    """A bare loop over read and delete, as its README shows it."""

    name = "pgmq"
    title = "PGMQ"
    unit = "job"
    practice = (
        "its client: send, send_batch of 1,000, read_batch and delete_batch of as many as are claimed; a queue for "
        "each consumer; read_with_poll when empty, at its default of 100 ms"
    )
    requirements: ClassVar[tuple[str, ...]] = ("psycopg[binary]", "pgmq")
    can = frozenset({"single", "pipelined", "bulk", "read", "fanout", "jobs", "live"})
    schemas: ClassVar[tuple[str, ...]] = ("pgmq",)
    notify: ClassVar[bool] = False
    _queues: Sequence[str] = (QUEUE,)

    def install(self) -> None:
        from pgmq.install import get_embedded_install_sql

        path = self.options.get("pgmq_sql", "")
        sql = Path(path).read_text() if path else get_embedded_install_sql()
        self.conn.execute("create schema if not exists pgmq")
        self.conn.execute(sql.encode())

    def versions(self) -> dict[str, str]:
        from pgmq.install import get_embedded_sql_version

        return {**super().versions(), "sql": self.options.get("pgmq_sql") or get_embedded_sql_version()}

    @property
    def client(self) -> Any:
        if not hasattr(self, "_client"):
            from pgmq import PGMQueue

            self._client = PGMQueue(conn_string=self.dsn, init_extension=False, pool_size=2)
        return self._client

    def close(self) -> None:
        super().close()
        if hasattr(self, "_client"):
            self._client.close()

    def prepare(self, consumers: int = 0) -> None:
        self._queues = [QUEUE, *(f"{QUEUE}_{nr}" for nr in range(1, consumers))]
        for queue in self._queues:
            self.client.create_queue(queue)
            if self.notify:
                self.client.enable_notify(queue, 0)

    def send(self, message: Message) -> None:
        self.client.send(QUEUE, message.data)

    def send_pipelined(self, batch: Sequence[Message]) -> None:
        """Its client waits for each id; psycopg's pipeline with the client's own statement does not."""
        query = "select * from pgmq.send(queue_name=>%s::text, msg=>%s::jsonb)"
        self.pipeline(query, [(QUEUE, message.text) for message in batch])

    def send_bulk(self, batch: Sequence[Message]) -> None:
        for chunk in chunks(batch, 1_000):
            for queue in self._queues:
                self.client.send_batch(queue, [message.data for message in chunk])

    def contents(self) -> Sequence[Any]:
        return self.column(f"select message from pgmq.q_{QUEUE}")

    def clear(self) -> None:
        self.conn.execute(f"truncate pgmq.q_{QUEUE}")

    def read(self, consumer: int) -> Sequence[Any]:
        payloads: list[Any] = []
        queue = self._queues[consumer]
        while taken := self.client.read_batch(queue, vt=_VISIBLE_AFTER, batch_size=1000):
            payloads += [message.message for message in taken]
            self.client.delete_batch(queue, [message.msg_id for message in taken])
        return payloads

    def work(self, handler: Handler, stop: Event, ready: Event, batch: int) -> None:
        client, listener = self.client, self.connect()
        if self.notify:
            listener.execute(f'listen "pgmq.q_{QUEUE}.INSERT"')
        ready.set()
        while not stop.is_set():
            taken = client.read_batch(QUEUE, vt=_VISIBLE_AFTER, batch_size=batch)
            if not taken:
                taken = self._wait(listener, batch)
            for message in taken or []:
                handler(message.message)
            if taken:
                client.delete_batch(QUEUE, [message.msg_id for message in taken])
        listener.close()

    def _wait(self, listener: Any, batch: int) -> Any:
        if self.notify:
            list(listener.notifies(timeout=1, stop_after=1))
            return None
        return self.client.read_with_poll(QUEUE, vt=_VISIBLE_AFTER, qty=batch, max_poll_seconds=1, poll_interval_ms=100)

    def unfinished(self) -> bool:
        return bool(self.value(f"select exists (select from pgmq.q_{QUEUE})"))


class PgmqNotify(Pgmq):
    """The same, woken by its notifications."""

    name = "pgmq-notify"
    title = "PGMQ, notify"
    practice = "as pgmq, but woken by enable_notify without throttling"
    can = frozenset({"live"})
    notify = True
