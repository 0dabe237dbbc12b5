"""Checks of `pgq doctor` for what is around the log: the command's own name, the way to the server, the server."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from shlex import quote
from typing import Any

from psycopg import Connection
from psycopg.sql import Literal

from pgq_py.client._sync import calls
from pgq_py.health import queries
from pgq_py.health.findings import Finding

__all__ = ["foreign_script", "missing_roles", "pinned_horizon", "pooler", "standby", "swollen_catalog"]

DEAD_CATALOG_ROWS = 1000
"""So many dead rows in pg_class make the rings wait for twice the size, or age, before they switch."""

OLD_SLOT = 100_000
"""Transactions by which even an active replication slot may not be behind without a word."""


def foreign_script(environ: Mapping[str, str] = os.environ) -> Iterable[Finding]:
    """Another package's `pgq` that a shell finds before ours; pgqueuer installs one."""
    scripts = list(_scripts(environ.get("PATH", "")))
    if scripts and not _is_ours(scripts[0]):
        ours = next((script.parent for script in scripts if _is_ours(script)), Path(sys.executable).parent)
        what = f"another package's script stands before this one's on PATH: {scripts[0]}"
        yield Finding("warning", "script", "command pgq", what, f'export PATH={quote(str(ours))}:"$PATH"')


def _scripts(path: str) -> Iterator[Path]:
    for folder in path.split(os.pathsep):
        script = Path(folder, "pgq")
        if folder and script.is_file() and os.access(script, os.X_OK):
            yield script


def _is_ours(script: Path) -> bool:
    """A console script names the module that it starts."""
    try:
        return b"pgq_py" in script.read_bytes()[:65536]
    except OSError:
        return False


def pooler(*, pooled: bool) -> Iterable[Finding]:
    """A pooler shares sessions out, and so LISTEN, the ticker's lock and a consumer's cursor are not to be had."""
    if pooled:
        what = "a pooler that shares sessions out is in between: producers may use it, `pgq ticker` and `pgq run` not"
        yield Finding("info", "pooler", "connection", what, "pgq doctor --dsn DSN_OF_THE_SERVER_ITSELF")


def standby(conn: Connection[Any]) -> Iterable[Finding]:
    """Nothing can be sent, ticked or finished there."""
    if calls.value(conn, queries.IS_STANDBY):
        what = "it is a standby, where nothing can be written"
        mend = "pgq doctor --dsn '... target_session_attrs=read-write'"
        yield Finding("error", "standby", f"server of {conn.info.dbname}", what, mend)


def missing_roles(conn: Connection[Any]) -> Iterable[Finding]:
    """Without them rights can be given per queue alone."""
    missing = calls.values(conn, queries.MISSING_ROLES)
    if missing:
        mend = "; ".join(f"create role {role}" for role in missing)
        what = "the cluster lacks roles that rights are granted to; `pgq upgrade` grants them afterwards"
        yield Finding("warning", "roles", ", ".join(missing), what, mend)


def pinned_horizon(conn: Connection[Any], limit: float) -> Iterable[Finding]:
    """Who keeps vacuum from removing anything. The log does not mind; everything else in the cluster does."""
    for kind, name, database, detail, transactions, age in calls.rows(conn, queries.XMIN_HOLDERS):
        if kind == "slot":
            if detail == "active" and transactions < OLD_SLOT:
                continue
        elif age is None or age.total_seconds() < limit:
            continue
        where = ", ".join(text for text in (detail, f"database {database}" if database else None) if text)
        since = "" if age is None else f" for {_round(age)}"
        what = (
            f"its snapshot pins the xmin horizon{since} ({transactions} transactions; {where}): other "
            "tables bloat, this log does not"
        )
        subject, mend = _holder(conn, kind, name)
        yield Finding("info", "xmin", subject, what, mend)


def _holder(conn: Connection[Any], kind: str, name: str) -> tuple[str, str]:
    """How to name it, and the statement that ends it."""
    if kind == "session":
        return f"process {name}", f"select pg_terminate_backend({name})"
    literal = Literal(name).as_string(conn)
    if kind == "prepared":
        return f"prepared transaction {name}", f"rollback prepared {literal}"
    return f"replication slot {name}", f"select pg_drop_replication_slot({literal})"


def swollen_catalog(conn: Connection[Any]) -> Iterable[Finding]:
    """Every TRUNCATE leaves a few dead rows in pg_class, so rotation goes slower where vacuum cannot remove them."""
    for dead, live in calls.rows(conn, queries.DEAD_CATALOG_ROWS):
        if dead >= DEAD_CATALOG_ROWS:
            what = f"{dead} dead rows beside {live} live ones: slots are switched later than they could be"
            yield Finding("warning", "catalog", "table pg_class", what, "vacuum pg_catalog.pg_class")


def _round(age: timedelta) -> str:
    return str(timedelta(seconds=round(age.total_seconds())))
