"""`pgq demo`: real traffic on an embedded PostgreSQL, a log under it, and the proof."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from pgq_py.cli._demo_display import display
from pgq_py.cli._options import Dsn, Json
from pgq_py.cli._output import write_json
from pgq_py.demo import Options, Result, run_demo

__all__ = ["demo"]


def demo(
    seconds: Annotated[int, typer.Option(min=2, max=86_400, help="How long pgbench runs.")] = Options.seconds,
    clients: Annotated[int, typer.Option(min=1, max=50, help="How many clients pgbench has.")] = Options.clients,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Show the log at work: pgbench's transactions each send an event, one consumer mirrors the accounts exactly once,
    another counts, a pool of workers does jobs, slots rotate, and an idle transaction pins the xmin horizon. The exit
    status is 1 unless the mirror equals pgbench's own table, each job took effect once, and every other promise holds.

    It runs on an embedded server, or with --dsn in a database of its own on that server; neither is left behind.
    """
    signal.signal(signal.SIGTERM, _terminate)
    with display(quiet=json) as tell:
        result = run_demo(Options(seconds, clients, dsn), tell)
    if json:
        write_json(result.as_dict())
    else:
        _report(result)
    raise typer.Exit(0 if result.held else 1)


def _terminate(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    """End as Ctrl-C does, so that everything is put away."""
    sys.exit(128 + number)


def _report(result: Result) -> None:
    console = Console(highlight=False, soft_wrap=True)
    latency = ", ".join(f"{name} {value:g} ms" for name, value in result.latency_ms.items())
    console.print(
        f"PostgreSQL {result.postgresql}, {result.clients} pgbench clients, {result.seconds:g} s: "
        f"{result.events:,} events, {result.events_per_second:,.0f} events/s, {result.jobs:,} jobs"
    )
    console.print(f"from send to handler, commit included: {latency}")
    for promise in result.promises:
        mark = Text("ok    ", "green") if promise.held else Text("FAILED", "bold red")
        console.print(mark, Text(promise.text))
