"""Jobs of a kind that this worker has no handler for: of a newer version, most likely, while an older one still runs.

They come again after half a minute, with no attempt counted; and it is said loudly, but not more than once a minute.
"""

from __future__ import annotations

import logging
import random
from datetime import timedelta
from time import monotonic

from pgq_py.jobs.middleware import Middleware
from pgq_py.jobs.spec import job_spec
from pgq_py.jobs.worker.work import Handler, Said, Work

__all__ = ["Unknown"]

logger = logging.getLogger("pgq_py.jobs")

AGAIN = 30.0
"""Seconds, more or less by a half."""

QUIET = 60.0
"""Seconds between two complaints about the same kind."""


class Unknown:
    """`handler` stands in for the one that is missing; it is never called."""

    def __init__(self) -> None:
        self.handler = Handler(job_spec(_nothing, "unknown"), Middleware())
        self._said: dict[tuple[str, str], float] = {}

    def said(self, work: Work) -> Said:
        """What becomes of such a job."""
        kind, now = (work.claim.queue, work.job.type), monotonic()
        if now - self._said.get(kind, -QUIET) >= QUIET:
            self._said[kind] = now
            logger.error("no handler for jobs of type %r in queue %r: they wait", work.job.type, work.claim.queue)
        return Said("snoozed", delay=timedelta(seconds=AGAIN * random.uniform(0.5, 1.5)))


def _nothing() -> None:
    raise AssertionError
