"""What PgQ and PgQue share: one set of SQL functions, under two names."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event
from time import perf_counter
from typing import Any

from benchmarks.peers.adapter import QUEUE, Handler
from benchmarks.peers.load import TYPE, Message
from benchmarks.peers.sqlbase import SqlAdapter

__all__ = ["PgqFamily"]


class PgqFamily(SqlAdapter):
    """`schema` is where the functions are."""

    schema = "pgq"
    poll = 0.1
    """Seconds between two looks of a consumer, where nothing wakes it."""

    def prepare(self, consumers: int = 0) -> None:
        self.value(f"select {self.schema}.create_queue(%s)", [QUEUE])
        for nr in range(consumers):
            self.value(f"select {self.schema}.register_consumer(%s, %s)", [QUEUE, f"consumer_{nr}"])

    def contents(self) -> Sequence[Any]:
        return self.column(f"select ev_data from {self._parent()}")

    def clear(self) -> None:
        """Without consumers nobody misses what is cut off."""
        parent = self._parent()
        self.conn.execute(f"truncate {', '.join(f'{parent}_{nr}' for nr in range(3))}")

    def seal(self) -> None:
        """The documented idiom: force_tick asks for one, ticker makes it."""
        for _ in range(2):
            self.value(f"select {self.schema}.force_tick(%s)", [QUEUE])
            self.value(f"select {self.schema}.ticker(%s)", [QUEUE])

    def read(self, consumer: int) -> Sequence[Any]:
        payloads: list[Any] = []
        empty = 0
        while empty < 3:
            taken = self.take(self.conn, f"consumer_{consumer}")
            if taken is None:
                break
            payloads += taken
            empty = 0 if taken else empty + 1
        return payloads

    def take(self, conn: Any, consumer: str, handler: Handler | None = None) -> list[Any] | None:
        """One batch: read, handed to the handler, finished. None when there is no batch."""
        (batch,) = conn.execute(f"select {self.schema}.next_batch(%s, %s)", [QUEUE, consumer]).fetchone()
        if batch is None:
            return None
        query = f"select ev_id, ev_time, ev_txid, ev_retry, ev_type, ev_data from {self.schema}.get_batch_events(%s)"
        payloads = [row[5] for row in conn.execute(query, [batch]).fetchall()]
        if handler is not None:
            for payload in payloads:
                handler(payload)
        conn.execute(f"select {self.schema}.finish_batch(%s)", [batch])
        return payloads

    def work(self, handler: Handler, stop: Event, ready: Event, batch: int) -> None:
        del batch
        with self.connect() as conn:
            ready.set()
            while not stop.is_set():
                if self.take(conn, "consumer_0", handler) is None:
                    stop.wait(self.poll)

    def populate(self, queues: int, consumers: int, backlog: int) -> None:
        self.prepare(consumers)
        for nr in range(queues - 1):
            self.value(f"select {self.schema}.create_queue(%s)", [f"{QUEUE}_{nr}"])
        self.value(f"select {self.schema}.register_consumer(%s, 'behind')", [QUEUE])
        if backlog:
            table = self.value(f"select {self.schema}.current_event_table(%s)", [QUEUE])
            insert = (
                f"insert into {table} (ev_time, ev_type, ev_data) "
                "select now(), %s, '{\"nr\":-1}' from generate_series(1, %s)"
            )
            self.conn.execute(insert, [TYPE, backlog])
            self.seal()
            for nr in range(consumers):
                while self.take(self.conn, f"consumer_{nr}") is not None:
                    pass

    def step(self, message: Message) -> dict[str, float]:
        self.send(message)
        self.value(f"select {self.schema}.force_tick(%s)", [QUEUE])
        begin = perf_counter()
        self.value(f"select {self.schema}.ticker()")
        ticked = perf_counter()
        (batch,) = self.conn.execute(f"select {self.schema}.next_batch(%s, 'consumer_0')", [QUEUE]).fetchone()
        query = f"select ev_data from {self.schema}.get_batch_events(%s)"
        payloads = self.conn.execute(query, [batch]).fetchall()
        received = perf_counter()
        self.conn.execute(f"select {self.schema}.finish_batch(%s)", [batch])
        acked = perf_counter()
        if [self.decode(payload)["nr"] for (payload,) in payloads] != [message.data["nr"]]:
            raise RuntimeError(f"sent {message.data['nr']}, received {payloads!r}")
        marks = {"tick of all queues": ticked - begin, "claim": received - ticked, "ack": acked - received}
        return {name: seconds * 1000 for name, seconds in marks.items()}

    def _parent(self) -> str:
        table: str = self.value(f"select {self.schema}.current_event_table(%s)", [QUEUE])
        return table.rpartition("_")[0]
