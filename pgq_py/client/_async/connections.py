"""Where a client's connections come from: the caller, the pool, or a log-in of their own.

Nothing is opened before it is needed, and nothing has to be opened by hand. The pool makes its connections in the
background, where a wrong password becomes a silent retry; so the first use logs in once by itself, and a mistake is
reported at once, in the server's words.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool
from tenacity import AsyncRetrying, RetryCallState, RetryError, retry_if_exception_type, wait_exponential

from pgq_py.client import queries
from pgq_py.client._async import calls
from pgq_py.client.acompat import AsyncLock, AsyncStop
from pgq_py.client.borrowed import borrow_async
from pgq_py.client.connecting import check_alive_async, connect_kwargs, is_pooled, note_backend
from pgq_py.errors import ConnectionFailed, InvalidArgument, translate
from pgq_py.settings import Settings, load_settings

__all__ = ["AsyncConnections", "connect_async", "connect_until_async"]

logger = logging.getLogger("pgq_py.client")


async def connect_async(settings: Settings, purpose: str) -> AsyncConnection[Any]:
    """A connection of its own for session state: autocommit, READ COMMITTED. The caller closes it."""
    with translate():
        conn = await AsyncConnection.connect(settings.conninfo, **connect_kwargs(settings, purpose))
    try:
        note_backend(conn, await calls.value(conn, queries.BACKEND_PID))
        if is_pooled(conn):
            conn.prepare_threshold = None
        else:
            await calls.command(conn, queries.OWN_SESSION)
    except BaseException:
        await conn.close()
        raise
    return conn


async def connect_until_async(settings: Settings, purpose: str, stop: AsyncStop) -> AsyncConnection[Any] | None:
    """The same, tried again (at first after 50 ms, later every second) until it succeeds; None when stopped first."""

    async def pause(seconds: float) -> None:
        await stop.sleep(seconds)

    def report(state: RetryCallState) -> None:
        if state.attempt_number == 1 and state.outcome is not None:
            logger.warning("%s: cannot connect, trying on: %s", purpose, state.outcome.exception())

    retrying = AsyncRetrying(
        retry=retry_if_exception_type(ConnectionFailed),
        wait=wait_exponential(multiplier=0.05, max=1),
        stop=lambda _: stop.is_set(),
        sleep=pause,
        before_sleep=report,
    )
    if stop.is_set():
        return None
    try:
        conn: AsyncConnection[Any] = await retrying(connect_async, settings, purpose)
    except RetryError:
        return None
    return conn


class AsyncConnections:
    """A lazily opened pool, and the two ways around it.

    `dsn` is a postgresql:// URL or libpq's `key=value` pairs; without it PGQ_DSN, pgq.toml, pyproject.toml and at last
    libpq's own environment decide. Use the object as a context manager, or `aclose()` it, to give the connections back.
    """

    def __init__(self, dsn: str | None = None, *, settings: Settings | None = None) -> None:
        if dsn is not None and settings is not None:
            raise InvalidArgument("give either a DSN or settings: settings have a DSN")
        self.settings = settings or load_settings(dsn=dsn)
        self._pool: AsyncConnectionPool[AsyncConnection[Any]] | None = None
        self._opening = AsyncLock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the pooled connections; the next call opens new ones."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    @asynccontextmanager
    async def transaction(self, conn: Any = None) -> AsyncIterator[AsyncConnection[Any]]:
        """A transaction on a pooled connection; pass what it yields as `conn=` to the calls that shall be part of it.

        It commits at the end of the block and rolls back when an exception leaves it. With `conn`, it is a transaction
        (or, inside one, a savepoint) on that connection.
        """
        async with self._connection(conn) as own, calls.transaction(own):
            yield own

    @asynccontextmanager
    async def _connection(self, conn: Any = None) -> AsyncIterator[AsyncConnection[Any]]:
        """The connection behind `conn`, or a pooled one for the length of the block."""
        if conn is not None:
            yield await borrow_async(conn)
            return
        pool = self._pool or await self._open_pool()
        with translate():
            own = await pool.getconn()
        try:
            yield own
        finally:
            await pool.putconn(own)

    async def _open_pool(self) -> AsyncConnectionPool[AsyncConnection[Any]]:
        async with self._opening:
            if self._pool is None:
                first = await connect_async(self.settings, "")
                await first.close()
                pool = self._new_pool(is_pooled(first))
                await pool.open()
                self._pool = pool
            return self._pool

    def _new_pool(self, behind_pooler: bool) -> AsyncConnectionPool[AsyncConnection[Any]]:
        """Prepared statements are a session's own, so there are none behind a pooler."""
        unprepared = {"prepare_threshold": None} if behind_pooler else {}
        return AsyncConnectionPool(
            self.settings.conninfo,
            kwargs={**connect_kwargs(self.settings), **unprepared},
            min_size=1,
            max_size=self.settings.pool_max_size,
            timeout=self.settings.connect_timeout,
            check=check_alive_async,
            open=False,
        )
