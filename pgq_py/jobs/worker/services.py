"""What handlers ask of their worker while they run: progress, and `once`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from time import monotonic
from typing import Any

import psycopg

from pgq_py.client import job_queries
from pgq_py.client._async import calls as async_calls
from pgq_py.client._async.connections import AsyncConnections
from pgq_py.client._sync import calls
from pgq_py.client._sync.connections import Connections
from pgq_py.client.encoding import json_text
from pgq_py.errors import PgqError
from pgq_py.jobs import statements
from pgq_py.jobs.context import JobContext
from pgq_py.settings import Settings

__all__ = ["Services"]

logger = logging.getLogger("pgq_py.jobs")

PROGRESS_GAP = 0.25
"""Seconds between two words on the progress of one job."""


class Services:
    """`token` gives the token of a claim in hand, None for one that is not."""

    def __init__(self, settings: Settings, token: Callable[[int], int | None]) -> None:
        self._token = token
        self._loop = asyncio.get_running_loop()
        few = settings.model_copy(update={"pool_max_size": min(settings.pool_max_size, 4)})
        self._connections = Connections(settings=few)
        self._async_connections = AsyncConnections(settings=few)
        self._newest: dict[JobContext, list[Any]] = {}
        self._sent: dict[JobContext, float] = {}
        self._task: asyncio.Task[None] | None = None

    def progress(self, job: JobContext, percent: float | None, stage: str | None, data: Any) -> None:
        """Keep the newest word of each job; a task sends it."""
        text = None if data is None else json_text(data)
        with suppress(RuntimeError):  # the worker has ended without this job
            self._loop.call_soon_threadsafe(self._note, job, [percent, stage, text])

    def once(self, scope: str, key: str, window: timedelta) -> bool:
        with self._connections.transaction() as conn:
            return bool(calls.value(conn, job_queries.ONCE, [scope, key, window]))

    async def once_async(self, scope: str, key: str, window: timedelta) -> bool:
        async with self._async_connections.transaction() as conn:
            return bool(await async_calls.value(conn, job_queries.ONCE, [scope, key, window]))

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self._connections.close()
        await self._async_connections.aclose()

    def _note(self, job: JobContext, word: list[Any]) -> None:
        self._newest[job] = word
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._send())

    async def _send(self) -> None:
        """Send what there is, and what comes meanwhile."""
        while self._newest:
            now = monotonic()
            self._sent = {job: at for job, at in self._sent.items() if now - at < PROGRESS_GAP}
            for job in [job for job in self._newest if job not in self._sent]:
                self._sent[job] = now
                await self._send_one(job, self._newest.pop(job))
            if self._newest:
                await asyncio.sleep(PROGRESS_GAP / 5)

    async def _send_one(self, job: JobContext, word: list[Any]) -> None:
        token = self._token(job.claim_id)
        if token is None:
            return
        try:
            async with self._async_connections.transaction() as conn:
                await async_calls.rows(conn, statements.PROGRESS, [job.claim_id, token, job.id, *word])
        except (PgqError, psycopg.Error) as exc:
            # Also when the job came to its end meanwhile: it is only said how far it is.
            logger.debug("progress of job %s of %s was not kept: %s", job.id, job.queue, exc)
