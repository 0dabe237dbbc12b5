"""docs/reference/cli.md: every verb of `pgq`, from the tree that the command itself runs.

Only what our own code says is written (names, helps, defaults), not how typer would lay it out: the page must not
change with typer's version.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer.main

from pgq_py.cli._main import app
from pgq_py.settings import Settings

__all__ = ["page"]

INTRO = """\
# Command line

`pgq` is also `python -m pgq_py`. Data goes to stdout, everything else to stderr. Rows are a table on a terminal and
tab-separated values, with a line of names, in a pipe; with `--json` they are an array of objects. TSV and JSON have the
same fields and exact values: times in ISO 8601, durations in seconds, 64-bit ids in JSON as strings. The shape of each
verb's JSON is in `pgq_py.cli.schemas`, as JSON Schema.

Exit codes and error texts: [errors](errors.md).

All verbs have `-h`/`--help`. These two may stand before the verb or behind it:

{common}
"""

SETTINGS = """
## Settings

Where a process finds its database, and the intervals that it may choose, in order of precedence: arguments; environment
variables; `pgq.toml`; `[tool.pgq]` in `pyproject.toml` (both in the current directory); the default. Everything else
about a queue is set in the database, where all processes see it.

| setting | variable | default | allowed |
|---|---|---|---|
{rows}
"""

COMMON = ("dsn", "json")


def page() -> str:
    """The page."""
    root: Any = typer.main.get_command(app)
    common = "\n".join(_row(option) for option in root.params if option.name in COMMON)
    return (
        INTRO.format(common=f"| option | |\n|---|---|\n{common}")
        + "".join(_verb(command, path) for command, path in _leaves(root, "pgq"))
        + SETTINGS.format(rows="\n".join(_settings()))
    )


def _leaves(command: Any, path: str) -> Iterator[tuple[Any, str]]:
    """Every verb, in the order of the tree, with its full name."""
    commands = getattr(command, "commands", None)
    if commands is None:
        yield command, path
        return
    for name, child in commands.items():
        if not child.hidden:
            yield from _leaves(child, f"{path} {name}")


def _verb(command: Any, path: str) -> str:
    own = [parameter for parameter in command.params if parameter.name not in COMMON and not parameter.hidden]
    arguments = [parameter for parameter in own if parameter.param_type_name == "argument"]
    options = [parameter for parameter in own if parameter.param_type_name == "option"]
    usage = " ".join([path, *(_usage(argument) for argument in arguments), *(["[OPTIONS]"] if options else [])])
    text = f"\n## {path}\n\n```text\n{usage}\n```\n\n{_paragraphs(command.help)}\n"
    rows = [_row(parameter) for parameter in (*arguments, *options) if parameter.help or parameter in options]
    return text + (f"\n| | |\n|---|---|\n{chr(10).join(rows)}\n" if rows else "")


def _usage(argument: Any) -> str:
    name: str = argument.metavar or argument.name.upper()
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"| `{_usage(parameter)}` | {_cell(parameter.help or '')} |"
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    value = "" if parameter.is_flag else f" {parameter.metavar or parameter.name.upper()}"
    shown = (
        "" if parameter.default in (None, False) or not parameter.show_default else f" Default: {parameter.default}."
    )
    return f"| {names}{value} | {_cell(parameter.help or '')}{shown} |"


def _paragraphs(text: str | None) -> str:
    return "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", text or ""))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _settings() -> Iterator[str]:
    for name, field in Settings.model_fields.items():
        default = "" if name == "dsn" else field.default
        yield f"| `{name}` | `PGQ_{name.upper()}` | {default} | {_cell(field.description or '')} |"
