"""`pgq config show`: the settings that are in force, and where each of them comes from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import typer
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic_settings import PyprojectTomlConfigSettingsSource, TomlConfigSettingsSource

from pgq_py.cli._options import Dsn, Json, settings
from pgq_py.cli._output import Column, show_rows
from pgq_py.settings import Settings

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Settings of this process; those of a queue: `pgq queue show`.")

_SECRETS = ("password", "sslpassword", "oauth_client_secret")


class _Setting(NamedTuple):
    name: str
    value: str
    source: str


_COLUMNS = (
    Column[_Setting]("setting", lambda s: s.name),
    Column[_Setting]("value", lambda s: s.value),
    Column[_Setting]("source", lambda s: s.source),
)


@app.callback()
def _config() -> None:
    """Keep `show` a verb of its own although it is the only one."""


@app.command()
def show(dsn: Dsn = None, json: Json = False) -> None:
    """Show every setting, its value and its source. No connection is made; passwords are not shown.

    The part of the connection that the DSN leaves open comes from libpq's own variables, shown as libpq.*.
    """
    chosen = settings(dsn)
    rows = [*_ours(chosen, dsn), *_libpq(chosen)]
    show_rows(_COLUMNS, rows, as_json=json)


def _ours(chosen: Settings, dsn: str | None) -> Iterator[_Setting]:
    files = {
        "pgq.toml": TomlConfigSettingsSource(Settings)(),
        "pyproject.toml [tool.pgq]": PyprojectTomlConfigSettingsSource(Settings)(),
    }
    for name in Settings.model_fields:
        value = getattr(chosen, name)
        shown = _masked(value.get_secret_value()) if name == "dsn" else str(value)
        yield _Setting(name, shown, _source(name, files, dsn))


def _source(name: str, files: dict[str, dict[str, Any]], dsn: str | None) -> str:
    """The first, in the order of precedence, that has it."""
    variable = f"PGQ_{name.upper()}"
    if name == "dsn" and dsn is not None:
        return "--dsn"
    if any(key.upper() == variable for key in os.environ):
        return variable
    return next((where for where, values in files.items() if name in values), "default")


def _libpq(chosen: Settings) -> Iterator[_Setting]:
    """What libpq's environment adds to the DSN."""
    given = conninfo_to_dict(chosen.conninfo)
    for option in pq.Conninfo.get_defaults():
        keyword = option.keyword.decode()
        variable = option.envvar.decode() if option.envvar else None
        if keyword in given or variable is None or variable not in os.environ:
            continue
        value = "***" if keyword in _SECRETS else os.environ[variable]
        yield _Setting(f"libpq.{keyword}", value, variable)


def _masked(conninfo: str) -> str:
    """The DSN as `key=value` pairs, without its secrets."""
    given = conninfo_to_dict(conninfo)
    return make_conninfo("", **{key: "***" if key in _SECRETS else value for key, value in given.items()})
