"""All consumers of one application, started and stopped together: the engine of `pgq run` and of `PgQ.run()`.

The form of a handler decides how it runs, not the form of the facade: a coroutine function runs in an event loop and
gets an async transaction, any other function runs in a thread of its own and gets a sync one. So either runner runs
both.

What is wrong from the start (no server, no schema, no such queue) is raised to the caller; after that, workers try on
whatever happens.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Self

from pgq_py.client.acompat import AsyncStop, Stop
from pgq_py.consumers._async.worker import AsyncWorker, register_async
from pgq_py.consumers._sync.worker import Worker, register
from pgq_py.consumers.spec import ConsumerSpec
from pgq_py.errors import InvalidArgument
from pgq_py.settings import Settings
from pgq_py.signals import stop_on_signals

__all__ = ["AsyncRunner", "Runner"]


class Runner:
    """Runs consumers in threads of this process. Also a context manager: started inside the block, stopped at its end.

    The threads are daemons: a process that ends without `stop` leaves handlers in the middle of their work, which is
    then repeated.
    """

    def __init__(self, settings: Settings, specs: Sequence[ConsumerSpec]) -> None:
        self._settings, self._specs = settings, _checked(specs)
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
            target = self._run_async if spec.is_async else Worker(self._settings, spec, self._stop).run
            name = f"pgq-{spec.queue}-{spec.name}"
            arguments = (spec,) if spec.is_async else ()
            self._threads.append(threading.Thread(target=target, args=arguments, name=name, daemon=True))
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
        """Run until SIGTERM, SIGINT or `stop`; then let the current handlers finish."""
        with stop_on_signals(self.stop), self:
            self._stop.wait()

    def _run_async(self, spec: ConsumerSpec) -> None:
        asyncio.run(_until_stopped(AsyncRunner(self._settings, [spec]), self._stop))


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
        """The same without registering first and without minding signals."""
        tasks = [spec for spec in self._specs if spec.is_async]
        threads = [spec for spec in self._specs if not spec.is_async]
        # The loop's own executor has too few threads, and others use them too.
        with ThreadPoolExecutor(max(1, len(threads)), "pgq-consumer") as executor:
            try:
                async with asyncio.TaskGroup() as group:
                    for spec in tasks:
                        group.create_task(AsyncWorker(self._settings, spec, self._stop).run())
                    for spec in threads:
                        run = Worker(self._settings, spec, self._thread_stop).run
                        group.create_task(_in_thread(executor, run))
            finally:
                self._thread_stop.set()


async def _in_thread(executor: Executor, run: Callable[[], None]) -> None:
    await asyncio.get_running_loop().run_in_executor(executor, run)


async def _until_stopped(runner: AsyncRunner, stop: Stop) -> None:
    """Work until a stop that is set in another thread."""
    loop = asyncio.get_running_loop()

    def forward() -> None:
        stop.wait()
        loop.call_soon_threadsafe(runner.stop)

    threading.Thread(target=forward, name="pgq-stop", daemon=True).start()
    await runner.work()


def _checked(specs: Sequence[ConsumerSpec]) -> tuple[ConsumerSpec, ...]:
    if not specs:
        raise InvalidArgument("there is no consumer to run", advice="Nothing was started. Decorate one: @pgq.consumer.")
    return tuple(specs)
