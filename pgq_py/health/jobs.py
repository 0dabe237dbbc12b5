"""What can be wrong with jobs: nobody works a queue, a priority starves, a worker has fallen silent, a schedule rests.

Whether a queue is worked is told by its claims, not by its workers: those of plain SQL send no heartbeats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from psycopg import Connection

from pgq_py.client import Client
from pgq_py.client._sync import calls
from pgq_py.client.job_rows import LaneInfo
from pgq_py.errors import InvalidArgument
from pgq_py.health import queries
from pgq_py.health.findings import Finding, Problem, quoted
from pgq_py.job_types import JobStats, WorkerInfo
from pgq_py.jobs.recurring import next_times

__all__ = ["Jobs", "job_findings", "job_problems", "look_at_jobs"]

RUN = "pgq run MODULE:OBJECT"


@dataclass(frozen=True, slots=True)
class Jobs:
    """All job queues at one moment of the database's clock."""

    stats: tuple[JobStats, ...] = ()
    lanes: tuple[LaneInfo, ...] = ()
    workers: tuple[WorkerInfo, ...] = ()
    now: datetime | None = None

    def last_claim(self, queue: str) -> float | None:
        """Seconds since a job of the queue was claimed; None when that is longer ago than is known."""
        ages = [self.age(lane.last_claim) for lane in self.lanes if lane.queue_name == queue]
        return min((age for age in ages if age is not None), default=None)

    def age(self, time: datetime | None) -> float | None:
        """Seconds since then."""
        return None if time is None or self.now is None else (self.now - time).total_seconds()


def look_at_jobs(client: Client, conn: Connection[Any]) -> Jobs:
    """In the caller's transaction."""
    return Jobs(
        tuple(client.job_stats(conn=conn)),
        tuple(client.lanes(conn=conn)),
        tuple(client.workers(conn=conn)),
        calls.value(conn, queries.NOW),
    )


def job_problems(jobs: Jobs, paused: Iterable[str], limit: float) -> Iterator[Problem]:
    """Queues that nobody works although a job has been waiting for `limit` seconds, and dead workers that nobody
    buries."""
    resting = set(paused)
    for stats in jobs.stats:
        waiting = _seconds(stats.oldest_pending)
        if stats.queue_name not in resting and waiting >= limit and _is_idle(jobs, stats.queue_name, limit):
            yield _unattended(jobs, stats, waiting)
    for worker in jobs.workers:
        silence = jobs.age(worker.last_beat)
        if worker.state == "silent" and worker.jobs and silence is not None and silence >= 3 * _seconds(worker.lease):
            yield _unburied(worker, silence)


def _is_idle(jobs: Jobs, queue: str, limit: float) -> bool:
    last = jobs.last_claim(queue)
    return last is None or last >= limit


def _unattended(jobs: Jobs, stats: JobStats, waiting: float) -> Problem:
    name = stats.queue_name
    number = f"{stats.pending}" if stats.pending_exact else f"about {stats.pending}"
    living = sum(worker.state == "alive" and name in worker.info.get("queues", ()) for worker in jobs.workers)
    workers = f"its {living} workers claim nothing" if living else "no worker of it sends heartbeats"
    return Problem(
        "jobs",
        name,
        name,
        f"nobody works queue {name}: {number} jobs wait, the oldest for {waiting:.0f} s; {workers}",
        f"Jobs are kept. Start a worker: `{RUN}` with the object that declares the jobs of this queue.",
        RUN,
    )


def _unburied(worker: WorkerInfo, silence: float) -> Problem:
    return Problem(
        "worker",
        None,
        worker.worker,
        f"worker {worker.worker} has been silent for {silence:.0f} s, and nobody gives its {worker.jobs} jobs away",
        "Jobs are kept. `pgq ticker` does it, and so does any worker: keep one running.",
        "pgq ticker",
    )


def job_findings(client: Client, jobs: Jobs, limit: float) -> Iterator[Finding]:
    """What is no error, but worth a word: priorities that starve, workers that were lost, jobs that were given up,
    schedules that nobody fires."""
    yield from _starving(jobs, limit)
    yield from _silent(jobs)
    yield from _given_up(jobs)
    yield from _resting(client, limit)


def _starving(jobs: Jobs, limit: float) -> Iterator[Finding]:
    """Lanes with an old job from which nothing is claimed, while others of the queue get workers."""
    for lane in jobs.lanes:
        waiting, last = _seconds(lane.waiting), jobs.age(lane.last_claim)
        if waiting < limit or (last is not None and last < limit) or _is_idle(jobs, lane.queue_name, limit):
            continue
        what = f"its next job has been waiting for {waiting:.0f} s, and workers claim from other priorities alone"
        if lane.priority == 0:
            what = f"a job that lost a worker has been waiting for {waiting:.0f} s for one that has nothing else to do"
        subject = f"queue {lane.queue_name}, priority {lane.priority}"
        yield Finding("warning", "lane", subject, f"{what}: there are too few workers", RUN)


def _silent(jobs: Jobs) -> Iterator[Finding]:
    for worker in jobs.workers:
        silence = jobs.age(worker.last_beat) or 0.0
        if worker.state == "silent":
            lease = _seconds(worker.lease)
            what = f"it has been silent for {silence:.0f} s of its lease of {lease:.0f} s, and has {worker.jobs} jobs"
            yield Finding("warning", "worker", f"worker {worker.worker}", what, "pgq worker ls")
        elif worker.state == "lost" and worker.ended_at is not None:
            at = worker.ended_at.astimezone()
            what = f"it was declared dead at {at:%Y-%m-%d %H:%M:%S}; others do its jobs"
            yield Finding("info", "worker", f"worker {worker.worker}", what, "pgq worker ls")


def _given_up(jobs: Jobs) -> Iterator[Finding]:
    for stats in jobs.stats:
        if stats.dead:
            what = f"{stats.dead} of its jobs were given up" if stats.dead > 1 else "one of its jobs was given up"
            mend = f"pgq jobs ls {quoted(stats.queue_name)} --state failed"
            yield Finding("warning", "dead_letters", f"queue {stats.queue_name}", what, mend)


def _resting(client: Client, limit: float) -> Iterator[Finding]:
    for schedule in client.schedules():
        subject = f"schedule {schedule.schedule_name}"
        try:
            due = next(next_times(schedule.cron, schedule.tz, schedule.last_due), None)
        except InvalidArgument as exc:
            mend = f"select pgq.drop_schedule('{schedule.schedule_name.replace(chr(39), chr(39) * 2)}')"
            yield Finding("error", "schedule", subject, f"it can never be due: {exc.message}", mend)
            continue
        if schedule.enabled and due is not None and schedule.now - due >= timedelta(seconds=limit):
            at = due.astimezone()
            what = f"it was due at {at:%Y-%m-%d %H:%M:%S}, and no worker of queue {schedule.queue_name} fires it"
            yield Finding("warning", "schedule", subject, what, RUN)


def _seconds(value: timedelta | None) -> float:
    return 0.0 if value is None else value.total_seconds()
