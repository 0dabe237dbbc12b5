"""The worker pool: for every tenth account a transfer enqueues a job, which writes a receipt exactly once."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from pgq_py.demo import statements
from pgq_py.jobs import JobContext
from pgq_py.jobs.spec import job_spec
from pgq_py.jobs.worker import Worker
from pgq_py.settings import Settings

__all__ = ["Workers"]

POOL = 2
SLOTS = 4


class Workers:
    """Workers in threads, for the length of the block.

    `done` is for the display: runs that came to their end, also if their transaction did not. What is proved at the end
    is what they committed.
    """

    def __init__(self, settings: Settings) -> None:
        self.done = 0

        def receipt(job: JobContext, aid: int, delta: int) -> None:
            job.connection.execute(statements.NOTE_RECEIPT, [job.id, aid, delta])
            self.done += 1

        spec = job_spec(receipt, statements.JOBS, transactional=True)
        self._workers = [Worker(settings, [spec], slots=SLOTS) for _ in range(POOL)]
        self._threads = [threading.Thread(target=worker.run, daemon=True) for worker in self._workers]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        for worker in self._workers:
            worker.stop()
        for thread in self._threads:
            thread.join()
