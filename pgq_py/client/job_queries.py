"""The statements about jobs, but for those that workers run; as in `queries`."""

from __future__ import annotations

from typing import Final

from psycopg.sql import SQL

__all__ = [
    "CANCEL",
    "CREATE_JOB_QUEUE",
    "DECLARE_PRIORITY",
    "DROP_SCHEDULE",
    "ENQUEUE",
    "ENQUEUER_FUNCTION",
    "ENQUEUE_AT",
    "ENQUEUE_MANY",
    "ENQUEUE_PLAIN",
    "FROM_NOW",
    "GRANT_WORK",
    "JOB",
    "JOBS",
    "JOB_STATS",
    "ONCE",
    "RESULT",
    "RESULT_CHANNEL",
    "RETRY_JOBS",
    "REVOKE_WORK",
    "SCHEDULES",
    "SET_JOB_CONFIG",
    "SET_SCHEDULE",
    "WORKERS",
]

CREATE_JOB_QUEUE: Final = "select pgq.create_job_queue(%s, %s::int4[])"
"""Name, priorities: 1 when new, 0 when it was there."""

DECLARE_PRIORITY: Final = "select pgq.declare_priority(%s, %s)"
"""Queue, priority: 1 when new, 0 when it was there."""

SET_JOB_CONFIG: Final = "select pgq.set_job_config(%s, %s, %s)"
"""Queue, setting, value as text."""

ENQUEUE: Final = "select id, created from pgq.enqueue(%s, %s, %s::jsonb, %s::int4, options => %s::jsonb)"
"""Queue, type, payload, priority, options: one job without key, for now."""

ENQUEUER_FUNCTION: Final = "select pgq.enqueuer_function(%s)"
"""Name of the function that enqueues into one queue."""

ENQUEUE_PLAIN: Final = SQL("select pgq.{}(%s, %s::jsonb::text, %s::int4, null), true")
"""Type, payload, priority: one job with neither key, time nor options, through its queue's function (an Identifier)."""

ENQUEUE_AT: Final = (
    "select id, created from pgq.enqueue(%s, %s, %s::jsonb, %s::int4, "
    "coalesce(%s::timestamptz, clock_timestamp() + %s::interval), %s, %s::interval, %s::jsonb)"
)
"""Queue, type, payload, priority, time or (when that is null) interval, key, window of the key, options."""

ENQUEUE_MANY: Final = "select id, created from pgq.enqueue_many(%s, %s::jsonb)"
"""Queue, array of jobs: a row per job, in their order."""

FROM_NOW: Final = "select clock_timestamp() + %s"
"""The time after an interval, by the clock that decides when jobs are due."""

GRANT_WORK: Final = "select pgq.grant_work(%s, %s)"
"""Queue, role: it may work the queue's jobs; 0 when it was granted already."""

REVOKE_WORK: Final = "select pgq.revoke_work(%s, %s)"
"""Undo that; 0 when it was not granted."""

CANCEL: Final = "select job_id, outcome from pgq.cancel(%s, %s::bigint[])"
"""Queue, jobs: what became of each."""

RETRY_JOBS: Final = "select pgq.retry_jobs(%s, %s::bigint[])"
"""Queue, jobs that were given up: how many run again."""

JOB: Final = "select * from pgq.get_job(%s, %s) where id is not null"
"""Queue, job: its status, or no row."""

JOBS: Final = "select * from pgq.jobs(%s, %s, %s, %s, %s)"
"""Queue, state and type (null: any), at most so many, with ids below the given one (null: all); newest first."""

RESULT: Final = "select state, result, error from pgq.get_result(%s, %s)"
"""Queue, job: its state, and its result when it has one."""

RESULT_CHANNEL: Final = "select replace(pgq.tick_channel(%s), 'tick', 'result')"
"""The channel on which results of a queue's jobs are announced."""

JOB_STATS: Final = "select * from pgq.get_job_stats(%s)"
"""Counts of one job queue, or of all (null)."""

WORKERS: Final = "select * from pgq.get_worker_info()"
"""Workers that send heartbeats."""

ONCE: Final = "select pgq.once(%s, %s, %s)"
"""Scope, key, window: true for the first call within the window."""

SET_SCHEDULE: Final = "select pgq.set_schedule(%s, %s, %s, %s, %s, %s::jsonb, %s, %s::jsonb, %s, %s, %s)"
"""Name, queue, type, cron, time zone, payload, priority, options, catch-up, its limit, enabled: 1 when new."""

DROP_SCHEDULE: Final = "select pgq.drop_schedule(%s)"
"""1, or 0 when there was none."""

SCHEDULES: Final = "select * from pgq.get_schedules(%s)"
"""One recurring job, or all (null)."""
