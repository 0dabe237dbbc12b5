"""`pgq cron ls | next | run`: recurring jobs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Annotated

import typer

from pgq_py.cli._options import Dsn, Json, client
from pgq_py.cli._output import Column, ident, show_object, show_rows
from pgq_py.client import Client
from pgq_py.errors import InvalidArgument, ScheduleNotFound
from pgq_py.job_types import Schedule
from pgq_py.jobs.recurring import next_times

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Recurring jobs: list, show when they are due, run.")

Name = Annotated[str, typer.Argument(metavar="SCHEDULE", show_default=False)]

Due = tuple[Schedule, datetime]


def _next_due(schedule: Schedule) -> datetime | None:
    """The first due time that has not fired; past when no worker fires it."""
    try:
        return next(next_times(schedule.cron, schedule.tz, schedule.last_due), None)
    except InvalidArgument:
        return None  # doctor says so


def _overdue(schedule: Schedule) -> bool:
    due = _next_due(schedule)
    return schedule.enabled and due is not None and due <= schedule.now


_COLUMNS = (
    Column[Schedule]("schedule", lambda s: s.schedule_name),
    Column[Schedule]("queue", lambda s: s.queue_name),
    Column[Schedule]("type", lambda s: s.type),
    Column[Schedule]("cron", lambda s: s.cron),
    Column[Schedule]("tz", lambda s: s.tz),
    Column[Schedule]("catch_up", lambda s: s.catch_up),
    Column[Schedule]("enabled", lambda s: s.enabled),
    Column[Schedule]("last_due", lambda s: s.last_due),
    Column[Schedule]("next_due", _next_due),
    Column[Schedule]("overdue", _overdue, quiet=True),
)
_TIMES = (
    Column[Due]("schedule", lambda due: due[0].schedule_name),
    Column[Due]("due", lambda due: due[1], lambda time: f"{time:%Y-%m-%d %H:%M:%S}"),
    Column[Due]("local", lambda due: f"{due[1]:%a %Y-%m-%d %H:%M:%S %Z}"),
)


@app.command("ls")
def ls(dsn: Dsn = None, json: Json = False) -> None:
    """List the schedules: what was last due, and what comes next. Workers fire them."""
    with client(dsn) as pgq:
        show_rows(_COLUMNS, pgq.schedules(), as_json=json)


@app.command("next")
def upcoming(
    name: Annotated[str | None, typer.Argument(metavar="[SCHEDULE]", show_default=False)] = None,
    count: Annotated[int, typer.Option("--count", "-n", metavar="N", min=1, max=1000, help="Times of each.")] = 5,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Show when schedules are due next, in UTC and in their own time zone, by the database's clock."""
    with client(dsn) as pgq:
        found = pgq.schedules() if name is None else [_schedule(pgq, name)]
    show_rows(_TIMES, list(_times(found, count)), as_json=json)


def _times(schedules: list[Schedule], count: int) -> Iterator[Due]:
    for schedule in schedules:
        after = max(schedule.now, schedule.last_due)
        yield from ((schedule, due) for due in islice(next_times(schedule.cron, schedule.tz, after), count))


def _schedule(pgq: Client, name: str) -> Schedule:
    found = pgq.schedules(name)
    if not found:
        raise ScheduleNotFound(f"no such schedule: {name}", advice="Nothing was enqueued. See `pgq cron ls`.")
    return found[0]


@app.command()
def run(name: Name, dsn: Dsn = None, json: Json = False) -> None:
    """Enqueue a schedule's job now. Its due times come as ever."""
    with client(dsn) as pgq:
        queue = _schedule(pgq, name).queue_name
        job_id = pgq.fire_schedule(name)
    facts = {"schedule": name, "queue": queue, "id": ident(job_id)}
    show_object(facts, f"enqueued job {job_id} of queue {queue}", as_json=json)
