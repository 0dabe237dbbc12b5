"""What is known of the priorities of job queues."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

__all__ = ["LaneInfo"]


@dataclass(frozen=True, slots=True)
class LaneInfo:
    """A priority of a job queue (`get_lane_info`): the job that comes next, and for how long it has been waiting.

    Priority 0 is the lane of jobs that lost a worker.
    """

    queue_name: str
    priority: int
    next_job: int | None
    waiting: timedelta | None
    last_claim: datetime | None
