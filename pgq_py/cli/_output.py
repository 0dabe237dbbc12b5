"""How answers are written: data on stdout, everything else on stderr.

The same rows have three forms. On a terminal they are a table for the eye: durations and sizes in round units. In a
pipe they are tab-separated values, with a line of names first; a tab, newline or backslash inside a value is escaped as
COPY does, and no value is an empty field. With `--json` they are an array of objects. TSV and JSON have the same fields
and exact values: times in ISO 8601, durations in seconds (the name says so), 64-bit ids as strings, which no reader
rounds to a double.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, Literal, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = [
    "Column",
    "duration",
    "fields",
    "ident",
    "note",
    "objects",
    "seconds",
    "show_fields",
    "show_object",
    "show_rows",
    "size",
    "stream_rows",
    "table",
    "tsv",
    "tsv_names",
    "write_json",
]

T = TypeVar("T")

_COPY_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


@dataclass(frozen=True)
class Column(Generic[T]):
    """A field of a row: its name in TSV and JSON, where its value comes from, and how it looks on a terminal.

    `get` returns what JSON can hold, or a datetime. A `quiet` column is worth a place on a terminal only where it has
    something to say: a number that is not 0, a yes.
    """

    name: str
    get: Callable[[T], Any]
    pretty: Callable[[Any], str] = str
    quiet: bool = False

    @property
    def title(self) -> str:
        return self.name.removesuffix("_seconds").replace("_", " ")


def show_rows(columns: Sequence[Column[T]], rows: Iterable[T], *, as_json: bool) -> None:
    """Write rows to stdout in the form that fits."""
    if as_json:
        write_json(objects(columns, rows))
    elif sys.stdout.isatty():
        Console().print(table(columns, rows))
    else:
        sys.stdout.write(tsv(columns, rows))


def stream_rows(columns: Sequence[Column[T]], rows: Iterable[T], *, as_json: bool, line: Callable[[T], Text]) -> None:
    """Write rows as they come: with `as_json` an object per line, on a terminal what `line` makes of each, else TSV
    without the names."""
    if as_json:
        for row in rows:
            found = {column.name: column.get(row) for column in columns}
            sys.stdout.write(json.dumps(found, ensure_ascii=False, default=_json_value) + "\n")
    elif sys.stdout.isatty():
        console = Console(soft_wrap=True)
        for row in rows:
            console.print(line(row))
    else:
        for row in rows:
            sys.stdout.write(_tsv_line(columns, row))
    sys.stdout.flush()


def show_fields(columns: Sequence[Column[T]], row: T, *, as_json: bool) -> None:
    """One row: an object in JSON, a line per field on a terminal, TSV as ever."""
    if as_json:
        write_json(objects(columns, [row])[0])
    elif sys.stdout.isatty():
        Console().print(fields(columns, row), soft_wrap=True)
    else:
        sys.stdout.write(tsv(columns, [row]))


def fields(columns: Sequence[Column[T]], row: T) -> Table:
    """A row for the eye: a line per field that has a value."""
    found = Table.grid(padding=(0, 2))
    for column in columns:
        value = column.get(row)
        if value is not None:
            found.add_row(Text(column.title, "bold"), Text(_cell(column, value)))
    return found


def show_object(facts: Mapping[str, Any], message: str, *, as_json: bool) -> None:
    """The answer of a verb that did something: an object with `--json`, else a sentence on stderr."""
    if as_json:
        write_json(facts)
    else:
        note(message)


def note(message: str) -> None:
    """A sentence for a person, on stderr."""
    typer.echo(message, err=True)


def write_json(value: Any) -> None:
    """One JSON text on stdout, in lines for the eye on a terminal, else on one line."""
    indent = 2 if sys.stdout.isatty() else None
    typer.echo(json.dumps(value, indent=indent, ensure_ascii=False, default=_json_value))


def objects(columns: Sequence[Column[T]], rows: Iterable[T]) -> list[dict[str, Any]]:
    """Rows as dicts for JSON."""
    return [{column.name: column.get(row) for column in columns} for row in rows]


def tsv(columns: Sequence[Column[T]], rows: Iterable[T]) -> str:
    """Rows as tab-separated lines, after one with the names."""
    return tsv_names(columns) + "".join(_tsv_line(columns, row) for row in rows)


def tsv_names(columns: Sequence[Column[Any]]) -> str:
    """The first line of TSV."""
    return "\t".join(column.name for column in columns) + "\n"


def _tsv_line(columns: Sequence[Column[T]], row: T) -> str:
    return "\t".join(_field(column.get(row)) for column in columns) + "\n"


def table(columns: Sequence[Column[T]], rows: Iterable[T], title: str | None = None) -> Table:
    """Rows as a table; numbers are to the right, and a column that says nothing is left out."""
    found = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    cells = [[column.get(row) for column in columns] for row in rows]
    shown = [n for n, column in enumerate(columns) if not cells or any(_says(column, line[n]) for line in cells)]
    for number in shown:
        values = [line[number] for line in cells]
        numeric = any(isinstance(value, int | float) for value in values)
        whole = numeric or any(isinstance(value, datetime) for value in values)
        justify: Literal["left", "right"] = "right" if numeric else "left"
        # on a narrow terminal text is folded, not numbers and times
        width = max(len(_cell(columns[number], value)) for value in values) if whole else None
        found.add_column(columns[number].title, justify=justify, overflow="fold", min_width=width)
    for line in cells:
        found.add_row(*(Text(_cell(columns[number], line[number])) for number in shown))
    return found


def _says(column: Column[Any], value: Any) -> bool:
    return bool(value) if column.quiet else value is not None


def ident(value: int | None) -> str | None:
    """A 64-bit id as text."""
    return None if value is None else str(value)


def seconds(value: timedelta | None) -> float | None:
    """A duration in seconds, to the microsecond."""
    return None if value is None else round(value.total_seconds(), 6)


def duration(value: float) -> str:
    """Seconds for the eye: `0.3 s`, `4 min`, `2.1 h`, `3 d`."""
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if abs(value) < limit:
            return f"{value / unit:.3g} {name}"
    return f"{value / 86_400:.0f} d"


def size(value: int) -> str:
    """Bytes for the eye, in PostgreSQL's units of 1024."""
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1024:
            return f"{amount:.3g} {unit}" if amount < 100 else f"{amount:.0f} {unit}"
        amount /= 1024
    return f"{amount:.4g} TB"


def _cell(column: Column[Any], value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"{value.astimezone():%Y-%m-%d %H:%M:%S}"
    return column.pretty(value)


def _field(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value).translate(_COPY_ESCAPES)


def _json_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"not for JSON: {type(value).__name__}")
