"""Connections in other libraries' wrappings. The wrappings are small doubles with those libraries' attribute names."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from pgq_py import InvalidArgument
from pgq_py.app import PgQ
from pgq_py.client.borrowed import borrow, borrow_async
from tests.clusters import Database


class PoolProxy:
    """SQLAlchemy's _ConnectionFairy: `driver_connection` is the driver's own, the rest is passed on."""

    def __init__(self, driver_connection: Any) -> None:
        self.driver_connection = driver_connection


class AlchemyConnection:
    """SQLAlchemy's Connection: the pool's proxy is an attribute."""

    def __init__(self, driver_connection: Any) -> None:
        self.connection = PoolProxy(driver_connection)


class AlchemySession:
    """SQLAlchemy's Session: `connection()` is a method."""

    def __init__(self, driver_connection: Any) -> None:
        self._connection = AlchemyConnection(driver_connection)

    def connection(self) -> AlchemyConnection:
        return self._connection


class AsyncAlchemyConnection:
    """SQLAlchemy's AsyncConnection: `connection` raises, one has to ask."""

    def __init__(self, driver_connection: Any) -> None:
        self._proxy = PoolProxy(driver_connection)

    @property
    def connection(self) -> Any:
        raise RuntimeError("not implemented: use get_raw_connection()")

    async def get_raw_connection(self) -> PoolProxy:
        return self._proxy


class AsyncAlchemySession:
    """SQLAlchemy's AsyncSession: `connection()` is a coroutine function."""

    def __init__(self, driver_connection: Any) -> None:
        self._connection = AsyncAlchemyConnection(driver_connection)

    async def connection(self) -> AsyncAlchemyConnection:
        return self._connection


@pytest.mark.newest
def test_every_sync_wrapping(db: Database) -> None:
    conn = db.connect()
    django = SimpleNamespace(connection=conn)
    for wrapped in (conn, conn.cursor(), AlchemyConnection(conn), AlchemySession(conn), PoolProxy(conn), django):
        assert borrow(wrapped) is conn


@pytest.mark.newest
def test_every_async_wrapping(db: Database) -> None:
    async def check() -> None:
        async with await psycopg.AsyncConnection.connect(db.dsn) as conn:
            for wrapped in (conn, conn.cursor(), AsyncAlchemyConnection(conn), AsyncAlchemySession(conn)):
                assert await borrow_async(wrapped) is conn
            with pytest.raises(InvalidArgument, match="async connection"):
                borrow(AlchemySession(conn))

    asyncio.run(check())


@pytest.mark.newest
def test_a_sync_connection_is_no_async_one(db: Database) -> None:
    with pytest.raises(InvalidArgument, match="sync connection"):
        asyncio.run(borrow_async(db.connect()))


@pytest.mark.parametrize(
    "wrong", [object(), "postgresql:///shop", AlchemySession(object()), SimpleNamespace(connection=None)]
)
def test_another_driver_is_a_clear_error(wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="no psycopg 3 connection"):
        borrow(wrong)
    with pytest.raises(InvalidArgument, match="no psycopg 3 connection"):
        asyncio.run(borrow_async(wrong))


def test_an_event_in_a_sessions_transaction(pgq: PgQ, db: Database) -> None:
    conn = db.connect(autocommit=False)
    session = AlchemySession(conn)
    pgq.send("orders", "rolled back", conn=session)
    conn.rollback()
    pgq.send("orders", "kept", conn=session)
    assert pgq.send_many("orders", ["kept too"], conn=session) == 1
    conn.commit()
    pgq.tick("orders")
    assert [event.data for event in pgq.receive("orders", "mailer")] == ["kept", "kept too"]
