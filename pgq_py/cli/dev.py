"""`pgq dev`: everything that an application needs while it is being written, for as long as the command runs."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import psycopg
import typer

from pgq_py import embedded, schema
from pgq_py.app import AsyncPgQ, PgQ
from pgq_py.cli._logs import Format, LogFormat, Verbose, start_logging
from pgq_py.cli._options import Json, settings
from pgq_py.cli._output import note, write_json
from pgq_py.cli.run import check_target, load_app, run_app
from pgq_py.client import Client
from pgq_py.client.acompat import Stop
from pgq_py.errors import PgqError
from pgq_py.signals import stop_on_signals
from pgq_py.ticker import Ticker

__all__ = ["dev"]


Target = Annotated[
    str | None, typer.Argument(metavar="[MODULE:OBJ]", show_default=False, help="Run its consumers as well.")
]
Tcp = Annotated[bool, typer.Option("--tcp", help="Listen on 127.0.0.1 too, for tools that know no Unix sockets.")]


def dev(
    target: Target = None,
    tcp: Tcp = False,
    log_format: LogFormat = Format.TEXT,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Start an embedded PostgreSQL with the schema and a ticker, and say how to reach it, until SIGTERM or Ctrl-C.

    With MODULE:OBJ the consumers declared there run too, and the queues that they name are created. Everything is gone
    afterwards.
    """
    if target is not None:
        check_target(target)
    start_logging(verbose=verbose, log_format=log_format)
    stop = Stop()
    with stop_on_signals(stop.set), embedded.server(tcp=tcp) as server:
        dsn = server.dsn()
        with psycopg.connect(dsn) as conn:
            schema.install(conn)
        app = None if target is None else _application(target, dsn)
        _announce(dsn, as_json=json)
        with _ticking(dsn):
            if app is None or stop.is_set():
                stop.wait()
            else:
                run_app(app)


@contextmanager
def _ticking(dsn: str) -> Iterator[None]:
    """A ticker in a thread."""
    ticker = Ticker(settings(dsn))
    thread = threading.Thread(target=ticker.run, name="ticker")
    thread.start()
    try:
        yield
    finally:
        ticker.stop()
        thread.join()


def _application(target: str, dsn: str) -> PgQ | AsyncPgQ:
    """The application on this server. One that names another database itself is refused: it must not run on that."""
    os.environ["PGQ_DSN"] = dsn
    app = load_app(target)
    if app.settings.conninfo != dsn:
        raise PgqError(
            f"{target} names a database of its own",
            advice="Nothing was started. Make it `PgQ()`, without a DSN: `pgq dev` sets PGQ_DSN.",
        )
    with Client(dsn) as client:
        for spec in app.declared:
            client.create_queue(spec.queue)
    return app


def _announce(dsn: str, *, as_json: bool) -> None:
    """The DSN is the answer: the first line on stdout."""
    facts: dict[str, Any] = {"dsn": dsn}
    if as_json:
        write_json(facts)
    else:
        typer.echo(dsn)
    sys.stdout.flush()
    note("It runs until Ctrl-C, and is gone then. In another shell:\n\n    export PGQ_DSN='" + dsn + "'\n")
