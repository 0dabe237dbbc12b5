"""`pgq send`: one event, or a stream of them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

import typer

from pgq_py.cli._bulk import send_lines
from pgq_py.cli._options import Dsn, Json, client
from pgq_py.cli._output import ident, show_object
from pgq_py.cli._times import DURATION, duration_of, time_of

__all__ = ["send"]

Due = tuple[datetime | None, timedelta | None]
Payload = Annotated[str | None, typer.Argument(metavar="[DATA]", show_default=False, help="Of one event, as text.")]
Type = Annotated[str | None, typer.Option("--type", "-t", metavar="TYPE", help="The events' type.")]
Source = Annotated[
    str | None,
    typer.Option(
        "--file", "-f", metavar="FILE|-", help="Many events: each line is one JSON value, an event's data (NDJSON)."
    ),
]
DeliverIn = Annotated[
    str | None, typer.Option("--in", metavar="DURATION", help=f"Deliver after that long, {DURATION}.")
]
DeliverAt = Annotated[
    str | None, typer.Option("--at", metavar="TIME", help="Deliver at a time in ISO 8601, or now if it is past.")
]


def send(  # noqa: PLR0917 - typer calls it by name
    queue: Annotated[str, typer.Argument(metavar="QUEUE", show_default=False)],
    data: Payload = None,
    event_type: Type = None,
    file: Source = None,
    deliver_in: DeliverIn = None,
    deliver_at: DeliverAt = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Send an event, or with --file one for each line of a file or a pipe.

    A line that is not JSON ends it: those before it are sent, and the message says how to go on.
    """
    due = _due(deliver_at, deliver_in)
    if (data is None) is (file is None):
        raise typer.BadParameter("give either the data of an event, or a file", param_hint="'[DATA]' / '--file'")
    event_id = None
    with client(dsn) as pgq:
        if file is not None:
            sent = send_lines(pgq, queue, file, event_type, due)
        else:
            sent, event_id = 1, pgq.send(queue, data, type=event_type, deliver_at=due[0], deliver_in=due[1])
    what = f"event {event_id}" if event_id is not None else f"{sent} events"
    show_object({"queue": queue, "sent": sent, "id": ident(event_id)}, f"sent {what} to {queue}", as_json=json)


def _due(deliver_at: str | None, deliver_in: str | None) -> Due:
    if deliver_in is not None and deliver_at is not None:
        raise typer.BadParameter("give either --in or --at", param_hint="'--in' / '--at'")
    return (
        None if deliver_at is None else time_of(deliver_at, "'--at'"),
        None if deliver_in is None else duration_of(deliver_in, "'--in'"),
    )
