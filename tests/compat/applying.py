"""Change envelopes applied to another database: what a mirror does."""

from __future__ import annotations

import json
from typing import Any

from psycopg import Connection, sql

__all__ = ["apply"]


def apply(conn: Connection[Any], envelope: str) -> None:
    """One change, in the caller's transaction. The row goes back as JSON, untouched: no number becomes a float."""
    change: dict[str, Any] = json.loads(envelope, parse_float=str, parse_int=str)
    table = sql.Identifier(*change["table"].split("."))
    if change["op"] == "TRUNCATE":
        conn.execute(sql.SQL("truncate {}").format(table))
        return
    parts = {
        "table": table,
        "same": sql.SQL(" and ").join(
            sql.SQL("t.{0} is null" if value is None else "t.{0} = k.{0}").format(sql.Identifier(column))
            for column, value in (change["key"] or {}).items()
        ),
        "columns": sql.SQL(", ").join(map(sql.Identifier, change["after"] or {})),
    }
    statement = {
        "INSERT": "insert into {table} ({columns}) select {columns} from json_populate_record(null::{table},"
        " %(change)s::json -> 'after')",
        "UPDATE": "update {table} t set ({columns}) = (select {columns} from json_populate_record(null::{table},"
        " %(change)s::json -> 'after')) from json_populate_record(null::{table}, %(change)s::json -> 'key') k"
        " where {same}",
        "DELETE": "delete from {table} t using json_populate_record(null::{table}, %(change)s::json -> 'key') k"
        " where {same}",
    }[change["op"]]
    conn.execute(sql.SQL(statement).format(**parts), {"change": envelope})
