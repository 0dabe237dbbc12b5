"""`pgq status`: queues, consumers, rotation, and what is wrong with them."""

from __future__ import annotations

import sys
import time
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from pgq_py.cli._options import Dsn, Json, client
from pgq_py.cli._output import objects, table, tsv, write_json
from pgq_py.cli._sections import sections_of
from pgq_py.client import Client
from pgq_py.health import Health, Limits, examine

__all__ = ["status"]

WATCH_INTERVAL = 2.0


Every = Annotated[
    float | None,
    typer.Argument(metavar="[SECONDS]", min=0.1, show_default=False, help="With --watch: how often; 2."),
]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Show it again and again, until Ctrl-C.")]
TickerLag = Annotated[float, typer.Option(metavar="SECONDS", min=0.05, help="How long events may wait for a tick.")]
ConsumerLag = Annotated[float, typer.Option(metavar="SECONDS", min=0, help="How far a consumer may be behind.")]
JobsWaiting = Annotated[float, typer.Option(metavar="SECONDS", min=0, help="How long jobs may wait for a worker.")]
RotationBlocked = Annotated[
    float, typer.Option(metavar="SECONDS", min=0, help="How long a transaction may hold up rotation.")
]


def status(  # noqa: PLR0917 - typer calls it by name
    every: Every = None,
    watch: Watch = False,
    ticker_lag: TickerLag = Limits.ticker,
    consumer_lag: ConsumerLag = Limits.consumer,
    rotation_blocked: RotationBlocked = Limits.rotation,
    jobs_waiting: JobsWaiting = Limits.jobs,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Show queues, consumers and rotation. The exit status is 1 when something is wrong: nobody ticks, a consumer does
    not keep up, nobody works jobs, a transaction holds up rotation.
    """
    if every is not None and not watch:
        raise typer.BadParameter("say --watch for it to be shown every so many seconds", param_hint="'SECONDS'")
    limits = Limits(ticker_lag, consumer_lag, rotation_blocked, jobs_waiting)
    with client(dsn) as pgq:
        if watch:
            _watch(pgq, limits, every or WATCH_INTERVAL, as_json=json)
        health = examine(pgq, limits)
    _show(health, as_json=json)
    raise typer.Exit(0 if health.healthy else 1)


def _watch(pgq: Client, limits: Limits, every: float, *, as_json: bool) -> None:
    """Until Ctrl-C: in place on a terminal, else block after block, each behind its time."""
    if as_json or not sys.stdout.isatty():
        while True:
            _show(examine(pgq, limits), as_json=as_json, heading=f"# {datetime.now().astimezone().isoformat()}")
            sys.stdout.flush()
            time.sleep(every)
    with Live(console=Console(), auto_refresh=False, screen=True) as live:
        while True:
            live.update(_screen(examine(pgq, limits), f"{datetime.now():%H:%M:%S}"), refresh=True)  # noqa: DTZ005
            time.sleep(every)


def _show(health: Health, *, as_json: bool, heading: str = "") -> None:
    sections = sections_of(health)
    if as_json:
        write_json(
            {"healthy": health.healthy, "version": health.version, "parts": list(health.parts)}
            | {name: objects(columns, rows) for name, columns, rows in sections}
        )
    elif sys.stdout.isatty():
        Console().print(_screen(health, ""), soft_wrap=True)
    else:
        blocks = "\n".join(f"# {name}\n{tsv(columns, rows)}" for name, columns, rows in sections)
        typer.echo(f"{heading}\n\n{blocks}\n" if heading else blocks, nl=False)


def _screen(health: Health, at: str) -> RenderableType:
    """Tables of what there is, and a paragraph for each problem."""
    verdict = Text("healthy", "green") if health.healthy else Text("unhealthy", "red")
    name = f"schema pgq {health.version}" + (f" with {', '.join(health.parts)}" if health.parts else "")
    parts: list[RenderableType] = [Text.assemble(f"{name}: ", verdict, f"  {at}" if at else "")]
    for name, columns, rows in sections_of(health):
        if rows and name != "problems":
            parts += ["", table(columns, rows, title=name)]
    for problem in health.problems:
        parts += ["", Text(problem.message, "red"), Text(problem.advice)]
    return Group(*parts)
