"""A worker as a process of its own, for tests that kill it: `python -m tests.jobs.workshop LEASE SLOTS [PREFETCH]`."""

from __future__ import annotations

import os
import signal
import sys
import time

import psycopg

from pgq_py.jobs.context import JobContext
from pgq_py.jobs.spec import job_spec
from pgq_py.jobs.worker import Worker
from pgq_py.settings import load_settings
from tests.waiting import wait_until


def effect(ctx: JobContext, n: int) -> None:
    """One row, in the transaction that completes the job."""
    ctx.connection.execute("insert into effect values (%s)", [n])
    time.sleep(0.002)  # what the job does: the process is killed while some are at it


def poison() -> None:
    """Kills its process."""
    os.kill(os.getpid(), signal.SIGKILL)


def fine() -> None:
    time.sleep(0.001)  # what the job does: some run beside the one that kills


def gated() -> None:
    """Says that it has begun, and ends when the gate is open."""
    with psycopg.connect(os.environ["PGQ_DSN"], autocommit=True) as conn:
        conn.execute("insert into begun default values")
        wait_until(lambda: conn.execute("select from gate").fetchone() is not None, timeout=30)


def main() -> None:
    lease, slots, *prefetch = map(int, sys.argv[1:])
    specs = [job_spec(effect, "jobs", transactional=True), *(job_spec(f, "jobs") for f in (poison, fine, gated))]
    Worker(load_settings(), specs, slots=slots, prefetch=sum(prefetch), lease=lease, grace=20).run()


if __name__ == "__main__":
    main()
