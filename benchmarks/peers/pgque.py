"""PgQue: PgQ's design in PL/pgSQL, from the SQL file given by `--pgque-sql`, with its Python client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any, ClassVar, Final

from benchmarks.peers.adapter import QUEUE, Handler
from benchmarks.peers.load import TYPE, Message, chunks
from benchmarks.peers.pgq_family import PgqFamily

__all__ = ["Pgque", "PgqueTuned"]

_EVERYTHING: Final = 2**31 - 1


class Pgque(PgqFamily):
    """At its defaults, driven from outside as its README says where pg_cron is not there."""

    name = "pgque"
    title = "PgQue, defaults"
    practice = (
        "its client: send, send_batch of 10,000, receive with no ceiling (a smaller one would refuse or lose the rest "
        "of a batch) and ack; its Consumer with LISTEN, polling every second besides, for it takes one batch for each "
        "wake-up; ticker() every 100 ms, maint() every 30 s"
    )
    requirements: ClassVar[tuple[str, ...]] = ("psycopg[binary]", "pgque-py")
    can = frozenset({"single", "pipelined", "bulk", "read", "fanout", "live", "scale"})
    schemas: ClassVar[tuple[str, ...]] = ("pgque",)
    schema = "pgque"
    tick_seconds: ClassVar[float] = 0.1
    settings: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def missing(cls, options: Mapping[str, str]) -> str | None:
        path = options.get("pgque_sql", "")
        if not path:
            return "its SQL file was not given (--pgque-sql PATH)"
        return None if Path(path).is_file() else f"there is no file {path}"

    def install(self) -> None:
        self.conn.execute(Path(self.options["pgque_sql"]).read_text().encode())

    def versions(self) -> dict[str, str]:
        return {**super().versions(), "sql": str(self.value("select pgque.version()"))}

    def prepare(self, consumers: int = 0) -> None:
        super().prepare(consumers)
        for name, setting in self.settings.items():
            self.value("select pgque.set_queue_config(%s, %s, %s)", [QUEUE, name, setting])

    @property
    def client(self) -> Any:
        import pgque

        return pgque.PgqueClient(self.conn)

    def send(self, message: Message) -> None:
        self.client.send(QUEUE, message.text, type=TYPE)

    def send_pipelined(self, batch: Sequence[Message]) -> None:
        """Its client waits for each id; psycopg's pipeline with the client's own statement does not."""
        self.pipeline("select pgque.send(%s, %s, %s::jsonb)", [(QUEUE, TYPE, message.text) for message in batch])

    def send_bulk(self, batch: Sequence[Message]) -> None:
        client = self.client
        for chunk in chunks(batch, 10_000):
            client.send_batch(QUEUE, TYPE, [message.text for message in chunk])

    def read(self, consumer: int) -> Sequence[Any]:
        client, payloads, empty = self.client, [], 0
        while empty < 3:
            taken = client.receive(QUEUE, f"consumer_{consumer}", _EVERYTHING)
            empty = 0 if taken else empty + 1
            payloads += [message.payload for message in taken]
            if taken:
                client.ack(taken[0].batch_id)
        return payloads

    def work(self, handler: Handler, stop: Event, ready: Event, batch: int) -> None:
        del batch
        import pgque

        consumer = pgque.Consumer(self.dsn, queue=QUEUE, name="consumer_0", poll_interval=1)
        consumer.on("*")(lambda message: handler(message.payload))
        thread = Thread(target=consumer.start, daemon=True)
        thread.start()
        ready.set()
        stop.wait()
        consumer.stop()
        thread.join(5)

    def background(self, stop: Event, ready: Event) -> list[int] | None:
        ready.set()
        maintained = rotated = monotonic()
        with self.connect() as conn:
            while not stop.wait(self.tick_seconds):
                conn.execute("select pgque.ticker()")
                now = monotonic()
                if now - maintained >= 30:
                    maintained = now
                    conn.execute("select pgque.maint_retry_events()")
                    conn.execute("select pgque.maint()")
                if now - rotated >= 10:
                    rotated = now
                    conn.execute("select pgque.maint_rotate_tables_step2()")
        return None


class PgqueTuned(Pgque):
    """Tuned for latency as its documentation describes."""

    name = "pgque-tuned"
    title = "PgQue, 10 ms ticks"
    practice = "as pgque, but with the thresholds of its queue as low as they go and ticker() every 10 ms"
    can = frozenset({"live"})
    tick_seconds = 0.01
    settings: ClassVar[Mapping[str, str]] = {"ticker_max_lag": "1 millisecond", "ticker_max_count": "1"}
