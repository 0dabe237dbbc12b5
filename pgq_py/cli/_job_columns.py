"""The columns of jobs, job queues and workers, for the verbs that show them."""

from __future__ import annotations

from typing import Any

from pgq_py.cli._output import Column, duration, ident, seconds
from pgq_py.client.job_rows import LaneInfo
from pgq_py.job_types import JobStats, JobStatus, WorkerInfo

__all__ = ["JOB", "JOBS", "LANES", "STATS", "WORKERS", "percent", "stage"]


def percent(job: JobStatus) -> float | None:
    """How far the job says it is, 0 to 100."""
    found: float | None = _said(job, "percent")
    return found


def stage(job: JobStatus) -> str | None:
    """What the job says it is doing."""
    found: str | None = _said(job, "stage")
    return found


def _said(job: JobStatus, what: str) -> Any:
    return (job.progress or {}).get(what)


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]


_FIRST = (
    Column[JobStatus]("id", lambda j: ident(j.id)),
    Column[JobStatus]("type", lambda j: j.type),
    Column[JobStatus]("state", lambda j: j.state),
    Column[JobStatus]("priority", lambda j: j.priority),
    Column[JobStatus]("attempt", lambda j: j.attempt),
)
_TIMES = (
    Column[JobStatus]("created_at", lambda j: j.created_at),
    Column[JobStatus]("run_at", lambda j: j.run_at),
    Column[JobStatus]("claimed_at", lambda j: j.claimed_at),
    Column[JobStatus]("finished_at", lambda j: j.finished_at),
)

JOBS = (
    *_FIRST,
    Column[JobStatus]("percent", percent, "{:.0f} %".format),
    *_TIMES,
    Column[JobStatus]("error", lambda j: j.error, _last_line),
)
"""Of a list."""

JOB = (
    Column[JobStatus]("queue", lambda j: j.queue_name),
    *_FIRST,
    Column[JobStatus]("max_attempts", lambda j: j.max_attempts),
    Column[JobStatus]("losses", lambda j: j.losses, quiet=True),
    Column[JobStatus]("key", lambda j: j.key),
    *_TIMES,
    Column[JobStatus]("worker", lambda j: j.worker),
    Column[JobStatus]("claim", lambda j: ident(j.claim_id)),
    Column[JobStatus]("cancel_requested", lambda j: j.cancel_requested, quiet=True),
    Column[JobStatus]("percent", percent, "{:.0f} %".format),
    Column[JobStatus]("stage", stage),
    Column[JobStatus]("error", lambda j: j.error),
    Column[JobStatus]("payload", lambda j: j.payload),
)
"""Of one job; its options and the data of its progress are JSON, and shown by themselves."""

STATS = (
    Column[JobStats]("queue", lambda s: s.queue_name),
    Column[JobStats]("pending", lambda s: s.pending),
    Column[JobStats]("pending_exact", lambda s: s.pending_exact),
    Column[JobStats]("oldest_pending_seconds", lambda s: seconds(s.oldest_pending), duration),
    Column[JobStats]("running", lambda s: s.running),
    Column[JobStats]("scheduled", lambda s: s.scheduled),
    Column[JobStats]("retrying", lambda s: s.retrying),
    Column[JobStats]("completed", lambda s: s.completed),
    Column[JobStats]("failed", lambda s: s.failed),
    Column[JobStats]("cancelled", lambda s: s.cancelled, quiet=True),
    Column[JobStats]("retried", lambda s: s.retried, quiet=True),
    Column[JobStats]("lost", lambda s: s.lost, quiet=True),
    Column[JobStats]("dead_letters", lambda s: s.dead, quiet=True),
)

LANES = (
    Column[LaneInfo]("queue", lambda lane: lane.queue_name),
    Column[LaneInfo]("priority", lambda lane: lane.priority),
    Column[LaneInfo]("next_job", lambda lane: ident(lane.next_job)),
    Column[LaneInfo]("waiting_seconds", lambda lane: seconds(lane.waiting), duration),
    Column[LaneInfo]("last_claim", lambda lane: lane.last_claim),
)

WORKERS = (
    Column[WorkerInfo]("worker", lambda w: w.worker),
    Column[WorkerInfo]("state", lambda w: w.state),
    Column[WorkerInfo]("jobs", lambda w: w.jobs),
    Column[WorkerInfo]("claims", lambda w: w.claims),
    Column[WorkerInfo]("started_at", lambda w: w.started_at),
    Column[WorkerInfo]("last_beat", lambda w: w.last_beat),
    Column[WorkerInfo]("ended_at", lambda w: w.ended_at),
    Column[WorkerInfo]("lease_seconds", lambda w: seconds(w.lease), duration),
)
