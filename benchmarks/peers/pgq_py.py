"""This project: the log."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from threading import Event
from time import perf_counter
from typing import Any, ClassVar

from benchmarks.peers.adapter import QUEUE, Adapter, Handler
from benchmarks.peers.load import TYPE, Message

__all__ = ["PgqPy"]


class PgqPy(Adapter):
    """Through the public client, at default settings."""

    name = "pgq-py"
    title = "pgq-py log"
    kind = "ours"
    practice = "send, pipeline().send, send_many; batches() to read; the runner and `pgq ticker` when live. Defaults."
    can = frozenset({"single", "pipelined", "bulk", "read", "fanout", "live", "scale"})
    schemas: ClassVar[tuple[str, ...]] = ("pgq",)

    def __init__(self, dsn: str, options: Mapping[str, str]) -> None:
        super().__init__(dsn, options)
        from pgq_py.app import PgQ

        self._pgq = PgQ(dsn)
        self._open = ExitStack()
        self._batches: dict[int, Any] = {}

    def versions(self) -> dict[str, str]:
        import pgq_py

        return {"pgq-py": pgq_py.__version__}

    def close(self) -> None:
        self._open.close()
        self._pgq.close()

    def install(self) -> None:
        import psycopg

        from pgq_py import schema

        with psycopg.connect(self.dsn) as conn:
            schema.install(conn)

    def prepare(self, consumers: int = 0) -> None:
        self._pgq.create_queue(QUEUE)
        for nr in range(consumers):
            self._pgq.register_consumer(QUEUE, f"consumer_{nr}")

    def send(self, message: Message) -> None:
        self._pgq.send(QUEUE, message.text, type=TYPE)

    def send_pipelined(self, batch: Sequence[Message]) -> None:
        with self._pgq.pipeline() as pipeline:
            for message in batch:
                pipeline.send(QUEUE, message.text, type=TYPE)

    def send_bulk(self, batch: Sequence[Message]) -> None:
        self._pgq.send_many(QUEUE, [message.text for message in batch], type=TYPE)

    def contents(self) -> Sequence[Any]:
        with self._pgq.transaction() as conn:
            (slot,) = conn.execute("select pgq.current_event_table(%s)", [QUEUE]).fetchone() or ("",)
            parent = slot.rpartition("_")[0]
            return [text for (text,) in conn.execute(f"select ev_data from {parent}")]

    def clear(self) -> None:
        """A queue without consumers gives up its events with the next tick, by rotation."""
        for _ in range(12):
            self._pgq.force_tick(QUEUE)
            if self._pgq.rotate_queue(QUEUE) == "idle":
                return
        raise RuntimeError("the queue's slots do not become empty: somebody holds one of them")

    def seal(self) -> None:
        self._pgq.force_tick(QUEUE)

    def read(self, consumer: int) -> Sequence[Any]:
        batches = self._batches.get(consumer)
        if batches is None:
            batches = self._open.enter_context(self._pgq.batches(QUEUE, f"consumer_{consumer}", wait=0))
            self._batches[consumer] = batches
        payloads: list[Any] = []
        for batch in batches:
            payloads.extend([event.data for event in batch])
        return payloads

    def work(self, handler: Handler, stop: Event, ready: Event, batch: int) -> None:
        del batch
        from pgq_py.app import PgQ

        pgq = PgQ(self.dsn)

        @pgq.consumer(QUEUE, name="consumer_0")
        def handle(event: Any) -> None:
            handler(event.data)

        with pgq, pgq.runner() as runner:
            ready.set()
            while not stop.wait(0.2):
                if runner.failures:
                    raise runner.failures[0]

    def background(self, stop: Event, ready: Event) -> list[int] | None:
        with run_quietly([sys.executable, "-m", "pgq_py", "ticker"], {"PGQ_DSN": self.dsn}) as process:
            _await_leader(self._pgq)
            ready.set()
            stop.wait()
            process.terminate()
        return None

    def populate(self, queues: int, consumers: int, backlog: int) -> None:
        self.prepare(consumers)
        for nr in range(queues - 1):
            self._pgq.create_queue(f"{QUEUE}_{nr}")
        self._pgq.register_consumer(QUEUE, "behind")
        if backlog:
            event = '{"nr":-1}'
            self._pgq.send_many(QUEUE, (event for _ in range(backlog)), type=TYPE)
            self._pgq.force_tick(QUEUE)
            for nr in range(consumers):
                self._pgq.seek(QUEUE, f"consumer_{nr}", "latest")

    def step(self, message: Message) -> dict[str, float]:
        self.send(message)
        begin = perf_counter()
        self._pgq.tick_all()
        ticked = perf_counter()
        batch = self._pgq.receive(QUEUE, "consumer_0", 100)
        received = perf_counter()
        if [self.decode(event.data)["nr"] for event in batch] != [message.data["nr"]]:
            raise RuntimeError(f"sent {message.data['nr']}, received {batch!r}")
        assert batch.batch_id is not None
        self._pgq.ack(QUEUE, "consumer_0", batch.batch_id)
        acked = perf_counter()
        marks = {"tick of all queues": ticked - begin, "claim": received - ticked, "ack": acked - received}
        return {name: seconds * 1000 for name, seconds in marks.items()}


def run_quietly(command: list[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A process whose output nobody reads; PGQ_* of the caller are not handed on."""
    import os

    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PGQ_", "BENCH_"))}
    null = subprocess.DEVNULL
    return subprocess.Popen(command, env={**kept, **environment}, stdin=null, stdout=null, stderr=null)


def _await_leader(pgq: Any) -> None:
    import time

    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with pgq.transaction() as conn:
            if conn.execute("select pgq.wake_armed_ms() > 0").fetchone() == (True,):
                return
        time.sleep(0.02)
    raise TimeoutError("no ticker within 30 s")
