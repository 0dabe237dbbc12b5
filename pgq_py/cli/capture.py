"""`pgq capture add | ls | drop`: changes of tables as events."""

from __future__ import annotations

from typing import Annotated

import typer

from pgq_py.cli._options import Dsn, Json, client
from pgq_py.cli._output import Column, show_object, show_rows
from pgq_py.types import CaptureInfo

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Changes of tables as events: start, list, stop.")

Queue = Annotated[str, typer.Argument(metavar="QUEUE", show_default=False)]
Table = Annotated[str, typer.Argument(metavar="TABLE", show_default=False, help="As in SQL: schema.table.")]
Key = Annotated[
    str | None, typer.Option("--key", metavar="COLUMNS", help="What identifies a row, as a,b; else the primary key.")
]
Ignore = Annotated[
    str | None, typer.Option("--ignore", metavar="COLUMNS", help="Left out, as a,b; their changes alone are no event.")
]

_COLUMNS = (
    Column[CaptureInfo]("queue", lambda c: c.queue_name),
    Column[CaptureInfo]("table", lambda c: c.table_name),
    Column[CaptureInfo]("key", lambda c: ",".join(c.key_columns)),
    Column[CaptureInfo]("ignored", lambda c: ",".join(c.ignored_columns)),
    Column[CaptureInfo]("enabled", lambda c: c.enabled),
)


@app.command()
def add(  # noqa: PLR0917 - typer calls it by name
    queue: Queue, table: Table, key: Key = None, ignore: Ignore = None, dsn: Dsn = None, json: Json = False
) -> None:
    """Put every change of a table into a queue from now on, by triggers; again, to change how."""
    with client(dsn) as pgq:
        added = pgq.add_capture(queue, table, key=_names(key), ignore=_names(ignore))
    message = f"changes of {table} go into queue {queue}"
    facts = {"queue": queue, "table": table, "added": added}
    show_object(facts, message if added else f"{message} as before, now as given", as_json=json)


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


@app.command("ls")
def ls(
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", show_default=False)] = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """List the tables whose changes go into a queue, or into any."""
    with client(dsn) as pgq:
        show_rows(_COLUMNS, pgq.captures(queue), as_json=json)


@app.command()
def drop(table: Table, dsn: Dsn = None, json: Json = False) -> None:
    """Put no more changes of a table into a queue; what is there stays."""
    with client(dsn) as pgq:
        dropped = pgq.drop_capture(table)
    message = f"changes of {table} are no longer events" if dropped else f"changes of {table} were no events"
    show_object({"table": table, "dropped": dropped}, message, as_json=json)
