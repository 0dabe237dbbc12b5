"""Registering a runner's consumers, at its start and when one of them is no longer registered.

Starting says: from now on. So it registers what is not, also a consumer that was evicted earlier, and says what that
one has missed. While it runs, an eviction is another matter: events were lost to this consumer, which somebody should
know, so it stops unless it was told to go on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from psycopg import AsyncConnection, Error
from psycopg.errors import Diagnostic

from pgq_py.client import queries
from pgq_py.client._async import calls
from pgq_py.client._async.connections import connect_async
from pgq_py.client.rows import retry_policy_parameters
from pgq_py.consumers.spec import ConsumerSpec
from pgq_py.errors import ConsumerNotRegistered
from pgq_py.settings import Settings

__all__ = ["readmit_async", "register_async"]

logger = logging.getLogger("pgq_py.consumers")


async def register_async(settings: Settings, specs: Iterable[ConsumerSpec]) -> None:
    """Register the consumers that are not; raises what is wrong with the server, the schema or a queue."""
    conn = await connect_async(settings, "")
    try:
        for spec in specs:
            await _register(conn, spec)
    finally:
        await conn.close()


async def readmit_async(conn: AsyncConnection[Any], spec: ConsumerSpec, exc: ConsumerNotRegistered) -> None:
    """Register a consumer again that was found not to be. Raises the error, when it was evicted and is to stop then."""
    cause = exc.__cause__
    eviction = cause.diag.message_detail if isinstance(cause, Error) else None
    if eviction:
        logger.error("%s/%s: %s", spec.queue, spec.name, eviction)
        if spec.on_evicted == "stop":
            raise exc
    else:
        logger.warning("%s/%s: is not registered any more; registering it again", spec.queue, spec.name)
    await _register(conn, spec)


async def _register(conn: AsyncConnection[Any], spec: ConsumerSpec) -> None:
    """The registration and the retry policy, together."""

    def tell(notice: Diagnostic) -> None:
        logger.error("%s/%s: %s", spec.queue, spec.name, notice.message_primary)

    conn.add_notice_handler(tell)
    async with calls.transaction(conn):
        if await calls.value(conn, queries.REGISTER_CONSUMER, [spec.queue, spec.name]):
            logger.info("%s/%s: registered; it reads what is sent from now on", spec.queue, spec.name)
        if spec.retries is not None:
            parameters = [spec.queue, spec.name, *retry_policy_parameters(spec.retries)]
            await calls.value(conn, queries.SET_RETRY_POLICY, parameters)
    conn.remove_notice_handler(tell)
