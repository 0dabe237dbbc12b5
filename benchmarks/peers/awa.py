"""awa, through its Python package."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, make_dataclass
from threading import Event
from typing import Any, ClassVar

from benchmarks.peers.adapter import QUEUE, Handler
from benchmarks.peers.asyncbase import AsyncAdapter, until
from benchmarks.peers.load import Message, chunks

__all__ = ["Awa"]

_FIELDS = ("nr", "due", "customer", "amount", "state", "items")
_Order = make_dataclass("Order", _FIELDS)


class Awa(AsyncAdapter):
    """Its storage engine in Rust, jobs as dataclasses."""

    name = "awa"
    title = "awa"
    unit = "job"
    framework = True
    practice = (
        "insert; enqueue_many_copy of 10,000; a worker of as many slots as are claimed, other settings at their "
        "defaults. A worker is started once before, for only then does its COPY work"
    )
    requirements: ClassVar[tuple[str, ...]] = ("psycopg[binary]", "awa-pg")
    can = frozenset({"single", "bulk", "jobs", "live"})
    schemas: ClassVar[tuple[str, ...]] = ("awa",)

    def __init__(self, dsn: str, options: Mapping[str, str]) -> None:
        super().__init__(dsn, options)
        self._client: Any = None
        self._seen = -1

    @property
    def client(self) -> Any:
        if self._client is None:
            import awa

            self._client = awa.AsyncClient(self.dsn)
        return self._client

    def install(self) -> None:
        async def main() -> None:
            import awa

            await awa.migrate(self.dsn)

        self.run(main())
        stop, ready = Event(), Event()
        stop.set()
        self.work(lambda _: None, stop, ready, 1)

    def prepare(self, consumers: int = 0) -> None:
        del consumers

    def send(self, message: Message) -> None:
        self.run(self._insert(message))

    async def _insert(self, message: Message) -> None:
        await self.client.insert(_Order(**message.data), queue=QUEUE)

    def send_bulk(self, batch: Sequence[Message]) -> None:
        async def main() -> None:
            for chunk in chunks(batch, 10_000):
                await self.client.enqueue_many_copy([_Order(**message.data) for message in chunk], queue=QUEUE)

        self.run(main())

    def contents(self) -> Sequence[Any]:
        """Its storage cannot be emptied quickly, so what an earlier turn has left is told apart by its numbers."""
        query = "select args from awa.jobs where state = 'available' and (args->>'nr')::bigint > %s"
        found = self.column(query, [self._seen])
        self._seen = max((args["nr"] for args in found), default=self._seen)
        return found

    def clear(self) -> None:
        """See `contents`."""

    def work(self, handler: Handler, stop: Event, ready: Event, batch: int) -> None:
        async def main() -> None:
            import awa

            client = awa.AsyncClient(self.dsn)

            @client.task(_Order, queue=QUEUE)  # type: ignore[untyped-decorator, unused-ignore]
            async def handle(job: Any) -> None:
                handler(job.args)

            await client.start([(QUEUE, batch)])
            await asyncio.sleep(0.5)
            ready.set()
            await until(stop)
            await client.shutdown()

        self.apart(main)

    def unfinished(self) -> bool:
        stats = self.run(self._stats())
        return any(stat.total_queued or stat.running for stat in stats)

    async def _stats(self) -> Any:
        return await self.client.queue_stats()

    @staticmethod
    def decode(payload: Any) -> dict[str, Any]:
        found: dict[str, Any] = payload if isinstance(payload, dict) else asdict(payload)
        return found
