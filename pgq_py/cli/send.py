"""`pgq send`: one event, or a stream of them."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from typing import Annotated

import typer

from pgq_py.cli._bulk import send_lines
from pgq_py.cli._options import Dsn, Json, client
from pgq_py.cli._output import ident, show_object
from pgq_py.cli._times import DURATION, duration_of, time_of

__all__ = ["send"]

Due = tuple[datetime | None, timedelta | None]


def send(  # noqa: PLR0917 - typer calls it by name
    queue: Annotated[str, typer.Argument(metavar="QUEUE", show_default=False)],
    data: Annotated[
        str | None, typer.Argument(metavar="[DATA]", show_default=False, help="Of one event, as text.")
    ] = None,
    event_type: Annotated[str | None, typer.Option("--type", "-t", metavar="TYPE", help="The events' type.")] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--file", "-f", metavar="FILE|-", help="Many events: each line is one JSON value, an event's data (NDJSON)."
        ),
    ] = None,
    deliver_in: Annotated[
        str | None, typer.Option("--in", metavar="DURATION", help=f"Deliver after that long, {DURATION}.")
    ] = None,
    deliver_at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="Deliver at a time in ISO 8601, or now if it is past.")
    ] = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Send an event, or with --file one for each line of a file or a pipe.

    A line that is not JSON ends it: those before it are sent, and the message says how to go on.
    """
    if (data is None) is (file is None):
        raise typer.BadParameter(
            "give either the data of an event, or a file of them", param_hint="'[DATA]' / '--file'"
        )
    if deliver_in is not None and deliver_at is not None:
        raise typer.BadParameter("give either --in or --at", param_hint="'--in' / '--at'")
    due: Due = (
        None if deliver_at is None else time_of(deliver_at, "'--at'"),
        None if deliver_in is None else duration_of(deliver_in, "'--in'"),
    )
    with client(dsn) as pgq:
        if file is not None:
            sent = send_lines(pgq, queue, file, event_type, due)
            event_id = None
        else:
            event_id = pgq.send(queue, data, type=event_type, deliver_at=due[0], deliver_in=due[1])
            sent = 1
    facts = {"queue": queue, "sent": sent, "id": ident(event_id)}
    what = f"event {event_id}" if event_id is not None else f"{sent} events"
    show_object(facts, f"sent {what} to {queue}", as_json=json)
    sys.stdout.flush()
