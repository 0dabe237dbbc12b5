"""Jobs: functions that are called later, elsewhere, by one of many workers.

`spec` says what a job is, `job` is what `@pgq.job` makes of a function, `handle` what enqueueing returns, `context`
what a handler is told; `worker` runs them and `recurring` enqueues them by the clock.
"""

from __future__ import annotations

from pgq_py.jobs._async.declaring import AsyncDeclaring
from pgq_py.jobs._async.handle import AsyncJobHandle
from pgq_py.jobs._async.job import AsyncEnqueuer, AsyncJob
from pgq_py.jobs._sync.declaring import Declaring
from pgq_py.jobs._sync.handle import JobHandle
from pgq_py.jobs._sync.job import Enqueuer, Job
from pgq_py.jobs.context import ClaimedJob, JobContext
from pgq_py.jobs.middleware import Middleware
from pgq_py.jobs.spec import JobSpec, ScheduleSpec

__all__ = [
    "AsyncDeclaring",
    "AsyncEnqueuer",
    "AsyncJob",
    "AsyncJobHandle",
    "ClaimedJob",
    "Declaring",
    "Enqueuer",
    "Job",
    "JobContext",
    "JobHandle",
    "JobSpec",
    "Middleware",
    "ScheduleSpec",
]
