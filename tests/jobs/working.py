"""Workers for tests: in a thread of the test, with impatient settings, and jobs put in by plain SQL."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pgq_py.jobs.spec import JobSpec, job_spec
from pgq_py.jobs.worker import Worker
from pgq_py.settings import Settings, load_settings
from tests.clusters import Database

QUEUE = "jobs"


def settings(db: Database) -> Settings:
    return load_settings(dsn=db.dsn, application_name="pgq")


def make_queue(db: Database, queue: str = QUEUE, **config: Any) -> None:
    assert db.value("select pgq.create_job_queue(%s)", [queue]) == 1
    for name, value in config.items():
        db.value("select pgq.set_job_config(%s, %s, %s)", [queue, name, str(value)])


def spec(handler: Callable[..., Any], queue: str = QUEUE, **options: Any) -> JobSpec:
    """The handler as a job of that queue; its type is the function's name."""
    return job_spec(handler, queue, **options)


def enqueue(db: Database, kind: str, queue: str = QUEUE, *, priority: int | None = None, **arguments: Any) -> int:
    """One job; its id."""
    (row,) = db.rows("select id from pgq.enqueue(%s, %s, %s, %s)", [queue, kind, json.dumps(arguments), priority])
    return int(row[0])


def enqueue_many(db: Database, kind: str, payloads: Sequence[dict[str, Any]], queue: str = QUEUE) -> list[int]:
    jobs = json.dumps([{"type": kind, "payload": payload} for payload in payloads])
    return [row[0] for row in db.rows("select id from pgq.enqueue_many(%s, %s)", [queue, jobs])]


def state(db: Database, job: int, queue: str = QUEUE) -> str | None:
    value: str | None = db.value("select (pgq.get_job(%s, %s)).state", [queue, job])
    return value


def status(db: Database, job: int, queue: str = QUEUE) -> dict[str, Any]:
    """Everything that is known of a job."""
    value: dict[str, Any] = db.value("select to_jsonb(pgq.get_job(%s, %s))", [queue, job])
    return value


def worker(db: Database, *specs: JobSpec, **options: Any) -> Worker:
    return Worker(settings(db), specs, **{"grace": 5.0, **options})


@contextmanager
def running(db: Database, *specs: JobSpec, **options: Any) -> Iterator[Worker]:
    """A worker in a thread for the length of the block. What it raises, the block raises at its end."""
    one = worker(db, *specs, **options)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            one.run()
        except BaseException as exc:
            failures.append(exc)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield one
    finally:
        if not one.stopping:
            one.stop()
        thread.join(20)
        assert not thread.is_alive(), "the worker did not stop"
    if failures:
        raise failures[0]


def drain(db: Database, *specs: JobSpec, **options: Any) -> None:
    """Run a worker until nothing is left."""
    worker(db, *specs, drain=True, **options).run()
