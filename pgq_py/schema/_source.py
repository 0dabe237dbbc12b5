"""The engine's SQL as it is in the package: what there is, in which order it is applied, and its checksums.

    migrations/NNNN_name.sql    once each, in order; append-only: tables and what cannot be replaced
    functions/*.sql             on every install and upgrade, by file name
    post/*.sql                  after them, e.g. declarations that call them; idempotent
    optional/PART/*.sql         after those, where that part was asked for; idempotent
    grants.sql                  last; idempotent

Migrations have a checksum each, since a changed one has been applied in its old form somewhere. Everything else is
replaceable, and has one checksum together, and each optional part one of its own: it differs when an upgrade has
something to do.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

__all__ = ["Migration", "Part", "Script", "Source", "load"]

_MIGRATION = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")


@dataclass(frozen=True)
class Script:
    """One file: its path below the root, and its text."""

    name: str
    sql: str

    @cached_property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


@dataclass(frozen=True)
class Migration(Script):
    version: int


@dataclass(frozen=True)
class Part:
    """An optional part: its folder's name, and what is in it."""

    name: str
    scripts: tuple[Script, ...]

    @cached_property
    def checksum(self) -> str:
        return _checksum(self.scripts)


@dataclass(frozen=True)
class Source:
    """All of a root's SQL."""

    migrations: tuple[Migration, ...]
    replaceable: tuple[Script, ...]
    parts: tuple[Part, ...] = ()

    @property
    def grants(self) -> tuple[Script, ...]:
        return tuple(item for item in self.replaceable if item.name == "grants.sql")

    @cached_property
    def checksum(self) -> str:
        """Of everything replaceable but the optional parts."""
        return _checksum(self.replaceable)


def load(root: Path) -> Source:
    """Read a root. Raises ValueError where migrations are misnamed or not numbered 1, 2, 3 ... without a gap."""
    migrations = tuple(_migration(path) for path in sorted((root / "migrations").glob("*.sql")))
    if [m.version for m in migrations] != list(range(1, len(migrations) + 1)):
        raise ValueError(f"migrations in {root} are not numbered 0001, 0002, ... without gaps")
    folders = [sorted((root / name).glob("*.sql")) for name in ("functions", "post")]
    grants = [path for path in [root / "grants.sql"] if path.is_file()]
    files = [path for folder in [*folders, grants] for path in folder]
    parts = tuple(
        Part(path.name, _scripts(root, sorted(path.glob("*.sql")))) for path in sorted(root.glob("optional/*"))
    )
    return Source(migrations, _scripts(root, files), parts)


def _scripts(root: Path, files: list[Path]) -> tuple[Script, ...]:
    return tuple(Script(str(path.relative_to(root)), _text(path)) for path in files)


def _checksum(scripts: tuple[Script, ...]) -> str:
    """Names and order included."""
    return hashlib.sha256("\n".join(f"{script.name} {script.checksum}" for script in scripts).encode()).hexdigest()


def _migration(path: Path) -> Migration:
    match = _MIGRATION.fullmatch(path.name)
    if match is None:
        raise ValueError(f"{path.name} is not named like a migration: NNNN_name.sql")
    return Migration(match[2], _text(path), int(match[1]))


def _text(path: Path) -> str:
    """Universal newlines: a checkout that rewrites them must not change a checksum."""
    return path.read_text(encoding="utf-8")
