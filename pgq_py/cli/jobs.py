"""`pgq jobs ls | show | enqueue | retry | cancel | watch | stats`."""

from __future__ import annotations

import json as jsonlib
import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

from pgq_py.cli._job_columns import JOB, JOBS, STATS
from pgq_py.cli._job_watch import watch_jobs
from pgq_py.cli._options import Dsn, Json, client
from pgq_py.cli._output import Column, ident, note, objects, show_fields, show_object, show_rows, write_json
from pgq_py.cli._times import DURATION, duration_of, time_of
from pgq_py.client import Client
from pgq_py.errors import PgqError
from pgq_py.job_types import JobStats, JobStatus

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Jobs: list, enqueue, retry, cancel, watch.")


class State(StrEnum):
    scheduled = "scheduled"
    pending = "pending"
    running = "running"
    retrying = "retrying"
    completed = "completed"
    failed = "failed"
    cancelled = "cancelled"


Queue = Annotated[str, typer.Argument(metavar="QUEUE", show_default=False)]
SomeQueue = Annotated[str | None, typer.Argument(metavar="[QUEUE]", show_default=False)]
Ids = Annotated[list[int], typer.Argument(metavar="ID...", show_default=False)]
OfState = Annotated[State | None, typer.Option("--state", "-s", help="Only in this state.")]
OfType = Annotated[str | None, typer.Option("--type", "-t", metavar="TYPE", help="Only of this type.")]
_OPTIONS = Column[JobStatus]("options", lambda j: jsonlib.dumps(j.options) if j.options else None)


@app.command("ls")
def ls(  # noqa: PLR0917 - typer calls it by name
    queue: Queue,
    state: OfState = None,
    job_type: OfType = None,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, max=9999, help="At most so many.")] = 100,
    before: Annotated[int | None, typer.Option("--before", metavar="ID", help="Only older ones than this.")] = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """List jobs, the newest first. `pgq jobs stats` counts them."""
    with client(dsn) as pgq:
        found = pgq.list_jobs(queue, None if state is None else state.value, job_type, limit=limit + 1, before=before)
    show_rows(JOBS, found[:limit], as_json=json)
    if len(found) > limit:
        note(f"there are more: --before {found[limit - 1].id} shows the next ones")


@app.command()
def show(
    queue: Queue,
    job: Annotated[int, typer.Argument(metavar="ID", show_default=False)],
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Show all about one job."""
    with client(dsn) as pgq:
        found = _job(pgq, queue, job)
    if json:
        write_json({**objects(JOB, [found])[0], "options": found.options, "progress": found.progress})
    else:
        show_fields((*JOB, _OPTIONS), found, as_json=False)


def _job(pgq: Client, queue: str, job_id: int) -> JobStatus:
    found = pgq.get_job(queue, job_id)
    if found is None:
        raise PgqError(
            f"queue {queue} has no trace of job {job_id}",
            advice="A job that was done is forgotten when its slot rotates. See `pgq jobs ls QUEUE`.",
        )
    return found


@app.command()
def enqueue(  # noqa: PLR0917
    queue: Queue,
    job_type: Annotated[str, typer.Argument(metavar="TYPE", show_default=False)],
    payload: Annotated[str, typer.Argument(metavar="[PAYLOAD]", help="Its arguments: JSON.")] = "{}",
    priority: Annotated[
        int | None, typer.Option("--priority", "-p", metavar="N", help="Higher is sooner; 100.")
    ] = None,
    run_in: Annotated[str | None, typer.Option("--in", metavar="DURATION", help=f"Not before, {DURATION}.")] = None,
    run_at: Annotated[str | None, typer.Option("--at", metavar="TIME", help="Not before a time in ISO 8601.")] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Not while another active job has this key.")
    ] = None,
    key_window: Annotated[
        str | None, typer.Option("--key-window", metavar="DURATION", help="The key is taken for so long instead.")
    ] = None,
    max_attempts: Annotated[int | None, typer.Option("--max-attempts", metavar="N", min=1)] = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="DURATION", help="It may run for so long.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="May be given again.")] = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Enqueue a job; when another one has its key, that one is named instead."""
    if run_in is not None and run_at is not None:
        raise typer.BadParameter("give either --in or --at", param_hint="'--in' / '--at'")
    value = _json_value(payload)
    limit = None if timeout is None else duration_of(timeout, "'--timeout'").total_seconds()
    given: dict[str, Any] = {"max_attempts": max_attempts, "timeout": limit, "tags": tag or None}
    with client(dsn) as pgq:
        job_id, created = pgq.enqueue(
            queue,
            job_type,
            value,
            priority=priority,
            run_at=None if run_at is None else time_of(run_at, "'--at'"),
            delay=None if run_in is None else duration_of(run_in, "'--in'"),
            key=key,
            key_window=None if key_window is None else duration_of(key_window, "'--key-window'"),
            options={name: option for name, option in given.items() if option is not None},
        )
    message = f"enqueued job {job_id}" if created else f"job {job_id} has this key; nothing was enqueued"
    show_object({"queue": queue, "id": ident(job_id), "created": created}, message, as_json=json)


def _json_value(text: str) -> Any:
    try:
        return jsonlib.loads(text)
    except ValueError as exc:
        raise typer.BadParameter(f"it is not JSON: {exc}", param_hint="'[PAYLOAD]'") from None


@app.command()
def retry(  # noqa: PLR0917
    queue: Queue,
    ids: Annotated[list[int] | None, typer.Argument(metavar="[ID]...", show_default=False)] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that were given up.")] = False,
    job_type: OfType = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Run jobs that were given up again, from their first attempt: all of those named, or none.

    One whose key another active job has is refused.
    """
    if bool(ids) is everything or (ids and job_type):
        raise typer.BadParameter("give either numbers of jobs, or --all", param_hint="'[ID]...' / '--all'")
    with client(dsn) as pgq, pgq.transaction() as conn:
        if everything:
            done = pgq.replay_all_jobs(queue, job_type, conn=conn)
        else:
            done = pgq.retry_jobs(queue, ids or [], conn=conn)
            _all_or_none(queue, done, set(ids or []))
    show_object({"queue": queue, "retried": done}, f"{done} jobs run again", as_json=json)


def _all_or_none(queue: str, done: int, ids: set[int]) -> None:
    """Raised inside the transaction, which is rolled back."""
    if done < len(ids):
        raise PgqError(
            f"of these {len(ids)} jobs only {done} were given up",
            advice=f"Nothing was changed. See `pgq jobs ls {queue} --state failed`.",
        )


@app.command()
def cancel(queue: Queue, ids: Ids, dsn: Dsn = None, json: Json = False) -> None:
    """Cancel jobs: those that wait never run, those that run are asked to stop. The exit status is 1 when one was over
    already, or is not to be found.
    """
    with client(dsn) as pgq:
        outcomes = pgq.cancel_jobs(queue, ids)
    columns = (
        Column[tuple[int, str | None]]("id", lambda o: ident(o[0])),
        Column[tuple[int, str | None]]("outcome", lambda o: o[1] or "unknown"),
    )
    show_rows(columns, list(outcomes.items()), as_json=json)
    raise typer.Exit(0 if set(outcomes.values()) <= {"cancelled", "cancel_requested"} else 1)


@app.command()
def stats(queue: SomeQueue = None, dsn: Dsn = None, json: Json = False) -> None:
    """Count the jobs of each queue: what waits and runs now, and what was ever finished."""
    with client(dsn) as pgq:
        found = _stats(pgq, queue)
    show_rows(STATS, found, as_json=json)


def _stats(pgq: Client, queue: str | None) -> list[JobStats]:
    found = pgq.job_stats(queue)
    if queue is not None and not found:
        pgq.list_jobs(queue, limit=1)  # says which it is: no queue, or not one of jobs
    return found


@app.command()
def watch(
    queue: Queue,
    every: Annotated[float, typer.Argument(metavar="[SECONDS]", min=0.05, help="How often to look.")] = 1.0,
    until_done: Annotated[bool, typer.Option("--until-done", help="End when no job waits or runs.")] = False,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Show again and again how a queue's jobs are doing, with a bar for each running one that says how far it is; until
    Ctrl-C."""
    with client(dsn) as pgq:
        _stats(pgq, queue)
        watch_jobs(pgq, queue, every, until_done=until_done, as_json=json)
    sys.stdout.flush()
