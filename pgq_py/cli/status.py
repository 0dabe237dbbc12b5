"""`pgq status`: queues, consumers, rotation, and what is wrong with them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from pgq_py.cli._options import Dsn, Json, client
from pgq_py.cli._output import Column, duration, ident, objects, seconds, size, table, tsv, write_json
from pgq_py.health import Health, Limits, Problem, examine
from pgq_py.types import ConsumerInfo, QueueInfo, RingBlocker, RingInfo

__all__ = ["status"]

_CONSUMERS = (
    Column[ConsumerInfo]("queue", lambda c: c.queue_name),
    Column[ConsumerInfo]("consumer", lambda c: c.consumer_name),
    Column[ConsumerInfo]("pending_events", lambda c: c.pending_events),
    Column[ConsumerInfo]("position_age_seconds", lambda c: seconds(c.lag), duration),
    Column[ConsumerInfo]("last_seen_seconds", lambda c: seconds(c.last_seen), duration),
    Column[ConsumerInfo]("last_tick", lambda c: ident(c.last_tick)),
    Column[ConsumerInfo]("open_batch", lambda c: ident(c.current_batch)),
)
_RINGS = (
    Column[RingInfo]("ring", lambda r: r.ring),
    Column[RingInfo]("queue", lambda r: r.queue_name),
    Column[RingInfo]("generation", lambda r: r.generation),
    Column[RingInfo]("closed", lambda r: r.closed),
    Column[RingInfo]("slots", lambda r: r.slots),
    Column[RingInfo]("bytes", lambda r: r.bytes, size),
    Column[RingInfo]("switched_at", lambda r: r.switched_at),
    Column[RingInfo]("skipped", lambda r: r.skipped),
    Column[RingInfo]("last_skip", lambda r: r.last_skip),
)
_BLOCKERS = (
    Column[RingBlocker]("slot", lambda b: b.slot),
    Column[RingBlocker]("pid", lambda b: b.pid),
    Column[RingBlocker]("prepared", lambda b: b.gid),
    Column[RingBlocker]("user", lambda b: b.usename),
    Column[RingBlocker]("database", lambda b: b.datname),
    Column[RingBlocker]("application", lambda b: b.application_name),
    Column[RingBlocker]("mode", lambda b: b.mode),
    Column[RingBlocker]("age_seconds", lambda b: seconds(b.age), duration),
)
_PROBLEMS = (
    Column[Problem]("kind", lambda p: p.kind),
    Column[Problem]("problem", lambda p: p.message),
    Column[Problem]("advice", lambda p: p.advice),
)

Section = tuple[str, Sequence[Column[Any]], Sequence[Any]]


def status(
    ticker_lag: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.05, help="How long events may wait for a tick.")
    ] = Limits.ticker,
    consumer_lag: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="How far a consumer may be behind.")
    ] = Limits.consumer,
    rotation_blocked: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="How long a transaction may hold up rotation.")
    ] = Limits.rotation,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Show queues, consumers and rotation. The exit status is 1 when something is wrong: nobody ticks, a consumer does
    not keep up, a transaction holds up rotation.
    """
    with client(dsn) as pgq:
        health = examine(pgq, Limits(ticker_lag, consumer_lag, rotation_blocked))
    _show(health, as_json=json)
    raise typer.Exit(0 if health.healthy else 1)


def _show(health: Health, *, as_json: bool) -> None:
    sections = _sections(health)
    if as_json:
        write_json(
            {"healthy": health.healthy, "version": health.version}
            | {name: objects(columns, rows) for name, columns, rows in sections}
        )
    elif sys.stdout.isatty():
        _print_tables(health, sections)
    else:
        typer.echo("\n".join(f"# {name}\n{tsv(columns, rows)}" for name, columns, rows in sections), nl=False)


def _sections(health: Health) -> list[Section]:
    return [
        ("queues", _queue_columns(health), health.queues),
        ("consumers", _CONSUMERS, health.consumers),
        ("rings", _RINGS, health.rings),
        ("blockers", _BLOCKERS, health.blockers),
        ("problems", _PROBLEMS, health.problems),
    ]


def _queue_columns(health: Health) -> tuple[Column[QueueInfo], ...]:
    return (
        Column("queue", lambda q: q.queue_name),
        Column("events_waiting", health.waiting),
        Column("tick_due", lambda q: q.queue_name in health.due),
        Column("last_tick", lambda q: ident(q.last_tick_id)),
        Column("tick_age_seconds", lambda q: seconds(q.ticker_lag), duration),
        Column("events_per_second", lambda q: None if q.ev_per_sec is None else round(q.ev_per_sec, 1)),
        Column("paused", lambda q: q.queue_ticker_paused),
        Column("external_ticker", lambda q: q.queue_external_ticker),
        Column("rotation_period_seconds", lambda q: seconds(q.queue_rotation_period), duration),
    )


def _print_tables(health: Health, sections: Sequence[Section]) -> None:
    console = Console()
    verdict = "[green]healthy[/]" if health.healthy else "[red]unhealthy[/]"
    console.print(f"schema pgq {health.version}: {verdict}")
    for name, columns, rows in sections:
        if rows and name != "problems":
            console.print()
            console.print(table(columns, rows, title=name))
    for problem in health.problems:
        console.print()
        console.print(Text(problem.message, "red"), soft_wrap=True)
        console.print(Text(problem.advice), soft_wrap=True)
