"""The values that calls about jobs return; as in `types`, each mirrors a database function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, TypeAlias

__all__ = [
    "Enqueued",
    "JobProgress",
    "JobState",
    "JobStats",
    "JobStatus",
    "NewJob",
    "Schedule",
    "WorkerInfo",
]

JobState: TypeAlias = Literal["scheduled", "pending", "running", "retrying", "completed", "failed", "cancelled"]
"""Where a job is. The last three are final, but that a failed one can be run again."""


class Enqueued(NamedTuple):
    """A job that was enqueued, or with `created=False` the one that has its key already."""

    id: int
    created: bool


class NewJob(NamedTuple):
    """One job to be enqueued in bulk. `payload` is any JSON value; `options` as of `pgq.enqueue`."""

    type: str
    payload: Any = None
    priority: int | None = None
    run_at: datetime | None = None
    key: str | None = None
    key_window: timedelta | None = None
    options: Mapping[str, Any] | None = None


class JobProgress(NamedTuple):
    """How far a running job is, in its own words."""

    percent: float | None = None
    stage: str | None = None
    data: Any = None


@dataclass(frozen=True, slots=True)
class JobStatus:
    """What has become of a job (`get_job`).

    `attempt` counts from 1, `priority` is 0 when the job lost a worker, `payload` is JSON text. What does not apply is
    None.
    """

    queue_name: str
    id: int
    type: str
    state: JobState
    priority: int
    attempt: int
    max_attempts: int
    losses: int
    key: str | None
    created_at: datetime
    run_at: datetime | None
    claimed_at: datetime | None
    finished_at: datetime | None
    worker: str | None
    claim_id: int | None
    cancel_requested: bool
    error: str | None
    progress: Mapping[str, Any] | None
    payload: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class JobStats:
    """Counts of one job queue (`get_job_stats`): what waits and runs now, and finishes of every kind, ever.

    `pending` is an estimate when `pending_exact` is False; `dead` counts dead letters now.
    """

    queue_name: str
    pending: int
    pending_exact: bool
    scheduled: int
    retrying: int
    running: int
    completed: int
    failed: int
    cancelled: int
    retried: int
    lost: int
    dead: int
    oldest_pending: timedelta | None


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker that sends heartbeats, or ended within a day (`get_worker_info`); it holds so many claims and jobs."""

    worker: str
    state: Literal["alive", "silent", "stopped", "lost"]
    started_at: datetime
    last_beat: datetime | None
    ended_at: datetime | None
    lease: timedelta
    claims: int
    jobs: int
    info: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Schedule:
    """A recurring job (`get_schedules`). Due times up to `last_due` are done with; `now` is the database's clock."""

    schedule_name: str
    queue_name: str
    type: str
    payload: Any
    cron: str
    tz: str
    catch_up: Literal["none", "latest", "all"]
    max_catch_up: int
    enabled: bool
    last_due: datetime
    now: datetime
