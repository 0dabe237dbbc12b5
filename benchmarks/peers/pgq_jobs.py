"""This project: jobs, through SQL alone and through the Python worker."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from typing import Any, ClassVar

from benchmarks.peers.adapter import QUEUE, Handler
from benchmarks.peers.load import TYPE, Message, chunks
from benchmarks.peers.pgq_py import run_quietly
from benchmarks.peers.sqlbase import SqlAdapter

__all__ = ["PgqJobs", "PgqJobsSql"]

_NEXT = "select * from pgq.complete_and_claim(%s, %s, %s, null, %s)"
_WAITING = "select exists (select from pgq.get_lane_info(%s) where next_job is not null)"
_UNFINISHED = """
select exists (select from pgq.jobs(%s, 'running', null, 1)) or exists (select from pgq.jobs(%s, 'pending', null, 1))
"""


class PgqJobsSql(SqlAdapter):
    """A bare loop, to be compared with other bare loops; and with the worker, whose cost is the difference."""

    name = "pgq-py-jobs-sql"
    title = "pgq-py jobs (SQL)"
    unit = "job"
    kind = "ours"
    practice = "enqueue; enqueue_many of 1,000; a bare loop over complete_and_claim and claimed; LISTEN; `pgq ticker`"
    requirements: ClassVar[tuple[str, ...]] = ()
    can = frozenset({"single", "pipelined", "bulk", "jobs", "live"})
    schemas: ClassVar[tuple[str, ...]] = ("pgq",)

    @classmethod
    def missing(cls, options: Mapping[str, str]) -> str | None:
        del options
        from pgq_py import schema

        functions = Path(schema.__file__).with_name("functions")
        return None if list(functions.glob("*_claim.sql")) else "this version of pgq-py has no jobs"

    def install(self) -> None:
        from pgq_py import schema

        schema.install(self.conn)

    def versions(self) -> dict[str, str]:
        import pgq_py

        return {"pgq-py": pgq_py.__version__}

    def prepare(self, consumers: int = 0) -> None:
        del consumers
        self.value("select pgq.create_job_queue(%s)", [QUEUE])

    def send(self, message: Message) -> None:
        self.conn.execute("select pgq.enqueue(%s, %s, %s::jsonb)", (QUEUE, TYPE, message.text))

    def send_pipelined(self, batch: Sequence[Message]) -> None:
        self.pipeline("select pgq.enqueue(%s, %s, %s::jsonb)", [(QUEUE, TYPE, message.text) for message in batch])

    def send_bulk(self, batch: Sequence[Message]) -> None:
        for chunk in chunks(batch, 1_000):
            jobs = ",".join([f'{{"type":"{TYPE}","payload":{message.text}}}' for message in chunk])
            self.conn.execute("select count(*) from pgq.enqueue_many(%s, %s::jsonb)", (QUEUE, f"[{jobs}]"))

    def contents(self) -> Sequence[Any]:
        payloads: list[Any] = []
        stop = Event()
        self._loop(self.conn, payloads.append, stop, 10_000, stop.set)
        return payloads

    def clear(self) -> None:
        """`contents` has claimed and completed all; rotation truncates in its own time."""

    def work(self, handler: Handler, stop: Event, ready: Event, batch: int) -> None:
        with self.connect() as conn:
            (channel,) = conn.execute("select pgq.tick_channel(%s)", [QUEUE]).fetchone()
            conn.execute(f'listen "{channel}"')
            ready.set()
            self._loop(conn, handler, stop, batch, lambda: list(conn.notifies(timeout=1, stop_after=1)))

    def _loop(self, conn: Any, handler: Handler, stop: Event, batch: int, idle: Any) -> None:
        """Complete, claim, fetch, hand over; `idle` is called when there was nothing to claim."""
        claim, token = None, None
        while not stop.is_set() or claim is not None:
            size = batch if not stop.is_set() else 1
            claim, token, _ = conn.execute(_NEXT, (claim, token, QUEUE, size)).fetchone()
            if claim is None:
                idle()
                continue
            query = "select payload from pgq.claimed(%s, %s)"
            for (payload,) in conn.execute(query, (claim, token)).fetchall():
                handler(payload)

    def unfinished(self) -> bool:
        # asked every 20 ms beside the workers: the list of all jobs costs more than that, and only the end needs it
        return bool(self.value(_WAITING, (QUEUE,)) or self.value(_UNFINISHED, (QUEUE, QUEUE)))

    def background(self, stop: Event, ready: Event) -> list[int] | None:
        with run_quietly([sys.executable, "-m", "pgq_py", "ticker"], {"PGQ_DSN": self.dsn}) as process:
            ready.set()
            stop.wait()
            process.terminate()
        return None


class PgqJobs(PgqJobsSql):
    """The Python facade, with an asynchronous handler."""

    name = "pgq-py-jobs"
    title = "pgq-py jobs"
    framework = True
    practice = "@pgq.job, enqueue, enqueue_many; the worker of `pgq run` with slots for two claims; `pgq ticker`"
    can = frozenset({"single", "bulk", "jobs", "live"})
    _app: Any = None

    @classmethod
    def missing(cls, options: Mapping[str, str]) -> str | None:
        del options
        return None if find_spec("pgq_py.jobs") else "this version of pgq-py has no worker for jobs"

    def close(self) -> None:
        super().close()
        if self._app is not None:
            self._app.close()

    def _declared(self, handler: Handler | None = None) -> tuple[Any, Any]:
        """An application, and the job that is declared on it."""
        from pgq_py.app import PgQ

        pgq = PgQ(self.dsn)

        @pgq.job(QUEUE)
        async def noop(*, nr: int, due: float, customer: str, amount: float, state: str, items: list[int]) -> None:
            if handler is not None:
                handler({"nr": nr, "due": due, "customer": customer, "amount": amount, "state": state, "items": items})

        return pgq, noop

    @property
    def _job(self) -> Any:
        if self._app is None:
            self._app, self._noop = self._declared()
        return self._noop

    def send(self, message: Message) -> None:
        self._job.enqueue(**message.data)

    def send_bulk(self, batch: Sequence[Message]) -> None:
        self._job.enqueue_many([message.data for message in batch])

    def work(self, handler: Handler, stop: Event, ready: Event, batch: int) -> None:
        pgq, _ = self._declared(handler)
        # it claims when half of the slots are free, so that claims are of about `batch` jobs
        with pgq, pgq.runner(slots=2 * batch if batch > 1 else 1) as runner:
            ready.set()
            while not stop.wait(0.2):
                if runner.failures:
                    raise runner.failures[0]
