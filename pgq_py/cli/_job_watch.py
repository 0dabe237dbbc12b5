"""What `pgq jobs watch` shows: the counts of a queue, and a bar for each running job that says how far it is."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from datetime import datetime

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pgq_py.cli._job_columns import STATS, percent, stage
from pgq_py.cli._output import Column, ident, objects, table, tsv
from pgq_py.client import Client
from pgq_py.job_types import JobStats, JobStatus

__all__ = ["watch_jobs"]

MOST = 40
"""Running jobs that are shown: those that have been running the longest."""

Look = tuple[JobStats, list[JobStatus]]

_RUNNING = (
    Column[JobStatus]("id", lambda j: ident(j.id)),
    Column[JobStatus]("type", lambda j: j.type),
    Column[JobStatus]("attempt", lambda j: j.attempt),
    Column[JobStatus]("worker", lambda j: j.worker),
    Column[JobStatus]("percent", percent),
    Column[JobStatus]("stage", stage),
)


def watch_jobs(pgq: Client, queue: str, every: float, *, until_done: bool, as_json: bool) -> None:
    """In place on a terminal, else block after block; with `as_json` an object per line. Until Ctrl-C, or nothing is
    left to be done."""
    looks = _looks(pgq, queue, every, until_done=until_done)
    if as_json or not sys.stdout.isatty():
        for stats, running in looks:
            sys.stdout.write(_line(stats, running) if as_json else _block(stats, running))
            sys.stdout.flush()
        return
    with Live(console=Console(), auto_refresh=False) as live:
        for stats, running in looks:
            live.update(_screen(stats, running), refresh=True)


def _looks(pgq: Client, queue: str, every: float, *, until_done: bool) -> Iterator[Look]:
    while True:
        found = pgq.job_stats(queue)
        if not found:
            return  # dropped meanwhile
        running = pgq.list_jobs(queue, "running", limit=1000) if found[0].running else []
        yield found[0], sorted(running, key=lambda job: job.id)[:MOST]
        if until_done and not (found[0].pending or found[0].running or found[0].scheduled or found[0].retrying):
            return
        time.sleep(every)


def _line(stats: JobStats, running: list[JobStatus]) -> str:
    facts = {**objects(STATS, [stats])[0], "jobs": objects(_RUNNING, running)}
    return json.dumps(facts, ensure_ascii=False) + "\n"


def _block(stats: JobStats, running: list[JobStatus]) -> str:
    head = f"# {datetime.now().astimezone().isoformat()}\n\n# stats\n{tsv(STATS, [stats])}"
    return f"{head}\n# running\n{tsv(_RUNNING, running)}\n"


def _screen(stats: JobStats, running: list[JobStatus]) -> RenderableType:
    parts: list[RenderableType] = [table(STATS, [stats])]
    said = [job for job in running if percent(job) is not None or stage(job) is not None]
    if said:
        parts += ["", _bars(said)]
    silent = stats.running - len(said)
    if silent > 0:
        parts += ["", Text(f"{silent} more that do not say how far they are", "dim")]
    return Group(*parts)


def _bars(jobs: list[JobStatus]) -> Table:
    found = Table.grid(padding=(0, 2))
    for job in jobs:
        done = percent(job)
        bar = ProgressBar(total=None if done is None else 100, completed=done or 0, width=40)
        figure = "" if done is None else f"{done:.0f} %"
        found.add_row(Text(str(job.id)), Text(job.type or "-"), bar, Text(figure), Text(stage(job) or ""))
    return found
