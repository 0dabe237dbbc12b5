"""`pgq install | upgrade | uninstall`: the schema pgq of a database."""

from __future__ import annotations

from typing import Annotated, Any

import psycopg
import typer

from pgq_py import __version__, schema
from pgq_py.cli._options import Dsn, Json, confirm, connection
from pgq_py.cli._output import Column, note, show_object, show_rows
from pgq_py.errors import PgqError, SchemaMissing

__all__ = ["install", "uninstall", "upgrade"]

Sql = Annotated[bool, typer.Option("--sql", help="Print the SQL, as one transaction for psql, and do nothing.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]

_STEPS = (Column[schema.Step]("step", lambda step: step.title),)

_DROP = "drop schema pgq cascade;\ndrop schema if exists pgq_coop, pgq_ext cascade;"


With = Annotated[
    str,
    typer.Option(
        "--with",
        metavar="PARTS",
        show_default=False,
        help="Optional parts beside those that are there: coop (cooperative consumers), ext (remote tracking), or "
        "coop,ext. Upgrades keep them.",
    ),
]


def install(parts: With = "", sql: Sql = False, dry_run: DryRun = False, dsn: Dsn = None, json: Json = False) -> None:
    """Install the schema pgq, or bring it up to date. With --sql: the script for a database without it."""
    wanted = [part.strip() for part in parts.split(",") if part.strip()]
    if sql:
        typer.echo(schema.script(parts=wanted), nl=False)
        return
    with connection(dsn, "install") as conn:
        if dry_run:
            show_rows(_STEPS, schema.plan(conn, parts=wanted).steps, as_json=json)
        else:
            _report(schema.install(conn, parts=wanted, notify=note), as_json=json)


def upgrade(sql: Sql = False, dry_run: DryRun = False, dsn: Dsn = None, json: Json = False) -> None:
    """Bring the schema pgq up to date; every event and consumer is kept. With --sql: the script for this database."""
    with connection(dsn, "upgrade") as conn:
        if not (sql or dry_run):
            _report(schema.upgrade(conn, notify=note), as_json=json)
            return
        plan = _plan_of_upgrade(conn)
        if sql:
            typer.echo(plan.script(), nl=False)
        else:
            show_rows(_STEPS, plan.steps, as_json=json)


def uninstall(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, and drop unread events as well.")] = False,
    sql: Sql = False,
    dry_run: DryRun = False,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Drop the schema pgq with everything in it. Without --yes it asks, and refuses while events may be unread."""
    if sql:
        typer.echo(_DROP)
        return
    with connection(dsn, "uninstall") as conn:
        if dry_run:
            _rehearse_uninstall(conn, as_json=json)
            return
        confirm(f"Drop the schema pgq of database {conn.info.dbname}?", yes=yes)
        dropped = schema.uninstall(conn, force=yes, notify=note)
    message = "dropped the schema pgq" if dropped else "there was no schema pgq"
    show_object({"schema": "pgq", "dropped": dropped}, message, as_json=json)


def _plan_of_upgrade(conn: psycopg.Connection[Any]) -> schema.Plan:
    """What upgrade would do. Raises SchemaMissing, which a plan of an installation would not."""
    try:
        schema.check(conn)
    except SchemaMissing:
        raise
    except PgqError:
        pass  # outdated is why one upgrades; what a plan cannot mend, it raises itself
    return schema.plan(conn)


def _rehearse_uninstall(conn: psycopg.Connection[Any], *, as_json: bool) -> None:
    """Name the queues that would go. Raises SchemaMissing, ForeignSchema."""
    schema.check(conn)
    queues = [row[0] for row in conn.execute("select queue_name from pgq.queue order by 1")]
    message = "would drop the schema pgq" + (f" and its queues: {', '.join(queues)}" if queues else ", without queues")
    show_object({"schema": "pgq", "queues": queues}, message, as_json=as_json)


def _report(done: schema.Plan, *, as_json: bool) -> None:
    facts = {
        "schema": "pgq",
        "version": __version__,
        "changed": bool(done),
        "steps": [step.title for step in done.steps],
    }
    steps = f"{len(done.steps)} step" + ("s" if len(done.steps) > 1 else "")
    message = f"the schema pgq is at version {__version__}" + (f": {steps}" if done else ", nothing to do")
    show_object(facts, message, as_json=as_json)
