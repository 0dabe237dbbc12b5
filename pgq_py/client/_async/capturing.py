"""Changes of tables as events: which tables, and into which queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pgq_py.client import queries
from pgq_py.client._async import calls
from pgq_py.client._async.connections import AsyncConnections
from pgq_py.client.checks import check_name
from pgq_py.client.encoding import plain_text
from pgq_py.types import CaptureInfo

__all__ = ["AsyncCapturing"]


class AsyncCapturing(AsyncConnections):
    """One method per database function; they need the right to create triggers on the table."""

    async def add_capture(
        self,
        queue: str,
        table: str,
        *,
        key: Sequence[str] | None = None,
        ignore: Sequence[str] | None = None,
        conn: Any = None,
    ) -> bool:
        """Put every change of a table into a queue, from the commit on; False when that was so and is now as given.

        `table` is a name as in SQL. `key` are the columns that identify a row, by default the primary key; `ignore`
        are columns that are left out, and whose changes alone are no event.
        """
        columns = [None if names is None else [plain_text(name, "column") for name in names] for names in (key, ignore)]
        parameters = [check_name(queue, "queue"), plain_text(table, "table"), *columns]
        async with self._connection(conn) as own:
            return bool(await calls.value(own, queries.ADD_CAPTURE, parameters))

    async def drop_capture(self, table: str, *, conn: Any = None) -> bool:
        """Put no more changes of a table into a queue; False when none were."""
        async with self._connection(conn) as own:
            return bool(await calls.value(own, queries.DROP_CAPTURE, [plain_text(table, "table")]))

    async def captures(self, queue: str | None = None, *, conn: Any = None) -> list[CaptureInfo]:
        """The tables whose changes go into a queue, or into any."""
        parameters = [None if queue is None else check_name(queue, "queue")]
        async with self._connection(conn) as own:
            return await calls.records(own, CaptureInfo, queries.CAPTURES, parameters)
