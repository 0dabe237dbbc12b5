"""Every statement that workers and recurring jobs run.

Nearly all are calls of database functions, whose reference says the rest.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "CANCEL_CHANNEL",
    "CLAIMED",
    "COMPLETE",
    "COMPLETE_ALL",
    "COMPLETE_MANY",
    "END_WORKER",
    "FAIL",
    "FIRE_SCHEDULE",
    "HEARTBEAT",
    "PROGRESS",
    "RECOVER",
    "RELEASE",
    "SCHEDULES",
    "SET_RESULT",
    "SNOOZE",
    "SOLO_WAITS",
    "TAKE",
    "TAKER_FUNCTION",
]

TAKER_FUNCTION: Final = "select pgq.taker_function(%s)"
"""Queue: name of its own function that claims."""

TAKE: Final = (
    "select claim_id, token, dry, job_id, type, payload, priority, attempt, max_attempts, losses, created_at, key, "
    "case when options <> '{{}}' then options end"
    " from set_config('synchronous_commit', 'off', true), pgq.{}(%s, %s, %s, %s, %s)"
)
"""That function: worker, how many, priority that is likely, idle, the last `dry`. A claim, in which tick nothing waited
any more, and the jobs in the columns of ClaimedJob; or in one row the claim alone, or no claim.

The commit does not wait for the disk: a crash of the server may take claims of the last moments along, and their jobs
run again. The tokens tell the runs apart, and only one of them completes."""

CLAIMED: Final = (
    "select job_id, type, payload, priority, attempt, max_attempts, losses, created_at, key, "
    "case when options <> '{}' then options end from pgq.claimed(%s, %s)"
)
"""Claim and token: its unfinished jobs in the columns of ClaimedJob; options are null for none."""

SOLO_WAITS: Final = "select pgq.solo_waits(%s)"
"""Queue: whether a job that lost a worker waits for one that has nothing else to do."""

COMPLETE_MANY: Final = "select pgq.complete(c, t) from unnest(%s::int8[], %s::int8[]) u(c, t)"
"""Claims and tokens: all that is left of them is done."""

COMPLETE: Final = "select pgq.complete(%s, %s, %s::int8[])"
"""Claim, token, jobs."""

COMPLETE_ALL: Final = "select pgq.complete(%s, %s)"
"""Claim, token: all that is left of it is done."""

FAIL: Final = "select pgq.fail(%s, %s, %s, %s, %s, %s)"
"""Claim, token, job, error, after which time (null: by policy), retryable; what became of it."""

SNOOZE: Final = "select pgq.snooze(%s, %s, %s, %s)"
"""Claim, token, job, for how long."""

RELEASE: Final = "select pgq.release(%s, %s, %s::int8[])"
"""Claim, token, jobs: others get them."""

SET_RESULT: Final = "select pgq.set_result(%s, %s, %s, %s::jsonb, %s)"
"""Claim, token, job, result, how long it is kept; in the transaction that completes the job."""

PROGRESS: Final = "select pgq.progress(%s, %s, %s, %s, %s, %s::jsonb)"
"""Claim, token, job, percent, stage, data."""

HEARTBEAT: Final = "select claim_id, job_id from pgq.heartbeat(%s, %s::int8[], %s, %s, %s)"
"""Worker, claims it has, lease, what it says of itself, whether it can have no other claims: jobs that
somebody wants to cancel."""

RECOVER: Final = "select pgq.recover()"
"""Give the jobs of dead workers to others."""

END_WORKER: Final = "select pgq.end_worker(%s)"
"""Worker: it stops, and what it still has is given back."""

CANCEL_CHANNEL: Final = "select replace(pgq.tick_channel(%s), 'tick', 'cancel')"
"""Queue: where wishes to cancel a running job are notified, as "<claim> <job>"."""

SCHEDULES: Final = (
    "select schedule_name, queue_name, cron, tz, catch_up, max_catch_up, last_due, now "
    "from pgq.get_schedules() where enabled"
)
"""Recurring jobs in the columns of Schedule."""

FIRE_SCHEDULE: Final = "select pgq.fire_schedule(%s, %s, %s)"
"""Schedule, due time, enqueue (false: only mark it): the job's id, or null when somebody else did it."""
