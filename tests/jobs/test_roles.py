"""Enqueueing, working and neither, each as a role of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from pydantic import SecretStr

from pgq_py import PermissionDenied
from pgq_py.app import PgQ
from tests.clusters import Database


@pytest.fixture
def as_role(pgq: PgQ, db: Database) -> Iterator[Callable[[str], PgQ]]:
    """A facade that logs in as a role without any right."""
    with ExitStack() as stack:

        def facade(name: str) -> PgQ:
            role = f"{db.name}_{name}"
            db.rows(f"create role {role} login")
            stack.callback(db.rows, f"drop role {role}")
            stack.callback(db.rows, f"drop owned by {role}")
            return stack.enter_context(
                PgQ(settings=pgq.settings.model_copy(update={"dsn": SecretStr(db.dsn_for(role))}))
            )

        yield facade


def attempts(app: PgQ, job: Any, job_id: int) -> list[Callable[[], Any]]:
    """What takes the right to enqueue, or more."""
    return [
        lambda: job.enqueue("x"),
        lambda: job.enqueue_many(["x"]),
        lambda: app.cancel_jobs("emails", [job_id]),
        lambda: app.create_job_queue("mine"),
    ]


def test_enqueueing_and_working_are_two_rights(pgq: PgQ, db: Database, as_role: Callable[[str], PgQ]) -> None:
    producer, worker, nobody = as_role("producer"), as_role("worker"), as_role("nobody")
    pgq.grant_produce("emails", f"{db.name}_producer")
    assert [pgq.grant_work("emails", f"{db.name}_worker") for _ in range(2)] == [True, False]
    ran: list[str] = []

    def mail(address: str) -> None:
        ran.append(address)

    producing, working, neither = (app.job("emails")(mail) for app in (producer, worker, nobody))
    handle = producing.enqueue("a")
    producing.enqueue_many(["b", "c"])
    for app, job in ((worker, working), (nobody, neither)):
        for attempt in attempts(app, job, handle.id):
            with pytest.raises(PermissionDenied):
                attempt()
    with pytest.raises(PermissionDenied):
        neither.handle(handle.id).status()
    worker.run(drain=True)
    assert ran == ["a", "b", "c"]
    status = handle.status()
    assert status is not None
    assert status.state == "completed"
    assert [pgq.revoke_work("emails", f"{db.name}_worker") for _ in range(2)] == [True, False]
