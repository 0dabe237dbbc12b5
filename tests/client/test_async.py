"""The async form. Its twin is generated from it, so that one walk through everything is enough here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from pgq_py import QueueNotFound
from pgq_py.app import AsyncPgQ
from tests.clusters import Database


def in_loop(db: Database, test: Callable[[AsyncPgQ], Awaitable[None]]) -> None:
    async def main() -> None:
        async with AsyncPgQ(db.dsn) as pgq:
            assert await pgq.create_queue("orders")
            assert await pgq.register_consumer("orders", "mailer")
            await test(pgq)

    asyncio.run(main())


def test_from_send_to_ack(db: Database) -> None:
    async def numbers() -> AsyncIterator[int]:
        for number in range(5000):
            yield number

    async def test(pgq: AsyncPgQ) -> None:
        assert await pgq.send("orders", {"id": 1}, type="kind") == 1
        assert await pgq.send_many("orders", numbers(), chunk_size=1000) == 5000
        assert await pgq.send_many("orders", ["x"]) == 1
        async with pgq.transaction() as tx:
            await tx.execute("create table sale ()")
            await pgq.send("orders", "in a transaction", conn=tx)
        async with pgq.pipeline() as pipeline:
            await pipeline.send("orders", "in a pipeline")
        assert await pgq.queues_due() == ["orders"]
        await pgq.tick("orders")
        async with pgq.batches("orders", "mailer", wait=0) as batches:
            found = [event async for batch in batches async for event in batch]
        assert [event.data for event in found[1:5001]] == [str(number) for number in range(5000)]
        assert [event.data for event in found[5001:]] == ["x", "in a transaction", "in a pipeline"]
        assert await pgq.receive("orders", "mailer") == []
        assert (await pgq.consumer_info("orders", "mailer")).pending_events == 0

    in_loop(db, test)


def test_leaving_an_async_batch(db: Database) -> None:
    async def test(pgq: AsyncPgQ) -> None:
        await pgq.send_many("orders", list("abcdef"))
        await pgq.tick("orders")
        async with pgq.batches("orders", "mailer", wait=0) as batches:
            async for batch in batches:
                async for event in batch:
                    if event.data == "b":
                        break
                break
        async with pgq.batches("orders", "mailer", wait=0) as batches:
            assert [[event.data async for event in batch] async for batch in batches] == [["c", "d", "e", "f"]]

    in_loop(db, test)


def test_waiting_and_stopping(db: Database) -> None:
    async def test(pgq: AsyncPgQ) -> None:
        async with pgq.batches("orders", "mailer") as batches:
            waiting = asyncio.ensure_future(anext(batches))
            await pgq.send("orders", "x")
            async with asyncio.timeout(5):
                assert [event.data async for event in await waiting] == ["x"]
            stopped = asyncio.ensure_future(anext(batches))
            batches.stop()
            with pytest.raises(StopAsyncIteration):
                await stopped

    in_loop(db, test)


def test_errors_and_tasks(db: Database) -> None:
    async def test(pgq: AsyncPgQ) -> None:
        with pytest.raises(QueueNotFound):
            await pgq.send("nowhere", "x")
        await asyncio.gather(*(pgq.send("orders", number) for number in range(50)))
        await pgq.tick("orders")
        assert sorted(event.json for event in await pgq.receive("orders", "mailer")) == list(range(50))

    in_loop(db, test)
