"""Checks of `pgq doctor` for search paths: where names that are written without a schema are looked for.

Functions that run with their owner's rights have a path of their own, and must keep it. The others, `send` for one, run
under their caller's, in which built-in names have to come first. And who calls ours without the schema, having `pgq`
in the path, should not meet another schema's function of that name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from psycopg import Connection
from psycopg.sql import SQL, Composed, Identifier

from pgq_py.client._sync import calls
from pgq_py.health import queries
from pgq_py.health.findings import Finding

__all__ = ["search_paths", "split_path", "unpinned_functions"]

_NAME = re.compile(r'\s*("(?:[^"]|"")*"|[^,\s]+)\s*(?:,|$)')


def unpinned_functions(conn: Connection[Any]) -> Iterable[Finding]:
    """Functions with their owner's rights that look for names where their caller says."""
    found = calls.values(conn, queries.UNPINNED_FUNCTIONS)
    if found:
        what = "they run with their owner's rights under their caller's search_path, who may put other names in place"
        mend = "; ".join(f"alter function {name} set search_path = pg_catalog, pgq, pg_temp" for name in found)
        yield Finding("error", "search_path", ", ".join(found), what, mend)


def search_paths(conn: Connection[Any]) -> Iterator[Finding]:
    """Settings of roles and databases under which names mean something else than they should."""
    namesakes = dict(calls.rows(conn, queries.NAMESAKES))
    for role, database, setting in calls.rows(conn, queries.PATH_SETTINGS):
        path = [role or name if name == "$user" else name for name in split_path(setting)]
        better, what = _judge(path, namesakes)
        if what:
            subject = " in ".join(f"{kind} {name}" for kind, name in (("role", role), ("database", database)) if name)
            names = SQL(", ").join(map(Identifier, better))
            mend = (_alter(role, database) + SQL(" set search_path = ") + names).as_string(conn)
            yield Finding("warning", "search_path", subject, what, mend)


def _judge(path: list[str], namesakes: Mapping[str, str]) -> tuple[list[str], str]:
    """A better path, and what is wrong with this one; empty when nothing is."""
    if "pg_catalog" in path[1:]:
        rest = [name for name in path if name != "pg_catalog"]
        what = f"it looks into {path[0]} before pg_catalog: what is created there can take the place of built-in names"
        return ["pg_catalog", *rest], what
    if "pgq" in path:
        for name in path[: path.index("pgq")]:
            if name in namesakes:
                rest = [other for other in path if other not in ("pgq", "pg_catalog")]
                first = ["pg_catalog"] if path[0] == "pg_catalog" else []
                return [*first, "pgq", *rest], f"{name}.{namesakes[name]} is found before pgq.{namesakes[name]}"
    return path, ""


def _alter(role: str | None, database: str | None) -> Composed:
    """The beginning of the statement that made the setting."""
    if role is None:
        return SQL("alter database {}").format(Identifier(database or ""))
    if database is None:
        return SQL("alter role {}").format(Identifier(role))
    return SQL("alter role {} in database {}").format(Identifier(role), Identifier(database))


def split_path(setting: str) -> list[str]:
    """The names of a search_path, without quotes."""
    names = [match.group(1) for match in _NAME.finditer(setting)]
    return [name[1:-1].replace('""', '"') if name.startswith('"') else name.lower() for name in names]
