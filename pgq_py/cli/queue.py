"""`pgq queue ls | create | set | pause | resume | rotate | drop`."""

from __future__ import annotations

from typing import Annotated

import typer

from pgq_py.cli._options import Dsn, Json, Yes, client, confirm
from pgq_py.cli._output import Column, duration, ident, seconds, show_object, show_rows
from pgq_py.errors import PgqError
from pgq_py.types import QueueInfo

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Queues: list, create, configure, drop.")

Queue = Annotated[str, typer.Argument(metavar="QUEUE", show_default=False)]

_COLUMNS = (
    Column[QueueInfo]("queue", lambda q: q.queue_name),
    Column[QueueInfo]("last_tick", lambda q: ident(q.last_tick_id)),
    Column[QueueInfo]("tick_age_seconds", lambda q: seconds(q.ticker_lag), duration),
    Column[QueueInfo]("events_per_second", lambda q: None if q.ev_per_sec is None else round(q.ev_per_sec, 1)),
    Column[QueueInfo]("paused", lambda q: q.queue_ticker_paused),
    Column[QueueInfo]("external_ticker", lambda q: q.queue_external_ticker),
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
def create(queue: Queue, dsn: Dsn = None, json: Json = False) -> None:
    """Create a queue; one that exists stays as it is."""
    with client(dsn) as pgq:
        created = pgq.create_queue(queue)
    message = f"created queue {queue}" if created else f"queue {queue} exists already"
    show_object({"queue": queue, "created": created}, message, as_json=json)


@app.command("set")
def configure(
    queue: Queue,
    parameter: Annotated[str, typer.Argument(metavar="PARAMETER", show_default=False)],
    value: Annotated[str, typer.Argument(metavar="VALUE", show_default=False, help="`null` takes a setting back.")],
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Change a setting of a queue: rotation_period, retention, disable_insert, ticker_max_lag and so on."""
    chosen = None if value.lower() == "null" else value
    with client(dsn) as pgq:
        pgq.set_queue_config(queue, parameter, chosen)
    facts = {"queue": queue, "parameter": parameter, "value": chosen}
    show_object(facts, f"queue {queue}: {parameter} is {chosen or 'taken back'}", as_json=json)


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
