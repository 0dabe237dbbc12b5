"""The statements of those who look after jobs, named and described as those in `job_queries`."""

from __future__ import annotations

from typing import Final

REPLAY_JOBS: Final = "select pgq.dlq_replay_all(%s, '', %s)"
"""Run all jobs of a queue that were given up again, of one type or of all (null): how many."""

LANES: Final = "select * from pgq.get_lane_info(%s)"
"""Priorities of a job queue, or of all (null), the highest first."""

FIRE_SCHEDULE: Final = "select pgq.fire_schedule(%s, clock_timestamp(), true, true)"
"""Enqueue the job of a schedule now, whatever is due: its id."""
