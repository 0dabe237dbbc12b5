"""Hooks and wrap-around middleware, for both kinds of functions; run inline, so that they are called as by a worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from pgq_py import InvalidArgument, JobContext
from pgq_py.app import AsyncPgQ, PgQ
from pgq_py.testing import on_database
from tests.clusters import Database


def declare(pgq: PgQ | AsyncPgQ) -> list[str]:
    """Every kind of hook; what they did."""
    did: list[str] = []

    @pgq.around_job
    @contextmanager
    def outer(ctx: JobContext) -> Iterator[None]:
        did.append(f"outer {ctx.type}")
        try:
            yield
        finally:
            did.append("outer end")

    @pgq.around_job
    @contextmanager
    def inner(ctx: JobContext) -> Iterator[None]:
        did.append("inner")
        yield
        did.append("inner end")

    @pgq.before_job
    def before(ctx: JobContext) -> None:
        did.append(f"before {ctx.attempt}")

    @pgq.after_job
    def after(ctx: JobContext, result: object) -> None:
        did.append(f"after {result}")

    @pgq.on_job_failure
    def failure(ctx: JobContext, error: Exception) -> None:
        did.append(f"failure {error!r}")

    return did


GOOD = ["outer half", "inner", "before 1", "after 21", "inner end", "outer end"]
BAD = ["outer half", "inner", "before 1", "outer end", "failure TypeError('odd')"]


def test_around_a_plain_function(pgq: PgQ, db: Database) -> None:
    did = declare(pgq)

    @pgq.job("emails")
    def half(number: int) -> int:
        if number % 2:
            raise TypeError("odd")
        return number // 2

    with on_database(pgq, db.dsn) as jobs:
        assert jobs.run_inline(half, 42) == 21
        assert did == GOOD
        did.clear()
        with pytest.raises(TypeError):
            jobs.run_inline(half, 41)
        assert did == BAD


def test_around_a_coroutine_function(db: Database) -> None:
    app = AsyncPgQ(db.dsn)
    did = declare(app)

    @app.around_job
    @asynccontextmanager
    async def innermost(ctx: JobContext) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        yield

    @app.after_job
    async def later(ctx: JobContext, result: object) -> None:
        await asyncio.sleep(0)
        did.append("later")

    @app.job("emails")
    async def half(number: int) -> int:
        if number % 2:
            raise TypeError("odd")
        return number // 2

    with on_database(app, db.dsn) as jobs:
        assert jobs.run_inline(half, 42) == 21
        assert did == [*GOOD[:4], "later", *GOOD[4:]]
        did.clear()
        with pytest.raises(TypeError):
            jobs.run_inline(half, 41)
        assert did == BAD


@pytest.mark.parametrize("kind", ["before_job", "after_job", "on_job_failure", "around_job"])
def test_an_async_hook_of_a_plain_function_is_refused_at_the_start(pgq: PgQ, kind: str) -> None:
    @pgq.job("emails")
    def mail() -> None: ...

    async def hook(*_: object) -> None: ...

    @asynccontextmanager
    async def manager(ctx: JobContext) -> AsyncIterator[None]:
        yield

    getattr(pgq, kind)(manager if kind == "around_job" else hook)
    with pytest.raises(InvalidArgument, match="asynchronous"):
        pgq.runner()


def test_snoozing_is_no_failure(pgq: PgQ, db: Database) -> None:
    did = declare(pgq)

    @pgq.job("emails")
    def mail(ctx: JobContext) -> None:
        ctx.snooze(3)

    with on_database(pgq, db.dsn) as jobs, pytest.raises(Exception, match="snoozed"):
        jobs.run_inline(mail)
    assert did == ["outer mail", "inner", "before 1", "outer end"]
