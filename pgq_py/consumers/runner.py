"""All consumers of one application, started and stopped together: the engine of `pgq run` and of `PgQ.run()`.

The form of a handler decides how it runs, not the form of the facade: a coroutine function runs in an event loop and
gets an async transaction, any other function runs in a thread of its own and gets a sync one. So either runner runs
both.

What is wrong from the start (no server, no schema, no such queue) is raised to the caller; after that, workers try on
whatever happens. One alone ends by itself: that of a consumer that was evicted. The others go on; the error is logged
at once, and raised when all have ended.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from typing import Self

from pgq_py.client.acompat import AsyncStop, Stop
from pgq_py.consumers._async.registering import register_async
from pgq_py.consumers._async.worker import AsyncWorker
from pgq_py.consumers._sync.registering import register
from pgq_py.consumers._sync.worker import Worker
from pgq_py.consumers.spec import ConsumerSpec
from pgq_py.errors import InvalidArgument, PgqError
from pgq_py.settings import Settings
from pgq_py.signals import stop_on_signals

__all__ = ["AsyncRunner", "Runner"]

logger = logging.getLogger("pgq_py.consumers")


class Runner:
    """Runs consumers in threads of this process. Also a context manager: started inside the block, stopped at its end.

    The threads are daemons: a process that ends without `stop` leaves handlers in the middle of their work, which is
    then repeated. `failures` has the errors of workers that have ended by themselves.
    """

    def __init__(self, settings: Settings, specs: Sequence[ConsumerSpec]) -> None:
        self._settings, self._specs = settings, _checked(specs)
        self.failures: list[PgqError] = []
        self._stop = Stop()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
        self.join()

    def start(self) -> None:
        """Register the consumers, start working and return."""
        register(self._settings, self._specs)
        for spec in self._specs:
            name = f"pgq-{spec.queue}-{spec.name}"
            self._threads.append(threading.Thread(target=self._work, args=(spec,), name=name, daemon=True))
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ask all consumers to stop after their current call; may be called from anywhere, any number of times."""
        self._stop.set()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until all have stopped; False when the timeout (for each) passed first."""
        for thread in self._threads:
            thread.join(timeout)
        return not any(thread.is_alive() for thread in self._threads)

    def run(self) -> None:
        """Run until SIGTERM, SIGINT or `stop`; then let the current handlers finish.

        Also returns when all consumers have ended by themselves. Raises the error of the first that did.
        """
        with stop_on_signals(self.stop), self:
            self._stop.wait()
        if self.failures:
            raise self.failures[0]

    def _work(self, spec: ConsumerSpec) -> None:
        """The life of one thread."""
        try:
            if spec.is_async:
                asyncio.run(_until_stopped(AsyncRunner(self._settings, [spec]), self._stop))
            else:
                Worker(self._settings, spec, self._stop).run()
        except PgqError as exc:
            if not spec.is_async:
                _log_end(spec, exc)
            self.failures.append(exc)
            if len(self.failures) == len(self._specs):
                self.stop()


class AsyncRunner:
    """Runs consumers as tasks of the running event loop, and those that are not coroutine functions in threads."""

    def __init__(self, settings: Settings, specs: Sequence[ConsumerSpec]) -> None:
        self._settings, self._specs = settings, _checked(specs)
        self._stop = AsyncStop()
        self._thread_stop = Stop()

    def stop(self) -> None:
        """Ask all consumers to stop after their current call; from the event loop's own thread."""
        self._stop.set()
        self._thread_stop.set()

    async def run(self) -> None:
        """Register the consumers and run them until `stop` or, in the main thread, until SIGTERM or SIGINT."""
        await register_async(self._settings, self._specs)
        loop = asyncio.get_running_loop()
        with stop_on_signals(lambda: loop.call_soon_threadsafe(self.stop)):
            await self.work()

    async def work(self) -> None:
        """The same without registering first and without minding signals. Raises when a worker ended by itself."""
        failures: list[PgqError] = []
        # The loop's own executor has too few threads, and others use them too.
        with ThreadPoolExecutor(len(self._specs), "pgq-consumer") as executor:
            try:
                async with asyncio.TaskGroup() as group:
                    for spec in self._specs:
                        group.create_task(self._work(spec, executor, failures))
            finally:
                self._thread_stop.set()
        if failures:
            raise failures[0]

    async def _work(self, spec: ConsumerSpec, executor: Executor, failures: list[PgqError]) -> None:
        try:
            if spec.is_async:
                await AsyncWorker(self._settings, spec, self._stop).run()
            else:
                run = Worker(self._settings, spec, self._thread_stop).run
                await asyncio.get_running_loop().run_in_executor(executor, run)
        except PgqError as exc:
            _log_end(spec, exc)
            failures.append(exc)


def _log_end(spec: ConsumerSpec, exc: PgqError) -> None:
    logger.critical("%s/%s: this consumer has ended: %s", spec.queue, spec.name, exc)


async def _until_stopped(runner: AsyncRunner, stop: Stop) -> None:
    """Work until a stop that is set in another thread."""
    loop = asyncio.get_running_loop()

    def forward() -> None:
        stop.wait()
        with suppress(RuntimeError):  # it has ended by itself
            loop.call_soon_threadsafe(runner.stop)

    threading.Thread(target=forward, name="pgq-stop", daemon=True).start()
    await runner.work()


def _checked(specs: Sequence[ConsumerSpec]) -> tuple[ConsumerSpec, ...]:
    if not specs:
        raise InvalidArgument("there is no consumer to run", advice="Nothing was started. Decorate one: @pgq.consumer.")
    return tuple(specs)
