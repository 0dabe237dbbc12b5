"""`pgq bench latency | idle | armed | delay | jobs | loop | backlog`: what only running processes show.

Importing this adds them to `pgq bench`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from pgq_py.bench.armed import ArmedParameters, run_armed
from pgq_py.bench.backlog import BacklogParameters, run_backlog
from pgq_py.bench.delay import DelayParameters, run_delay
from pgq_py.bench.jobs import JobsParameters, run_jobs
from pgq_py.bench.latency import LatencyParameters, run_latency
from pgq_py.bench.loop import LoopParameters, run_loop
from pgq_py.bench.quiet import QuietParameters, run_quiet
from pgq_py.cli._options import Json
from pgq_py.cli.bench import Dsn, Rounds, app, progress_bars, show_result

__all__ = ["Scenario", "app"]


class Scenario(StrEnum):
    """What else happens during `latency`."""

    PLAIN = "plain"
    IDLE_WRITER = "idle-writer"
    DEAD_TICKER = "dead-ticker"
    FAILOVER = "failover"


Bounds = Annotated[bool, typer.Option("--bounds/--no-bounds", help="Whether missed times break a promise.")]
Seconds = Annotated[float, typer.Option(min=1, help="How long to measure.")]


@app.command()
def latency(  # noqa: PLR0917 - typer calls it by name
    rate: Annotated[float, typer.Option(min=0.1, max=5000, help="Events a second.")] = 50.0,
    seconds: Seconds = 20.0,
    scenario: Annotated[Scenario, typer.Option(help="What else happens.")] = Scenario.PLAIN,
    bounds: Bounds = True,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """How long does an event take from its sender to its handler? Producer, ticker and consumer are processes."""
    parameters = LatencyParameters(rate, seconds, scenario.value, bounds)
    with progress_bars() as progress:
        result = run_latency(parameters, dsn=dsn, progress=progress)
    show_result(result, as_json=json)


@app.command()
def idle(
    seconds: Seconds = 60.0,
    queues: Annotated[int, typer.Option(min=1, max=10_000, help="Queues in all.")] = 1,
    bounds: Bounds = True,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """What do a ticker and three consumers cost that have nothing to do?"""
    with progress_bars() as progress:
        result = run_quiet(QuietParameters(seconds, queues, bounds=bounds), dsn=dsn, progress=progress)
    show_result(result, as_json=json)


@app.command()
def armed(  # noqa: PLR0917 - typer calls it by name
    clients: Annotated[int, typer.Option(min=1, max=40, help="Sessions that send at the same time.")] = 16,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long each run takes.")] = 2.0,
    rounds: Rounds = 9,
    bounds: Bounds = True,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """What does a ticker cost that asked to be woken, and died?"""
    parameters = ArmedParameters(clients, seconds, rounds, bounds)
    with progress_bars() as progress:
        result = run_armed(parameters, dsn=dsn, progress=progress)
    show_result(result, as_json=json)


@app.command()
def delay(  # noqa: PLR0917 - typer calls it by name
    rate: Annotated[float, typer.Option(min=1, max=5000, help="Delayed events a second.")] = 500.0,
    nack_rate: Annotated[float, typer.Option(min=0, help="Nacks a second, of those events.")] = 100.0,
    seconds: Seconds = 60.0,
    pin_xmin: Annotated[
        bool, typer.Option("--pin-xmin", help="Another session holds an old snapshot meanwhile.")
    ] = False,
    bounds: Bounds = True,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Are delays punctual, and what do they leave behind? And what do a nack and many due retries cost?"""
    parameters = DelayParameters(rate, nack_rate, seconds, pin_xmin, bounds=bounds)
    with progress_bars() as progress:
        result = run_delay(parameters, dsn=dsn, progress=progress)
    show_result(result, as_json=json)


@app.command()
def loop(  # noqa: PLR0917
    clients: Annotated[int, typer.Option(min=1, max=32, help="Sessions that work at the same time.")] = 8,
    seconds: Annotated[int, typer.Option(min=1, help="How long each round takes.")] = 4,
    rounds: Rounds = 3,
    bounds: Bounds = True,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """How many jobs does a loop of plain SQL get done, beside the usual table of jobs?"""
    with progress_bars() as progress:
        result = run_loop(LoopParameters(clients, seconds, rounds, bounds=bounds), dsn=dsn, progress=progress)
    show_result(result, as_json=json)


@app.command()
def backlog(
    pending: Annotated[int, typer.Option(min=10_000, help="Jobs that wait in the deep queue.")] = 10_000_000,
    turns: Annotated[int, typer.Option(min=1, max=1000, help="Claims of each size, from either queue.")] = 100,
    bounds: Bounds = True,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Does a claim, or the status of a job, become slower with what waits? Ten million jobs take minutes to enqueue."""
    with progress_bars() as progress:
        result = run_backlog(BacklogParameters(pending, turns, bounds=bounds), dsn=dsn, progress=progress)
    show_result(result, as_json=json)


@app.command()
def jobs(  # noqa: PLR0917
    rate: Annotated[float, typer.Option(min=1, max=5000, help="Jobs a second, enqueued one by one.")] = 800.0,
    seconds: Seconds = 60.0,
    pin_xmin: Annotated[
        bool, typer.Option("--pin-xmin", help="Another session holds an old snapshot meanwhile.")
    ] = False,
    workers: Annotated[int, typer.Option(min=1, max=32, help="Processes that work.")] = 2,
    batch: Annotated[int, typer.Option(min=1, max=10_000, help="Jobs per claim, at most.")] = 25,
    baseline: Annotated[
        bool, typer.Option("--baseline/--no-baseline", help="Run a usual table of jobs as well.")
    ] = True,
    bounds: Bounds = True,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Do jobs stay as fast and as clean as at the start? On the log, and on a table with a row per job beside it."""
    parameters = JobsParameters(rate, seconds, pin_xmin, workers, batch, baseline=baseline, bounds=bounds)
    with progress_bars() as progress:
        result = run_jobs(parameters, dsn=dsn, progress=progress)
    show_result(result, as_json=json)
