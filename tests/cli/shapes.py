"""Whatever a verb answers to --json is held against the schema that is documented for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any

import typer.main
from jsonschema import Draft202012Validator, FormatChecker

from pgq_py.cli._main import app
from pgq_py.cli.schemas import SCHEMAS

__all__ = ["check_shape", "validator", "verb_of", "verbs"]

LINES = ("tail", "status", "jobs watch")
"""Verbs that may write several values, one a line."""

_FORMATS = FormatChecker(formats=())


@_FORMATS.checks("date-time", raises=ValueError)
def _is_time(value: object) -> bool:
    return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None


@cache
def verbs() -> frozenset[str]:
    """All that there are, from the command's own tree."""

    def leaves(command: Any, path: tuple[str, ...]) -> list[str]:
        children = getattr(command, "commands", None)
        if children is None:
            return [" ".join(path)]
        return [leaf for name, child in children.items() for leaf in leaves(child, (*path, name))]

    return frozenset(leaves(typer.main.get_command(app), ()))


def verb_of(args: Sequence[str]) -> str | None:
    """The verb that these arguments call."""
    words = [arg for arg in args if not arg.startswith("-")]
    candidates = [" ".join(words[start : start + size]) for start in range(3) for size in (2, 1)]
    return next((verb for verb in candidates if verb in verbs()), None)


@cache
def validator(verb: str) -> Draft202012Validator:
    """Of the verb's schema."""
    schema = SCHEMAS["bench" if verb.startswith("bench ") else verb]
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema, format_checker=_FORMATS)


def check_shape(args: Sequence[str], out: str) -> None:
    """Fail unless the answer, if it is one, has the shape of the verb's schema."""
    verb = verb_of(args)
    if verb is None or "--json" not in args or not out or {"--help", "--sql"} & set(args):
        return
    for text in out.splitlines() if verb in LINES else [out]:
        errors = list(validator(verb).iter_errors(json.loads(text)))
        assert not errors, f"{verb}: {errors[0].message} at {list(errors[0].path)}"
