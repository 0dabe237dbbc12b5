"""What a terminal shows: a bar for each stage while it runs, tables afterwards."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table

from pgq_py.bench.rounds import Progress, silent

__all__ = ["bars", "pretty", "summary"]


@contextmanager
def bars() -> Iterator[Progress]:
    """A bar for each stage on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield silent
        return
    columns = (TextColumn("{task.description:28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)

        yield show


def pretty(value: float | None) -> str:
    """Three digits that mean something."""
    if value is None:
        return ""
    if abs(value) >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}"


def summary(result: dict[str, Any]) -> None:
    """Tables of a result's figures and ratios; whoever is absent, failed, or lost something, in words."""
    present = sum(peer["present"] for peer in result["peers"].values())
    console = Console(width=None if sys.stdout.isatty() else 60 + 12 * present)
    console.print(_figures(result))
    aims = [ratio for ratio in result["ratios"] if "aim" in ratio]
    if aims:
        console.print(_ratios(aims))
    for name, peer in result["peers"].items():
        if not peer["present"]:
            console.print(f"absent: {name}: {peer['reason']}", markup=False, highlight=False)
    for check in result["checks"]:
        if not check["ok"]:
            lost = ", ".join(f"{check[what]:,} {what}" for what in ("missing", "doubled", "foreign"))
            console.print(f"WRONG: {check['peer']}, {check['what']}: of {check['sent']:,} sent {lost}", markup=False)
    for failure in result["failures"]:
        lines = failure["error"].strip().splitlines() or [""]
        console.print(f"FAILED: {failure['peer']}, {failure['what']}: {lines[0]}", markup=False)


def _figures(result: dict[str, Any]) -> Table:
    """A row for each figure, a column for each peer; the spread is in the JSON and in the pictures."""
    peers = [name for name, peer in result["peers"].items() if peer["present"]]
    table = Table(title=result["workload"], header_style="bold")
    table.add_column("figure", no_wrap=True)
    table.add_column("unit")
    for name in peers:
        table.add_column(name, justify="right")
    values = {(figure["figure"], figure["peer"]): figure for figure in result["figures"]}
    for name in dict.fromkeys(figure["figure"] for figure in result["figures"]):
        found = [values.get((name, peer)) for peer in peers]
        unit = next(figure["unit"] for figure in found if figure)
        table.add_row(name, unit, *(pretty(figure["median"]) if figure else "" for figure in found))
    return table


def _ratios(aims: list[dict[str, Any]]) -> Table:
    table = Table(title="ratios that were aimed at", header_style="bold")
    for name in ("figure", "ours", "theirs", "ratio", "low", "high", "aim", ""):
        table.add_column(name)
    for ratio in aims:
        bound = f"{'>=' if ratio['at_least'] else '<='} {ratio['aim']:g}"
        spread = [f"{ratio[name]:.2f}" for name in ("median", "low", "high")]
        verdict = "reached" if ratio["reached"] else "MISSED"
        table.add_row(ratio["figure"], ratio["ours"], ratio["theirs"], *spread, bound, verdict)
    return table
