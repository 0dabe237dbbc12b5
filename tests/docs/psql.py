"""SQL as psql runs and shows it: statement by statement, a table for rows, ERROR and HINT for an error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg

__all__ = ["Session"]

# A quoted string, a dollar-quoted one, a comment, or the end of a statement.
_TOKEN = re.compile(r"'(?:[^']|'')*'|\$(\w*)\$.*?\$\1\$|--[^\n]*|(;)", re.DOTALL)


class Session:
    """One connection in autocommit mode; a block may open a transaction and a later one end it."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self._conn = conn
        self._notices: list[str] = []
        conn.add_notice_handler(lambda diag: self._notices.append(f"{diag.severity}:  {diag.message_primary}\n"))

    def run(self, text: str) -> str:
        """Run all statements, up to the first that fails; what psql would write, without command tags."""
        out = ""
        for statement in _statements(text):
            try:
                cursor = self._conn.execute(statement.encode())
            except psycopg.Error as exc:
                return out + self._heard() + _error(exc)
            out += self._heard()
            if cursor.description is not None:
                out += _table([column.name for column in cursor.description], cursor.fetchall())
        return out

    def value(self, query: str) -> Any:
        """The first value of a query."""
        row = self._conn.execute(query.encode()).fetchone()
        return row[0] if row else None

    def _heard(self) -> str:
        text = "".join(self._notices)
        self._notices.clear()
        return text


def _statements(text: str) -> Iterator[str]:
    start = 0
    for token in _TOKEN.finditer(text):
        if token[2]:
            yield text[start : token.end()]
            start = token.end()
    rest = re.sub(r"--[^\n]*", "", text[start:]).strip()
    assert not rest, f"a statement does not end: {rest}"


def _table(names: list[str], rows: list[tuple[Any, ...]]) -> str:
    lines = [names, *([_cell(value) for value in row] for row in rows)]
    count = f"({len(rows)} row{'' if len(rows) == 1 else 's'})"
    return "\n".join(" | ".join(line) for line in lines) + f"\n{count}\n\n"


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, list):
        return "{" + ",".join(map(_cell, value)) + "}"
    return "" if value is None else str(value)


def _error(exc: psycopg.Error) -> str:
    parts = (("ERROR", exc.diag.message_primary), ("DETAIL", exc.diag.message_detail), ("HINT", exc.diag.message_hint))
    return "".join(f"{title}:  {text}\n" for title, text in parts if text)
