"""`pgq adopt`: take a database over from PgQ."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from pgq_py.cli._options import Dsn, Json, Yes, confirm, connection
from pgq_py.cli._output import note, show_object
from pgq_py.schema.adopt import adopt as take_over
from pgq_py.schema.adopt import rehearse

__all__ = ["adopt"]


def adopt(
    wait: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.1, help="How long to wait for transactions that use the old schema."),
    ] = 30.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be taken over, and do nothing.")] = False,
    yes: Yes = False,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Take over the schema of PgQ 3: queues, settings, consumers, positions, unread events, retries.

    In one transaction, with the ids that they have; or it is refused, with the reason, and nothing is changed. The
    schema may belong to an extension or not. Producers and consumers stand still meanwhile.
    """
    with connection(dsn, "adopt") as conn:
        if not dry_run:
            confirm(f"Replace PgQ's schema in database {conn.info.dbname} by ours?", yes=yes)
        done = rehearse(conn) if dry_run else take_over(conn, wait=wait, notify=note)
    events = "" if done.events is None else f", {done.events} events"
    message = (
        f"{'would take' if dry_run else 'took'} over {done.queues} queues, {done.consumers} consumers{events}, "
        f"{done.retries} retries, {done.open_batches} open batches, {done.triggers} triggers"
    )
    show_object(asdict(done) | {"parts": list(done.parts), "executed": not dry_run}, message, as_json=json)
