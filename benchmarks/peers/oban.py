"""Oban for Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Event
from typing import Any, ClassVar

from benchmarks.peers.adapter import QUEUE, Handler
from benchmarks.peers.asyncbase import AsyncAdapter, until
from benchmarks.peers.load import Message, chunks

__all__ = ["Oban"]


class Oban(AsyncAdapter):
    """The free edition."""

    name = "oban"
    title = "oban-py"
    unit = "job"
    framework = True
    practice = (
        "enqueue; enqueue_many of 1,000; a queue with a limit of as many as are claimed; uvloop; finished jobs kept"
    )
    requirements: ClassVar[tuple[str, ...]] = ("psycopg[binary]", "oban")
    python = (3, 12)
    can = frozenset({"single", "bulk", "jobs", "live"})

    def __init__(self, dsn: str, options: Mapping[str, str]) -> None:
        super().__init__(dsn, options)
        self._client: Any = None

    def install(self) -> None:
        async def main() -> None:
            from oban import schema

            async with await self._pool() as pool:
                await schema.install(pool)

        self.run(main())

    async def _pool(self) -> Any:
        import oban

        return await oban.Oban.create_pool(self.dsn, min_size=1, max_size=4)

    def prepare(self, consumers: int = 0) -> None:
        del consumers

    def _worker(self, handler: Handler | None = None) -> Any:
        import oban

        class Noop:
            async def process(self, job: Any) -> None:
                if handler is not None:
                    handler(job.args)

        return oban.worker(queue=QUEUE)(Noop)

    async def _enqueuer(self) -> Any:
        import oban

        if self._client is None:
            self._noop = self._worker()
            self._client = oban.Oban(pool=await self._pool(), name=f"client{id(self)}")
        return self._client

    async def _send(self, batch: Sequence[Message], size: int) -> None:
        client = await self._enqueuer()
        for chunk in chunks(batch, size):
            await client.enqueue_many([self._noop.new(message.data) for message in chunk])

    def send(self, message: Message) -> None:
        self.run(self._send([message], 1))

    def send_bulk(self, batch: Sequence[Message]) -> None:
        self.run(self._send(batch, 1_000))

    def contents(self) -> Sequence[Any]:
        return self.column("select args from oban_jobs")

    def clear(self) -> None:
        self.conn.execute("truncate oban_jobs")

    def work(self, handler: Handler, stop: Event, ready: Event, batch: int) -> None:
        async def main() -> None:
            import oban

            self._worker(handler)
            async with await self._pool() as pool, oban.Oban(pool=pool, queues={QUEUE: batch}):
                ready.set()
                await until(stop)

        self.apart(main)

    def unfinished(self) -> bool:
        query = (
            "select exists (select from oban_jobs where state in ('available', 'executing', 'scheduled', 'retryable'))"
        )
        return bool(self.value(query))
