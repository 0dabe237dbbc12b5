"""`pgq tail`: the events of a queue, as they become visible."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Annotated

import typer
from rich.text import Text

from pgq_py.cli._options import Dsn, Json, client, settings
from pgq_py.cli._output import Column, ident, stream_rows, tsv_names
from pgq_py.cli._times import time_of
from pgq_py.client.acompat import Stop
from pgq_py.signals import stop_on_signals
from pgq_py.tail import Tail, Where
from pgq_py.types import Event

__all__ = ["tail"]

LOOK_INTERVAL = 0.2

_COLUMNS = (
    Column[Event]("id", lambda e: ident(e.id)),
    Column[Event]("time", lambda e: e.time),
    Column[Event]("txid", lambda e: ident(e.txid)),
    Column[Event]("type", lambda e: e.type),
    Column[Event]("data", lambda e: e.data),
    Column[Event]("extra1", lambda e: e.extra1),
    Column[Event]("extra2", lambda e: e.extra2),
    Column[Event]("extra3", lambda e: e.extra3),
    Column[Event]("extra4", lambda e: e.extra4),
)


Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME|earliest",
        help="Begin with events of transactions that began then (ISO 8601), or with all that are left.",
    ),
]
Type = Annotated[str | None, typer.Option("--type", "-t", metavar="TYPE", help="Only of this type.")]
Lines = Annotated[
    int | None,
    typer.Option("--lines", "-n", metavar="N", min=0, help="Begin with the last N; 10 without --since."),
]
Follow = Annotated[bool, typer.Option("--follow/--no-follow", help="Wait for more, until Ctrl-C.")]


def tail(  # noqa: PLR0917 - typer calls it by name
    queue: Annotated[str, typer.Argument(metavar="QUEUE", show_default=False)],
    since: Since = None,
    event_type: Type = None,
    lines: Lines = None,
    follow: Follow = True,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Show the events of a queue as they are committed. No cursor moves, and nothing is registered.

    An event that is committed late comes late, after those with higher ids. What is retried for a single consumer is
    not shown again. With --json, one object per line.
    """
    where = Where(10 if lines is None and since is None else lines, _time(since), event_type)
    with client(dsn), Tail(settings(dsn), queue, where) as tailing:
        if not (json or sys.stdout.isatty()):
            sys.stdout.write(tsv_names(_COLUMNS))
        stop = Stop()
        with stop_on_signals(stop.set):
            stream_rows(_COLUMNS, tailing.look(), as_json=json, line=_line)
            while follow and not stop.sleep(LOOK_INTERVAL):
                stream_rows(_COLUMNS, tailing.look(), as_json=json, line=_line)


def _time(since: str | None) -> datetime | None:
    return None if since is None or since == "earliest" else time_of(since, "'--since'")


def _line(event: Event) -> Text:
    """An event for the eye; control characters would not be for it."""
    extras = [f"{number}:{extra}" for number, extra in enumerate(event[6:], 1) if extra is not None]
    parts = [event.type or "-", "-" if event.data is None else event.data, *extras]
    shown = "  ".join("".join(c if c.isprintable() else repr(c)[1:-1] for c in part) for part in parts)
    head = f"{event.id}  {event.time.astimezone():%Y-%m-%d %H:%M:%S}  "
    return Text.assemble((head, "dim"), shown)
