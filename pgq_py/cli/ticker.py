"""`pgq ticker`: the process that ticks and maintains."""

from __future__ import annotations

from typing import Annotated

import typer

from pgq_py.cli._logs import Verbose, start_logging
from pgq_py.cli._options import Dsn, Json, settings
from pgq_py.cli._output import show_object
from pgq_py.ticker import Ticker

__all__ = ["ticker"]


def ticker(
    once: Annotated[bool, typer.Option("--once", help="Tick what is due, maintain once, and end.")] = False,
    tick_interval: Annotated[
        float | None, typer.Option("--interval", metavar="SECONDS", help="Between two looks for events (0.05).")
    ] = None,
    verbose: Verbose = False,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Tick every queue where that is due, and rotate; until SIGTERM or Ctrl-C. Several may run side by side."""
    start_logging(verbose=verbose)
    process = Ticker(settings(dsn, tick_interval=tick_interval))
    if once:
        ticks = process.run_once()
        show_object({"ticks": ticks}, f"made {ticks} tick" + ("" if ticks == 1 else "s"), as_json=json)
    else:
        process.run()
