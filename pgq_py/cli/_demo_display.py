"""The demo while it runs, on stderr: a live panel on a terminal, else a line a second."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table

from pgq_py.cli._output import size
from pgq_py.demo import Sample

__all__ = ["display"]

_LINE_EVERY = 1.0


@contextmanager
def display(*, quiet: bool) -> Iterator[Callable[[Sample], None]]:
    """What to call with every Sample. `quiet` leaves a pipe without lines; a terminal shows the panel all the same."""
    if not sys.stderr.isatty():
        yield _ignore if quiet else _Lines().tell
        return
    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        yield lambda sample: live.update(_panel(sample), refresh=True)


def _ignore(sample: Sample) -> None:
    """Nobody is watching."""


class _Lines:
    """Plain lines: one for every stage, and one a second of traffic."""

    def __init__(self) -> None:
        self._stage = ""
        self._at = 0.0

    def tell(self, sample: Sample) -> None:
        if sample.stage == self._stage and sample.elapsed < self._at + _LINE_EVERY:
            return
        self._stage, self._at = sample.stage, sample.elapsed
        typer.echo(_line(sample) if sample.seconds else sample.stage, err=True)


def _line(sample: Sample) -> str:
    return (
        f"{sample.stage} {sample.elapsed:.0f}/{sample.seconds:.0f} s: {sample.events_per_second:,.0f} events/s, "
        f"mirrored {sample.mirrored:,}, counted {sample.counted:,}, worked {sample.worked:,}, "
        f"p50 {sample.p50_ms:.1f} ms, p99 {sample.p99_ms:.1f} ms, rotations {sample.rotations}, "
        f"log {size(sample.log_bytes)}, dead tuples {sample.dead_tuples}"
    )


def _panel(sample: Sample) -> Panel:
    if not sample.seconds:
        return Panel(sample.stage, title="pgq demo", title_align="left")
    facts = Table.grid(padding=(0, 3))
    for _ in range(4):
        facts.add_column(justify="right")
        facts.add_column()
    facts.add_row(
        f"{sample.events_per_second:,.0f}", "events/s", f"{sample.mirrored:,}", "mirrored",
        f"{sample.p50_ms:.1f} ms", "latency p50", f"{sample.rotations}", "rotations",
    )  # fmt: skip
    facts.add_row(
        f"{sample.dead_tuples}", "dead tuples in pgq", f"{sample.counted:,}", "counted",
        f"{sample.p99_ms:.1f} ms", "latency p99", size(sample.log_bytes), "log",
    )  # fmt: skip
    worked = f"{sample.worked:,} jobs worked"
    pinned = f"the xmin horizon is pinned, {sample.horizon_age:,} transactions ago"
    progress = Table.grid(padding=(0, 3))
    bar = ProgressBar(total=sample.seconds, completed=sample.elapsed, width=40)
    progress.add_row(bar, f"{sample.elapsed:.0f} of {sample.seconds:.0f} s")
    return Panel(Group(progress, facts, worked, pinned), title=f"pgq demo: {sample.stage}", title_align="left")
