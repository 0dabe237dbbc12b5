"""Everything that an application has declared, started and stopped together: its consumers and a worker for its jobs.

Consumers have a thread or a task each (`pgq_py.consumers.runner`), jobs one worker in one event loop. When that loop is
the main thread's, it minds the signals: the first SIGTERM or SIGINT lets what has begun come to its end, a second one
gives jobs back at once.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Self, TypedDict, Unpack

from pgq_py.client import AsyncClient, Client
from pgq_py.consumers import AsyncRunner, ConsumerSpec, Runner
from pgq_py.consumers._async.registering import register_async
from pgq_py.errors import InvalidArgument, PgqError
from pgq_py.jobs.middleware import Middleware
from pgq_py.jobs.spec import JobSpec
from pgq_py.jobs.worker import Worker
from pgq_py.settings import Settings

__all__ = ["AppRunner", "AsyncAppRunner", "WorkerOptions", "create_missing_queues"]

logger = logging.getLogger("pgq_py.jobs")

PRIORITIES = frozenset({150, 100, 30})
"""Of a queue that is created at the start, besides those that its jobs declare."""


class WorkerOptions(TypedDict, total=False):
    """What of the worker can be chosen at its start; see `pgq_py.jobs.worker.Worker`."""

    slots: int
    prefetch: int
    queues: Mapping[str, float] | Sequence[str]
    drain: bool
    grace: float
    lease: float
    gather: float


class _Worker(Worker):
    """A worker that takes others along when it is stopped."""

    also_stop: Callable[[], object] = staticmethod(lambda: None)

    def stop(self) -> None:
        super().stop()
        self.also_stop()


class AppRunner:
    """Runs in threads of this process. Also a context manager: started inside the block, stopped at its end.

    `failures` has the errors of consumers, and of the worker, that have ended by themselves.
    """

    def __init__(
        self,
        settings: Settings,
        consumers: Sequence[ConsumerSpec],
        jobs: Sequence[JobSpec],
        middleware: Middleware | None = None,
        **options: Unpack[WorkerOptions],
    ) -> None:
        _check_something(consumers, jobs)
        self._settings, self._jobs = settings, jobs
        self._consumers = Runner(settings, consumers) if consumers else None
        self._worker = _Worker(settings, jobs, middleware=middleware, **options) if jobs else None
        self._thread: threading.Thread | None = None
        self._ended: list[PgqError] = []

    @property
    def failures(self) -> list[PgqError]:
        return self._ended + (self._consumers.failures if self._consumers is not None else [])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
        self.join()

    def start(self) -> None:
        """Create job queues that are missing, register the consumers, start working and return."""
        self._begin()
        if self._worker is not None:
            self._thread = threading.Thread(target=self._work, args=(self._worker,), name="pgq-jobs", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop after what is running now; called twice, jobs are given back at once. From any thread."""
        if self._consumers is not None:
            self._consumers.stop()
        if self._worker is not None:
            self._worker.stop()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until all have stopped; False when the timeout (for each) passed first."""
        ended = self._consumers is None or self._consumers.join(timeout)
        if self._thread is not None:
            self._thread.join(timeout)
            ended = ended and not self._thread.is_alive()
        return ended

    def run(self) -> None:
        """Run until SIGTERM, SIGINT or `stop`, or with `drain` until there is no job left; then let what runs finish.

        Raises what is wrong from the start, and the error of the first that ended by itself.
        """
        if self._worker is None:
            if self._consumers is not None:
                self._consumers.run()
            return
        self._begin()
        if self._consumers is not None:
            self._worker.also_stop = self._consumers.stop
        try:
            self._worker.run()
        finally:
            self.stop()
            self.join()
        if self.failures:
            raise self.failures[0]

    def _begin(self) -> None:
        if self._jobs:
            with Client(settings=self._settings) as client:
                create_missing_queues(client, self._jobs)
        if self._consumers is not None:
            self._consumers.start()

    def _work(self, worker: Worker) -> None:
        try:
            worker.run()
        except PgqError as exc:
            logger.critical("the worker has ended: %s", exc)
            self._ended.append(exc)


class AsyncAppRunner:
    """Runs as tasks of the running event loop, and handlers that are plain functions in threads."""

    def __init__(
        self,
        settings: Settings,
        consumers: Sequence[ConsumerSpec],
        jobs: Sequence[JobSpec],
        middleware: Middleware | None = None,
        **options: Unpack[WorkerOptions],
    ) -> None:
        _check_something(consumers, jobs)
        self._settings, self._consumer_specs, self._jobs = settings, consumers, jobs
        self._consumers = AsyncRunner(settings, consumers) if consumers else None
        self._worker = _Worker(settings, jobs, middleware=middleware, **options) if jobs else None

    def stop(self) -> None:
        """As of `AppRunner`; from the event loop's own thread."""
        if self._consumers is not None:
            self._consumers.stop()
        if self._worker is not None:
            self._worker.stop()

    async def run(self) -> None:
        """Run until `stop` or, in the main thread, until SIGTERM or SIGINT; as of `AppRunner`."""
        if self._worker is None:
            if self._consumers is not None:
                await self._consumers.run()
            return
        async with AsyncClient(settings=self._settings) as client:
            there = {queue.queue_name for queue in await client.queues()}
            for queue, priorities in _missing(self._jobs, there):
                await client.create_job_queue(queue, priorities)
        if self._consumers is None:
            await self._worker.work()
            return
        await register_async(self._settings, self._consumer_specs)
        self._worker.also_stop = self._consumers.stop
        consuming = asyncio.create_task(self._consumers.work())
        try:
            await self._worker.work()
        finally:
            self._consumers.stop()
            await consuming


def create_missing_queues(client: Client, jobs: Sequence[JobSpec]) -> None:
    """Create the queues of these jobs that are not there, with the priorities that the jobs declare."""
    there = {queue.queue_name for queue in client.queues()}
    for queue, priorities in _missing(jobs, there):
        client.create_job_queue(queue, priorities)


def _missing(jobs: Sequence[JobSpec], there: set[str]) -> list[tuple[str, list[int]]]:
    """Queues that are to be created, each with its priorities. One that is there is left as it is: creating takes
    rights that a worker need not have."""
    wanted: dict[str, set[int]] = {}
    for spec in jobs:
        if spec.queue not in there:
            wanted.setdefault(spec.queue, set(PRIORITIES)).update(() if spec.priority is None else (spec.priority,))
    return [(queue, sorted(priorities, reverse=True)) for queue, priorities in wanted.items()]


def _check_something(consumers: Sequence[ConsumerSpec], jobs: Sequence[JobSpec]) -> None:
    if not consumers and not jobs:
        raise InvalidArgument(
            "there is no consumer to run, and no job",
            advice="Nothing was started. Decorate a function: @pgq.consumer or @pgq.job.",
        )
