"""What adapters share whose peer is reached through a psycopg connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from benchmarks.peers.adapter import Adapter

__all__ = ["SqlAdapter"]


class SqlAdapter(Adapter):
    """One autocommitting connection, made when it is needed first."""

    requirements: ClassVar[tuple[str, ...]] = ("psycopg[binary]",)

    def __init__(self, dsn: str, options: Mapping[str, str]) -> None:
        super().__init__(dsn, options)
        self._conn: Any = None

    @property
    def conn(self) -> Any:
        if self._conn is None:
            self._conn = self.connect()
        return self._conn

    def connect(self) -> Any:
        """A further connection, which the caller closes."""
        import psycopg

        return psycopg.connect(self.dsn, autocommit=True, application_name=f"bench {self.name}")

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def versions(self) -> dict[str, str]:
        from importlib.metadata import version

        names = [requirement.partition("[")[0].partition("=")[0] for requirement in self.requirements]
        return {name: version(name) for name in names}

    def value(self, query: str, parameters: Sequence[Any] = ()) -> Any:
        """The first column of the first row, None without rows."""
        row = self.conn.execute(query, parameters).fetchone()
        return row[0] if row else None

    def column(self, query: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """The first column of all rows."""
        return [row[0] for row in self.conn.execute(query, parameters).fetchall()]

    def pipeline(self, query: str, rows: Sequence[Sequence[Any]]) -> None:
        """The statement for every row, in one transaction and one pipeline of psycopg's."""
        with self.conn.transaction(), self.conn.pipeline():
            cursor = self.conn.cursor()
            for row in rows:
                cursor.execute(query, row)
