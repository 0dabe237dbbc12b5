"""The options that all verbs have, and what follows from them: settings, a client, a bare connection, a confirmation.

`--dsn` and `--json` may stand before the verb or after it; a verb just declares `dsn: Dsn = None, json: Json = False`
and receives what was said, wherever.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import psycopg
import typer

from pgq_py import schema
from pgq_py.client import Client
from pgq_py.client.connecting import connect_kwargs
from pgq_py.errors import InvalidArgument, translate
from pgq_py.settings import Settings, load_settings

__all__ = ["Dsn", "Given", "Json", "Yes", "client", "confirm", "connection", "settings"]


@dataclass(frozen=True)
class Given:
    """What was given before the verb; the context's `obj`."""

    dsn: str | None = None
    json: bool = False


def _dsn(ctx: typer.Context, value: str | None) -> str | None:
    given = ctx.obj if isinstance(ctx.obj, Given) else Given()
    return given.dsn if value is None else value


def _json(ctx: typer.Context, value: bool) -> bool:
    given = ctx.obj if isinstance(ctx.obj, Given) else Given()
    return given.json or value


Dsn = Annotated[
    str | None,
    typer.Option(
        "--dsn",
        metavar="DSN",
        callback=_dsn,
        show_default=False,
        help="The database: a postgresql:// URL or `key=value` pairs. Default: PGQ_DSN, pgq.toml, pyproject.toml, "
        "else PGHOST, PGSERVICE and so on.",
    ),
]
Json = Annotated[bool, typer.Option("--json", callback=_json, help="Answer in JSON; 64-bit ids are strings.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def settings(dsn: str | None, **overrides: Any) -> Settings:
    """The process's settings. A DSN that cannot be read is wrong usage when it came from the command line."""
    try:
        return load_settings(dsn=dsn, **overrides)
    except InvalidArgument as exc:
        if dsn is None:
            raise
        raise typer.BadParameter(exc.message, param_hint="'--dsn'") from exc


@contextmanager
def client(dsn: str | None) -> Iterator[Client]:
    """A client of a database whose schema is there and of this version. Raises SchemaMissing, SchemaOutdated."""
    with Client(settings=settings(dsn)) as found:
        with found.transaction() as conn:
            schema.check(conn)
        yield found


@contextmanager
def connection(dsn: str | None, purpose: str) -> Iterator[psycopg.Connection[Any]]:
    """A bare connection, in autocommit mode, to a database in whatever state."""
    chosen = settings(dsn)
    with translate():
        conn = psycopg.connect(chosen.conninfo, **connect_kwargs(chosen, purpose))
    with conn:
        yield conn


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is lost. Ends the verb (status 1) at any answer but y or yes.

    Where nobody can be asked, `--yes` is wanted instead, and its absence is wrong usage.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise typer.BadParameter(f"{question} Say --yes: there is no terminal to ask on.", param_hint="'--yes'")
    typer.echo(f"{question} [y/N] ", nl=False, err=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        typer.echo("pgq: nothing was changed", err=True)
        raise typer.Exit(1)
