"""Where a process finds its database, and the few intervals that it may choose.

In order of precedence: arguments, environment variables `PGQ_*`, `pgq.toml`, `[tool.pgq]` in `pyproject.toml` (both in
the current directory), defaults. Without a DSN, libpq's own environment decides: PGHOST, PGSERVICE, PGPASSFILE and so
on.

The DSN may hold a password: it is a secret here, neither printed nor shown in errors. Values are checked where they
enter, and an impossible one fails at once with the allowed range. Everything else about a queue is set in the database,
where all processes see it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    PyprojectTomlConfigSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from pgq_py.errors import InvalidArgument

__all__ = ["SCHEMA", "Settings", "load_settings"]

SCHEMA = "pgq"
"""The schema's name is fixed, as PgQ's is: scripts, grants and existing tools rely on it."""


class Settings(BaseSettings):
    """The settings of one process. Use `load_settings`, which explains an impossible value; intervals are seconds."""

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        env_prefix="PGQ_",
        toml_file="pgq.toml",
        pyproject_toml_table_header=("tool", "pgq"),
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    dsn: SecretStr = Field(
        default=SecretStr(""),
        description="a postgresql:// URL or `key=value` pairs; empty leaves it to libpq's environment",
    )
    application_name: str = Field(
        default="pgq", min_length=1, max_length=63, description="1 to 63 characters, shown in pg_stat_activity"
    )
    connect_timeout: float = Field(default=10.0, ge=1, le=600, description="1 to 600 seconds")
    pool_max_size: int = Field(default=10, ge=1, le=1000, description="1 to 1000 connections")
    tick_interval: float = Field(default=0.002, ge=0.001, le=60, description="0.001 to 60 seconds")
    maintenance_interval: float = Field(default=2.0, ge=0.05, le=3600, description="0.05 to 3600 seconds")
    poll_interval: float = Field(default=0.05, ge=0.001, le=60, description="0.001 to 60 seconds")
    self_tick_after: float = Field(default=0.25, ge=0.01, le=3600, description="0.01 to 3600 seconds")
    batch_events: int = Field(default=10_000, ge=1, le=10_000_000, description="1 to 10000000 events")

    @field_validator("dsn")
    @classmethod
    def _dsn_is_readable(cls, value: SecretStr) -> SecretStr:
        """libpq's own complaint quotes the string, password included, so it is not passed on."""
        try:
            conninfo_to_dict(value.get_secret_value())
        except psycopg.ProgrammingError:
            raise ValueError("neither a postgresql:// URL nor `key=value` pairs") from None
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the base class passes it
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        toml = TomlConfigSettingsSource(settings_cls)
        pyproject = PyprojectTomlConfigSettingsSource(settings_cls)
        return init_settings, env_settings, toml, pyproject

    @property
    def conninfo(self) -> str:
        """The DSN in the clear, for `psycopg.connect`."""
        return self.dsn.get_secret_value()


def load_settings(**overrides: Any) -> Settings:
    """Settings from every source; an override that is None counts as not given.

    Raises InvalidArgument that names field and range.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as exc:
        problems = "; ".join(_explain(error["loc"], error["msg"]) for error in exc.errors(include_input=False))
    raise InvalidArgument(
        f"invalid setting: {problems}",
        advice="Nothing was started. Mend the argument, PGQ_* variable, pgq.toml or [tool.pgq] that sets it.",
    )


def _explain(loc: tuple[int | str, ...], complaint: str) -> str:
    name = ".".join(str(part) for part in loc)
    field = Settings.model_fields.get(name)
    if field is None:
        return f"{name}: no such setting (there are {', '.join(sorted(Settings.model_fields))})"
    return f"{name}: {complaint} (allowed: {field.description})"
