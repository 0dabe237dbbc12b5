"""`pgq queue ls | show | create | set | pause | resume | rotate | grant | revoke | drop`."""

from __future__ import annotations

from typing import Annotated

import typer

from pgq_py.cli._details import show_queue
from pgq_py.cli._options import Dsn, Json, Yes, client, confirm
from pgq_py.cli._output import Column, duration, ident, seconds, show_object, show_rows
from pgq_py.errors import PgqError
from pgq_py.health import queue_details
from pgq_py.types import QueueInfo

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Queues: list, create, configure, drop.")

Queue = Annotated[str, typer.Argument(metavar="QUEUE", show_default=False)]
Role = Annotated[str, typer.Argument(metavar="ROLE", show_default=False)]
Retention = Annotated[
    str | None, typer.Option(metavar="INTERVAL", help="Keep finished events that long, as in '7 days'.")
]
RotationPeriod = Annotated[
    str | None, typer.Option(metavar="INTERVAL", help="Switch slots at that age, as in '2 hours'; null: never.")
]
Produce = Annotated[bool, typer.Option("--produce", help="To send to the queue.")]
Work = Annotated[bool, typer.Option("--work", help="To work the jobs of the queue.")]
Consume = Annotated[str | None, typer.Option("--consume", metavar="CONSUMER", help="To act as this consumer.")]

PRIORITIES = "150,100,30"

JOB_SETTINGS = frozenset({"lease", "max_losses", "held_limit", "archive"})
"""Those that job queues alone have."""

_COLUMNS = (
    Column[QueueInfo]("queue", lambda q: q.queue_name),
    Column[QueueInfo]("last_tick", lambda q: ident(q.last_tick_id)),
    Column[QueueInfo]("tick_age_seconds", lambda q: seconds(q.ticker_lag), duration),
    Column[QueueInfo]("events_per_second", lambda q: None if q.ev_per_sec is None else round(q.ev_per_sec, 1)),
    Column[QueueInfo]("paused", lambda q: q.queue_ticker_paused, quiet=True),
    Column[QueueInfo]("external_ticker", lambda q: q.queue_external_ticker, quiet=True),
    Column[QueueInfo]("rotation_period_seconds", lambda q: seconds(q.queue_rotation_period), duration),
    Column[QueueInfo]("slots", lambda q: q.queue_ntables),
    Column[QueueInfo]("current_slot", lambda q: q.queue_cur_table),
    Column[QueueInfo]("switched_at", lambda q: q.queue_switch_time),
)


@app.command("ls")
def ls(dsn: Dsn = None, json: Json = False) -> None:
    """List the queues."""
    with client(dsn) as pgq:
        show_rows(_COLUMNS, pgq.queues(), as_json=json)


@app.command()
def show(queue: Queue, dsn: Dsn = None, json: Json = False) -> None:
    """Show all about one queue: settings, consumers, what waits, retry policies, rights, evictions."""
    with client(dsn) as pgq:
        details = queue_details(pgq, queue)
    show_queue(_COLUMNS, details, as_json=json)


Parameter = Annotated[str | None, typer.Argument(metavar="[PARAMETER]", show_default=False)]
Value = Annotated[
    str | None, typer.Argument(metavar="[VALUE]", show_default=False, help="`null` takes a setting back.")
]
MaxRetries = Annotated[
    str | None, typer.Option(metavar="N", help="After so many an event is a dead letter, 0: at once.")
]
MaxConsumerLag = Annotated[
    str | None, typer.Option(metavar="INTERVAL", help="Evict consumers that are further behind; null: never.")
]
Jobs = Annotated[bool, typer.Option("--jobs", help="Its events are jobs, which workers share out.")]
Priorities = Annotated[
    str | None,
    typer.Option(metavar="N,N,...", show_default=False, help="Of jobs, higher ones first; 150,100,30 by default."),
]
DisableInsert = Annotated[str | None, typer.Option(metavar="true|false", help="Refuse events.")]


@app.command()
def create(  # noqa: PLR0917 - typer calls it by name
    queue: Queue,
    slots: Annotated[int, typer.Option(min=3, max=64, help="Tables that are filled in turn, for ever.")] = 3,
    retention: Retention = None,
    rotation_period: RotationPeriod = None,
    jobs: Jobs = False,
    priorities: Priorities = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Create a queue, of events, or with --jobs one whose events are jobs; one that exists stays as it is, settings
    included."""
    chosen = _given(retention=retention, rotation_period=rotation_period)
    lanes = _numbers(priorities or PRIORITIES) if jobs or priorities is not None else None
    if lanes and slots != 3:
        raise typer.BadParameter("a queue of jobs has 3 slots", param_hint="'--slots'")
    with client(dsn) as pgq, pgq.transaction() as conn:
        created = pgq.create_job_queue(queue, lanes, conn=conn) if lanes else pgq.create_queue(queue, slots, conn=conn)
        if created:
            for parameter, value in chosen.items():
                pgq.set_queue_config(queue, parameter, value, conn=conn)
    message = f"created queue {queue}" if created else f"queue {queue} exists already"
    show_object({"queue": queue, "created": created}, message, as_json=json)


@app.command("set")
def configure(  # noqa: PLR0917
    queue: Queue,
    parameter: Parameter = None,
    value: Value = None,
    max_retries: MaxRetries = None,
    retention: Retention = None,
    rotation_period: RotationPeriod = None,
    max_consumer_lag: MaxConsumerLag = None,
    disable_insert: DisableInsert = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Change settings of a queue: one by its name (rotation_period, ticker_max_lag and so on; of a job queue also
    lease, max_losses, held_limit and archive), or several as options.

    All of them are changed, or none. `pgq queue show` shows them.
    """
    chosen = _given(max_retries=max_retries, retention=retention, rotation_period=rotation_period)
    chosen |= _given(max_consumer_lag=max_consumer_lag, disable_insert=disable_insert)
    if parameter is not None and value is not None:
        chosen |= _given(**{parameter: value})
    if not chosen or (parameter is None) is not (value is None):
        raise typer.BadParameter("name a setting and its value, or give options", param_hint="'PARAMETER VALUE'")
    with client(dsn) as pgq, pgq.transaction() as conn:
        for name, text in chosen.items():
            configure_one = pgq.set_job_config if name in JOB_SETTINGS else pgq.set_queue_config
            configure_one(queue, name, text, conn=conn)
    changes = ", ".join(f"{name} is {'taken back' if text is None else text}" for name, text in chosen.items())
    show_object({"queue": queue, "settings": chosen}, f"queue {queue}: {changes}", as_json=json)


def _given(**settings: str | None) -> dict[str, str | None]:
    """Those that were given; `null` becomes None, which takes a setting back."""
    return {name: None if value.lower() == "null" else value for name, value in settings.items() if value is not None}


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} are not numbers, such as {PRIORITIES}", param_hint="'--priorities'"
        ) from None


@app.command()
def grant(  # noqa: PLR0917
    queue: Queue,
    role: Role,
    produce: Produce = False,
    consume: Consume = None,
    work: Work = False,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Give a role a right for this queue alone: to produce, to act as one consumer, to work its jobs."""
    _check_rights(produce=produce, consume=consume, work=work)
    with client(dsn) as pgq, pgq.transaction() as conn:
        if produce:
            pgq.grant_produce(queue, role, conn=conn)
        if consume is not None:
            pgq.grant_consume(queue, consume, role, conn=conn)
        if work:
            pgq.grant_work(queue, role, conn=conn)
    _report_rights(queue, role, _rights(produce=produce, consume=consume, work=work), granted=True, as_json=json)


@app.command()
def revoke(  # noqa: PLR0917
    queue: Queue,
    role: Role,
    produce: Produce = False,
    consume: Consume = None,
    work: Work = False,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Take such a right back. Members of pgq_reader, pgq_writer and pgq_admin keep theirs."""
    _check_rights(produce=produce, consume=consume, work=work)
    with client(dsn) as pgq, pgq.transaction() as conn:
        if produce:
            pgq.revoke_produce(queue, role, conn=conn)
        if consume is not None:
            pgq.revoke_consume(queue, consume, role, conn=conn)
        if work:
            pgq.revoke_work(queue, role, conn=conn)
    _report_rights(queue, role, _rights(produce=produce, consume=consume, work=work), granted=False, as_json=json)


def _check_rights(*, produce: bool, consume: str | None, work: bool) -> None:
    if not (produce or work) and consume is None:
        raise typer.BadParameter("say which right", param_hint="'--produce' / '--consume' / '--work'")


def _rights(*, produce: bool, consume: str | None, work: bool) -> list[str]:
    given = {"produce": produce, f"consume as {consume}": consume is not None, "work": work}
    return [right for right, wanted in given.items() if wanted]


def _report_rights(queue: str, role: str, rights: list[str], *, granted: bool, as_json: bool) -> None:
    facts = {"queue": queue, "role": role, "rights": rights, "granted": granted}
    verb = "may" if granted else "may no longer"
    show_object(facts, f"{role} {verb} {' and '.join(rights)} on queue {queue}", as_json=as_json)


@app.command()
def pause(queue: Queue, dsn: Dsn = None, json: Json = False) -> None:
    """Stop delivery; events are accepted and kept."""
    with client(dsn) as pgq:
        changed = pgq.pause_queue(queue)
    message = f"paused queue {queue}" if changed else f"queue {queue} was paused already"
    show_object({"queue": queue, "changed": changed}, message, as_json=json)


@app.command()
def resume(queue: Queue, dsn: Dsn = None, json: Json = False) -> None:
    """Deliver again."""
    with client(dsn) as pgq:
        changed = pgq.resume_queue(queue)
    message = f"resumed queue {queue}" if changed else f"queue {queue} was not paused"
    show_object({"queue": queue, "changed": changed}, message, as_json=json)


@app.command()
def rotate(queue: Queue, dsn: Dsn = None, json: Json = False) -> None:
    """Do the next step of the queue's rotation now, and say which it was.

    closed, truncated, switched; or why not: waiting (for a consumer), idle, busy; blocked fails.
    """
    with client(dsn) as pgq:
        step = pgq.rotate_queue(queue)
        if step == "blocked":
            raise PgqError(
                f"a transaction is inside the slot of queue {queue} that is to be rotated",
                advice="Nothing was changed. `pgq status` names it.",
            )
    show_rows((Column[str]("queue", lambda _: queue), Column[str]("step", str)), [step], as_json=json)


@app.command()
def drop(
    queue: Queue,
    force: Annotated[bool, typer.Option("--force", help="Also while consumers are registered on it.")] = False,
    yes: Yes = False,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Drop a queue with its events."""
    with client(dsn) as pgq:
        pgq.queue_info(queue)
        confirm(f"Drop queue {queue} with all its events?", yes=yes)
        pgq.drop_queue(queue, force=force)
    show_object({"queue": queue, "dropped": True}, f"dropped queue {queue}", as_json=json)
