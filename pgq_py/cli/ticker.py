"""`pgq ticker`: the process that ticks and maintains."""

from __future__ import annotations

from typing import Annotated

import typer
from psycopg.conninfo import make_conninfo

from pgq_py.cli._logs import Format, LogFormat, Verbose, start_logging
from pgq_py.cli._options import Dsn, Json, settings
from pgq_py.cli._output import show_object
from pgq_py.client import queries
from pgq_py.client._sync import calls
from pgq_py.client._sync.connections import connect
from pgq_py.errors import SchemaMissing
from pgq_py.settings import Settings
from pgq_py.ticker import Ticker, TickerEverywhere

__all__ = ["ticker"]


Once = Annotated[bool, typer.Option("--once", help="Tick what is due, maintain once, and end.")]
AllDatabases = Annotated[
    bool,
    typer.Option("--all-databases", help="Every database of the server that has the schema, also those to come."),
]
Interval = Annotated[
    float | None,
    typer.Option("--interval", metavar="SECONDS", help="Between two looks for events in a rush (0.002)."),
]


def ticker(  # noqa: PLR0917 - typer calls it by name
    once: Once = False,
    all_databases: AllDatabases = False,
    tick_interval: Interval = None,
    log_format: LogFormat = Format.TEXT,
    verbose: Verbose = False,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Tick every queue where that is due, release delayed events, and rotate; until SIGTERM or Ctrl-C.

    Several may run side by side: one leads, the others take over when it ends.
    """
    start_logging(verbose=verbose, log_format=log_format)
    chosen = settings(dsn, tick_interval=tick_interval)
    if once:
        done = _everywhere_once(chosen) if all_databases else {"ticks": Ticker(chosen).run_once()}
        ticks = done["ticks"]
        where = f" in {done['databases']} databases" if all_databases else ""
        show_object(done, f"made {ticks} tick{'' if ticks == 1 else 's'}{where}", as_json=json)
    elif all_databases:
        TickerEverywhere(chosen).run()
    else:
        Ticker(chosen).run()


def _everywhere_once(chosen: Settings) -> dict[str, int]:
    """One round in each database that has the schema; how many ticks that took, in how many databases."""
    with connect(chosen, "ticker discovery") as conn:
        names: list[str] = calls.values(conn, queries.DATABASES)
    ticks = databases = 0
    for name in names:
        dsn = make_conninfo(chosen.conninfo, dbname=name)
        try:
            ticks += Ticker(chosen.model_copy(update={"dsn": type(chosen.dsn)(dsn)})).run_once()
            databases += 1
        except SchemaMissing:
            continue
    return {"ticks": ticks, "databases": databases}
