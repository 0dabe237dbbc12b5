"""`pgq consumer ls | show | register | unregister | seek`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from pgq_py.cli._details import show_consumer
from pgq_py.cli._options import Dsn, Json, Yes, client, confirm
from pgq_py.cli._output import Column, duration, ident, note, seconds, show_object, show_rows
from pgq_py.cli._times import time_of
from pgq_py.errors import ConsumerNotRegistered
from pgq_py.health import consumer_details
from pgq_py.types import ConsumerInfo, TickId

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Consumers: list, register, move, unregister.")

Queue = Annotated[str, typer.Argument(metavar="QUEUE", show_default=False)]
Consumer = Annotated[str, typer.Argument(metavar="CONSUMER", show_default=False)]

_POSITION = "a tick's id, a time in ISO 8601 (of the local zone unless it says otherwise), `earliest` or `latest`"

_COLUMNS = (
    Column[ConsumerInfo]("queue", lambda c: c.queue_name),
    Column[ConsumerInfo]("consumer", lambda c: c.consumer_name),
    Column[ConsumerInfo]("last_tick", lambda c: ident(c.last_tick)),
    Column[ConsumerInfo]("position_age_seconds", lambda c: seconds(c.lag), duration),
    Column[ConsumerInfo]("last_seen_seconds", lambda c: seconds(c.last_seen), duration),
    Column[ConsumerInfo]("pending_events", lambda c: c.pending_events),
    Column[ConsumerInfo]("open_batch", lambda c: ident(c.current_batch)),
    Column[ConsumerInfo]("next_tick", lambda c: ident(c.next_tick)),
)


@app.command("ls")
def ls(
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", show_default=False)] = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """List the consumers of a queue, or all."""
    with client(dsn) as pgq:
        if queue is not None:
            pgq.queue_info(queue)
        show_rows(_COLUMNS, pgq.consumers(queue), as_json=json)


@app.command()
def show(queue: Queue, consumer: Consumer, dsn: Dsn = None, json: Json = False) -> None:
    """Show all about one consumer: its position, its open batch, retries, dead letters, policy, rights."""
    with client(dsn) as pgq:
        details = consumer_details(pgq, queue, consumer)
    show_consumer(_COLUMNS, details, as_json=json)


@app.command()
def register(
    queue: Queue,
    consumer: Consumer,
    at: Annotated[str | None, typer.Option("--at", metavar="POSITION", help=f"Where to start: {_POSITION}.")] = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Register a consumer. It gets the events that come from now on, or from --at on.

    One that is registered stays where it is; --at moves it.
    """
    target = None if at is None else _position(at, "'--at'")
    with client(dsn) as pgq:
        new = pgq.register_consumer(queue, consumer, at=target)
        where = pgq.consumer_info(queue, consumer).last_tick
    facts = {"queue": queue, "consumer": consumer, "registered": new, "last_tick": ident(where)}
    message = f"registered {queue}/{consumer}" if new else f"{queue}/{consumer} was registered already"
    show_object(facts, f"{message}, it is at tick {where}", as_json=json)


@app.command()
def unregister(queue: Queue, consumer: Consumer, yes: Yes = False, dsn: Dsn = None, json: Json = False) -> None:
    """Unregister a consumer; its position is forgotten, and events are no longer kept for it."""
    with client(dsn) as pgq:
        pgq.queue_info(queue)
        pgq.consumer_info(queue, consumer)
        confirm(f"Forget the position of {queue}/{consumer}?", yes=yes)
        if not pgq.unregister_consumer(queue, consumer):
            raise ConsumerNotRegistered(f"consumer {consumer} is no longer registered on queue {queue}")
    message = f"unregistered {queue}/{consumer}"
    show_object({"queue": queue, "consumer": consumer, "unregistered": True}, message, as_json=json)


@app.command()
def seek(  # noqa: PLR0917 - typer calls it by name
    queue: Queue,
    consumer: Consumer,
    to: Annotated[str, typer.Argument(metavar="POSITION", show_default=False, help=_POSITION)],
    execute: Annotated[bool, typer.Option("--execute", help="Move it; else only say where it would go.")] = False,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Move a consumer, back or forwards. An open batch is given up: its events come again, or are passed.

    Without --execute it is a rehearsal: nothing is changed.
    """
    target = _position(to, "'POSITION'")
    with client(dsn) as pgq:
        pgq.queue_info(queue)
        before = pgq.consumer_info(queue, consumer).last_tick
        with pgq.transaction() as conn, conn.transaction(force_rollback=not execute):
            after = pgq.seek(queue, consumer, target, conn=conn)
    if not execute:
        note("nothing was changed: say --execute to move the consumer")
    moves = [(before, after)]
    show_rows(_moves(queue, consumer, execute), moves, as_json=json)


def _moves(queue: str, consumer: str, executed: bool) -> tuple[Column[tuple[TickId | None, TickId]], ...]:
    return (
        Column("queue", lambda _: queue),
        Column("consumer", lambda _: consumer),
        Column("from_tick", lambda move: ident(move[0])),
        Column("to_tick", lambda move: ident(move[1])),
        Column("executed", lambda _: executed),
    )


def _position(text: str, hint: str) -> int | str | datetime:
    """A position as the client takes it."""
    if text in ("earliest", "latest"):
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return time_of(text, hint)
    except typer.BadParameter:
        raise typer.BadParameter(f"{text!r} is not {_POSITION}", param_hint=hint) from None
