"""pgqueuer, over asyncpg and over psycopg."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from threading import Event
from typing import Any, ClassVar

from benchmarks.peers.adapter import QUEUE, Handler
from benchmarks.peers.asyncbase import AsyncAdapter, until
from benchmarks.peers.load import Message, chunks

__all__ = ["PgqueuerAsyncpg", "PgqueuerPsycopg"]


class PgqueuerAsyncpg(AsyncAdapter):
    """The driver that it recommends for throughput."""

    name = "pgqueuer-asyncpg"
    title = "pgqueuer (asyncpg)"
    unit = "job"
    framework = True
    practice = "enqueue; enqueue of lists of 1,000; QueueManager.run with `batch_size` as many as are claimed; uvloop"
    requirements: ClassVar[tuple[str, ...]] = ("psycopg[binary]", "pgqueuer[asyncpg,psycopg]", "asyncpg")
    can = frozenset({"single", "bulk", "jobs", "live"})

    async def _driver(self) -> Any:
        import asyncpg
        from pgqueuer.db import AsyncpgDriver

        return AsyncpgDriver(await asyncpg.connect(self.dsn))

    @property
    def queries(self) -> Any:
        from pgqueuer.queries import Queries

        if not hasattr(self, "_queries"):
            self._queries = Queries(self.run(self._driver()))
        return self._queries

    def install(self) -> None:
        self.run(self.queries.install())

    def prepare(self, consumers: int = 0) -> None:
        del consumers

    def send(self, message: Message) -> None:
        self.run(self.queries.enqueue(QUEUE, message.text.encode(), 0))

    def send_bulk(self, batch: Sequence[Message]) -> None:
        async def main(queries: Any) -> None:
            for chunk in chunks(batch, 1_000):
                count = len(chunk)
                await queries.enqueue([QUEUE] * count, [message.text.encode() for message in chunk], [0] * count)

        self.run(main(self.queries))

    def contents(self) -> Sequence[Any]:
        return self.column("select payload from pgqueuer")

    def clear(self) -> None:
        self.conn.execute("truncate pgqueuer, pgqueuer_log")

    def work(self, handler: Handler, stop: Event, ready: Event, batch: int) -> None:
        async def main() -> None:
            from pgqueuer import PgQueuer

            manager = PgQueuer(await self._driver()).qm

            @manager.entrypoint(QUEUE)  # type: ignore[untyped-decorator, unused-ignore]
            async def handle(job: Any) -> None:
                handler(job.payload)

            worker = asyncio.create_task(manager.run(batch_size=batch))
            await asyncio.sleep(0.3)
            ready.set()
            await until(stop, worker)
            manager.shutdown.set()
            await worker

        self.apart(main)

    def unfinished(self) -> bool:
        return bool(self.value("select exists (select from pgqueuer)"))


class PgqueuerPsycopg(PgqueuerAsyncpg):
    """The other driver."""

    name = "pgqueuer-psycopg"
    title = "pgqueuer (psycopg)"

    async def _driver(self) -> Any:
        import psycopg
        from pgqueuer.db import PsycopgDriver

        return PsycopgDriver(await psycopg.AsyncConnection.connect(self.dsn, autocommit=True))
