"""Run one named statement on one connection.

Every statement of the package goes through here, so that each psycopg error is translated once, and so that a borrowed
connection's row factory, cursor class or output format does not matter.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypeVar

from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import AsyncRowFactory, class_row, scalar_row, tuple_row
from psycopg.sql import SQL, Composed

from pgq_py.errors import translate

__all__ = ["command", "records", "rows", "transaction", "value", "values"]

T = TypeVar("T")

Query: TypeAlias = str | SQL | Composed


async def command(conn: AsyncConnection[Any], query: Query, params: Sequence[Any] = ()) -> None:
    """Run a statement whose result does not matter."""
    with translate():
        async with AsyncCursor(conn) as cursor:
            await cursor.execute(query, params or None)


async def value(conn: AsyncConnection[Any], query: Query, params: Sequence[Any] = ()) -> Any:
    """The first column of the only row."""
    (first,) = await _rows(conn, scalar_row, query, params)
    return first


async def values(conn: AsyncConnection[Any], query: Query, params: Sequence[Any] = ()) -> list[Any]:
    """The first column of every row."""
    return await _rows(conn, scalar_row, query, params)


async def records(conn: AsyncConnection[Any], kind: type[T], query: Query, params: Sequence[Any] = ()) -> list[T]:
    """Every row as a `kind`, whose fields are the statement's columns."""
    return await _rows(conn, class_row(kind), query, params)


async def rows(conn: AsyncConnection[Any], query: Query, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Every row as a tuple."""
    return await _rows(conn, tuple_row, query, params)


@asynccontextmanager
async def transaction(conn: AsyncConnection[Any]) -> AsyncIterator[None]:
    """`conn.transaction()` whose own statements are translated; what the body raises passes as it is."""
    manager = conn.transaction()
    with translate():
        await manager.__aenter__()
    try:
        yield
    except BaseException as exc:
        if not await manager.__aexit__(type(exc), exc, exc.__traceback__):
            raise
    else:
        with translate():
            await manager.__aexit__(None, None, None)


async def _rows(
    conn: AsyncConnection[Any], factory: AsyncRowFactory[T], query: Query, params: Sequence[Any]
) -> list[T]:
    with translate():
        async with AsyncCursor(conn, row_factory=factory) as cursor:
            await cursor.execute(query, params or None)
            return await cursor.fetchall()
