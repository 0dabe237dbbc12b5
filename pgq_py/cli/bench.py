"""`pgq bench cycle | produce | consume`, and what all benchmarks share: measure, and fail when a promise is broken."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import TaskID

from pgq_py.bench import (
    ConsumeParameters,
    CycleParameters,
    Line,
    ProduceParameters,
    Progress,
    Result,
    run_consume,
    run_cycle,
    run_produce,
    silent,
)
from pgq_py.cli._boundary import complain
from pgq_py.cli._options import Given, Json
from pgq_py.cli._output import Column, note, show_rows, write_json

__all__ = ["Dsn", "Rounds", "app", "progress_bars", "show_result"]

app = typer.Typer(
    no_args_is_help=True,
    help="Benchmarks, each on a server of its own that is gone afterwards. Exit status 1: a promise was broken.",
)


def _given_dsn(ctx: typer.Context, value: str | None) -> str | None:
    given = ctx.obj if isinstance(ctx.obj, Given) else Given()
    return given.dsn if value is None else value


Dsn = Annotated[
    str | None,
    typer.Option(
        "--dsn",
        metavar="DSN",
        callback=_given_dsn,
        show_default=False,
        help="Use this server, in a new database that is dropped at the end. Default: an embedded server; PGQ_DSN is "
        "not used.",
    ),
]
Rounds = Annotated[int, typer.Option(min=1, help="Turns of each way, after one that does not count.")]


def _pretty(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


_COLUMNS = (
    Column[Line]("figure", lambda line: line.figure),
    Column[Line]("value", lambda line: line.value, _pretty),
    Column[Line]("unit", lambda line: line.unit),
    Column[Line]("low", lambda line: line.low, _pretty),
    Column[Line]("high", lambda line: line.high, _pretty),
)


@app.command()
def cycle(  # noqa: PLR0917 - typer calls it by name
    cycles: Annotated[int, typer.Option(min=6, help="Cycles to measure.")] = 6000,
    consumers: Annotated[int, typer.Option(min=1, max=30)] = 3,
    pin_xmin: Annotated[
        bool, typer.Option("--pin-xmin", help="Another session holds an old snapshot meanwhile.")
    ] = False,
    rotation_seconds: Annotated[float, typer.Option(min=0, help="Age at which slots switch.")] = 5.0,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Does it stay fast? Insert, tick, and every consumer takes, reads and finishes, again and again."""
    parameters = CycleParameters(cycles, consumers, pin_xmin, rotation_seconds)
    with progress_bars() as progress:
        result = run_cycle(parameters, dsn=dsn, progress=progress)
    show_result(result, as_json=json)


@app.command()
def produce(
    bulk: Annotated[int, typer.Option(min=1, help="Events of a bulk run; the others in proportion.")] = 100_000,
    rounds: Rounds = 9,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """How fast do events get in? In bulk, one by one and in the server, beside COPY and INSERT."""
    parameters = ProduceParameters.of(bulk, rounds)
    with progress_bars() as progress:
        result = run_produce(parameters, dsn=dsn, progress=progress)
    show_result(result, as_json=json)


@app.command()
def consume(
    events: Annotated[int, typer.Option(min=1, help="Events of the batch that is timed.")] = 200_000,
    memory_events: Annotated[
        int, typer.Option(min=1, help="Events of the batch whose memory is measured.")
    ] = 1_000_000,
    rounds: Rounds = 9,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """How fast do events get out, and how much memory does a large batch need?"""
    parameters = ConsumeParameters(events, memory_events, rounds)
    with progress_bars() as progress:
        result = run_consume(parameters, dsn=dsn, progress=progress)
    show_result(result, as_json=json)


def show_result(result: Result, *, as_json: bool) -> None:
    """Write the result; broken promises go to stderr and end the process with status 1."""
    if as_json:
        write_json(result.as_json())
    else:
        show_rows(_COLUMNS, result.lines(), as_json=False)
    for promise in result.promises:
        if promise.kept and not as_json:
            note(f"kept: {promise}")
        elif not promise.kept:
            complain(f"promise broken: {promise}")
    if not result.ok:
        raise typer.Exit(1)


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """A bar for each stage on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield silent
        return
    with Bar(console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)

        yield show
