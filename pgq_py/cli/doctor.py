"""`pgq doctor`: what is wrong, and the command that mends it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from pgq_py.cli._options import Dsn, Json, settings
from pgq_py.cli._output import Column, note, show_rows
from pgq_py.health import Finding, Limits, diagnose

__all__ = ["doctor"]

_COLUMNS = (
    Column[Finding]("severity", lambda f: f.severity),
    Column[Finding]("check", lambda f: f.check),
    Column[Finding]("subject", lambda f: f.subject),
    Column[Finding]("what", lambda f: f.what),
    Column[Finding]("mend", lambda f: f.mend),
)
_COLOURS = {"error": "bold red", "warning": "yellow", "info": "cyan"}


TickerLag = Annotated[float, typer.Option(metavar="SECONDS", min=0.05, help="How long events may wait for a tick.")]
ConsumerLag = Annotated[float, typer.Option(metavar="SECONDS", min=0, help="How far a consumer may be behind.")]
JobsWaiting = Annotated[float, typer.Option(metavar="SECONDS", min=0, help="How long jobs may wait for a worker.")]
RotationBlocked = Annotated[
    float, typer.Option(metavar="SECONDS", min=0, help="How long a transaction may hold up rotation, or vacuum.")
]


def doctor(  # noqa: PLR0917 - typer calls it by name
    ticker_lag: TickerLag = Limits.ticker,
    consumer_lag: ConsumerLag = Limits.consumer,
    rotation_blocked: RotationBlocked = Limits.rotation,
    jobs_waiting: JobsWaiting = Limits.jobs,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Name everything that is wrong, or worth knowing, each with the command that mends it. Nothing is changed.

    The exit status is 1 when there is an error among the findings.
    """
    found = diagnose(settings(dsn), Limits(ticker_lag, consumer_lag, rotation_blocked, jobs_waiting))
    if json or not sys.stdout.isatty():
        show_rows(_COLUMNS, found, as_json=json)
    else:
        _print(found)
    if not found:
        note("nothing is wrong")
    raise typer.Exit(1 if any(finding.severity == "error" for finding in found) else 0)


def _print(found: list[Finding]) -> None:
    """A paragraph for each: a table would break the commands, which are there to be copied."""
    console = Console(highlight=False, soft_wrap=True)
    for number, finding in enumerate(found):
        head = Text.assemble(
            (f"{finding.severity:8}", _COLOURS[finding.severity]), f"{finding.subject}: {finding.what}"
        )
        if number:
            console.print()
        console.print(head)
        console.print(Text.assemble(("   mend ", "dim"), (finding.mend, "bold")))
