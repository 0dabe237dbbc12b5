"""procrastinate."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from threading import Event
from typing import Any, ClassVar

from benchmarks.peers.adapter import QUEUE, Handler
from benchmarks.peers.asyncbase import AsyncAdapter, until
from benchmarks.peers.load import Message, chunks

__all__ = ["Procrastinate"]


class Procrastinate(AsyncAdapter):
    """An asynchronous worker; the synchronous connector to defer, as its documentation recommends for such programs."""

    name = "procrastinate"
    title = "procrastinate"
    unit = "job"
    framework = True
    practice = (
        "defer; batch_defer of 1,000; worker with listen_notify, `concurrency` as many as are claimed (it claims one "
        "job at a time); finished jobs are kept, its default"
    )
    requirements: ClassVar[tuple[str, ...]] = ("psycopg[binary]", "procrastinate")
    can = frozenset({"single", "bulk", "jobs", "live"})

    _sync: Any = None

    def install(self) -> None:
        self._app("sync").schema_manager.apply_schema()

    def prepare(self, consumers: int = 0) -> None:
        del consumers

    def _app(self, kind: str, handler: Handler | None = None) -> Any:
        import procrastinate

        if kind == "sync" and self._sync is not None:
            return self._sync
        connector = procrastinate.SyncPsycopgConnector if kind == "sync" else procrastinate.PsycopgConnector
        app = procrastinate.App(connector=connector(conninfo=self.dsn))

        async def noop(**message: Any) -> None:
            if handler is not None:
                handler(message)

        self._task = app.task(name="noop", queue=QUEUE)(noop)
        if kind == "sync":
            app.open()
            self._sync = app
        return app

    def close(self) -> None:
        super().close()
        if self._sync is not None:
            self._sync.close()

    def send(self, message: Message) -> None:
        self._app("sync").tasks["noop"].defer(**message.data)

    def send_bulk(self, batch: Sequence[Message]) -> None:
        task = self._app("sync").tasks["noop"]
        for chunk in chunks(batch, 1_000):
            task.batch_defer(*[message.data for message in chunk])

    def contents(self) -> Sequence[Any]:
        return self.column("select args from procrastinate_jobs")

    def clear(self) -> None:
        self.conn.execute("truncate procrastinate_jobs, procrastinate_events cascade")

    def work(self, handler: Handler, stop: Event, ready: Event, batch: int) -> None:
        async def main() -> None:
            app = self._app("async", handler)
            async with app.open_async():
                options = {"queues": [QUEUE], "concurrency": batch, "install_signal_handlers": False}
                worker = asyncio.create_task(app.run_worker_async(**options))
                await asyncio.sleep(0.3)
                ready.set()
                await until(stop, worker)
                worker.cancel()
                await asyncio.gather(worker, return_exceptions=True)

        self.apart(main)

    def unfinished(self) -> bool:
        query = "select exists (select from procrastinate_jobs where status in ('todo', 'doing'))"
        return bool(self.value(query))
