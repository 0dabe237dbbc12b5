"""`pgq bench compare`: two results side by side. Importing this adds it to `pgq bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pgq_py.bench.compare import Comparison, differences, load
from pgq_py.bench.compare import compare as compare_results
from pgq_py.cli._options import Json
from pgq_py.cli._output import Column, note, show_rows
from pgq_py.cli.bench_live import app

__all__ = ["app"]


def _three(value: float) -> str:
    return f"{value:.3g}"


def _percent(value: float) -> str:
    return f"{value:+.1%}"


_COLUMNS = (
    Column[Comparison]("figure", lambda row: row.figure),
    Column[Comparison]("a", lambda row: row.a, _three),
    Column[Comparison]("a_low", lambda row: row.a_low, _three),
    Column[Comparison]("a_high", lambda row: row.a_high, _three),
    Column[Comparison]("b", lambda row: row.b, _three),
    Column[Comparison]("b_low", lambda row: row.b_low, _three),
    Column[Comparison]("b_high", lambda row: row.b_high, _three),
    Column[Comparison]("change", lambda row: row.change, _percent),
    Column[Comparison]("verdict", lambda row: row.verdict),
)


@app.command()
def compare(
    a: Annotated[Path, typer.Argument(metavar="A.json", help="A result, written with --json.")],
    b: Annotated[Path, typer.Argument(metavar="B.json", help="Another one of the same benchmark.")],
    json: Json = False,
) -> None:
    """Compare two results by their ratios. Exit status 1: something is worse, beyond the spread of both."""
    first, second = load(a), load(b)
    rows = compare_results(first, second)
    show_rows(_COLUMNS, rows, as_json=json)
    for line in differences(first, second):
        note(f"different: {line}")
    if any(row.verdict == "worse" for row in rows):
        raise typer.Exit(1)
