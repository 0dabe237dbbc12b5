"""What a worker has in hand: claims, the jobs of them, and what is to be said of each.

These are made by the hundred thousand, so they are as plain as can be. All of it belongs to the event loop's thread; a
handler's thread only reads.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from pgq_py.jobs.context import ClaimedJob, JobContext, JobServices
from pgq_py.jobs.middleware import Call, Middleware
from pgq_py.jobs.spec import JobSpec

__all__ = ["Claim", "Handler", "Outcome", "Said", "Undecodable", "Work"]


class Handler:
    """A job's spec with what would be looked up anew for each of its jobs."""

    __slots__ = ("arguments", "call", "is_async", "spec", "timeout", "transactional")

    def __init__(self, spec: JobSpec, middleware: Middleware) -> None:
        self.spec = spec
        self.call: Call = middleware.bind(spec)
        self.is_async = spec.is_async
        self.timeout = spec.timeout
        self.transactional = spec.transactional
        self.arguments = spec.call_arguments


class Undecodable(Exception):
    """A payload with which the handler cannot be called, now or later."""


class Claim:
    """One claim of this worker.

    `left` counts its jobs that have no outcome yet. `done` are jobs that are done and not yet said to be. A `lost`
    claim is not this worker's any more: nothing is said of it.
    """

    __slots__ = ("done", "done_since", "id", "left", "lost", "queue", "size", "token", "worker")

    def __init__(self, id_: int, token: int, queue: str, worker: str) -> None:
        self.id, self.token, self.queue, self.worker = id_, token, queue, worker
        self.size = self.left = 0
        self.done: list[int] = []
        self.done_since = 0.0
        self.lost = False


class Work:
    """One job in hand. `lane` is the task that runs it, while one does; `timer` tells a function that time is up."""

    __slots__ = ("cancelled", "claim", "context", "handler", "job", "lane", "started", "timer")

    def __init__(self, claim: Claim, job: ClaimedJob, handler: Handler, services: JobServices) -> None:
        self.claim, self.job, self.handler = claim, job, handler
        self.context = JobContext(claim.queue, job, services, claim_id=claim.id)
        self.cancelled = False
        self.started = 0.0
        self.timer: asyncio.TimerHandle | None = None
        self.lane: asyncio.Task[Any] | None = None

    @property
    def timeout(self) -> float | None:
        """Its own, else that of its kind; seconds."""
        own: float | None = self.job.options.get("timeout")
        return self.handler.timeout if own is None else own

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """What the handler is called with. Raises Undecodable."""
        try:
            return self.handler.arguments(self.job.payload, self.context)
        except Exception as exc:
            raise Undecodable(str(exc)) from exc

    def request_cancel(self) -> None:
        """Somebody wants it to stop: a coroutine gets CancelledError, anything else is asked to look."""
        self.cancelled = True
        self.context.request_cancel()
        if self.lane is not None:
            self.lane.cancel()


@dataclass(frozen=True, slots=True)
class Said:
    """What is to be said of a job that is not simply done.

    completed  it is done, and has a result
    failed     with the reason; again after `delay` (None: by policy), or with `final` never
    snoozed    again after `delay`, uncounted
    released   at once for another worker, uncounted
    settled    nothing: its own transaction has completed it
    """

    kind: Literal["completed", "failed", "snoozed", "released", "settled"]
    reason: str = ""
    delay: timedelta | None = None
    final: bool = False
    result: str | None = None
    retention: timedelta | None = None


Outcome: TypeAlias = Said | None
"""None: it is done. Nearly all are, so that costs nothing."""
