"""PgQ 3.5 with its C code, from Debian's packages: the original."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from time import sleep
from typing import Any, ClassVar

from benchmarks.peers.adapter import QUEUE
from benchmarks.peers.load import TYPE, Message, chunks
from benchmarks.peers.pgq_family import PgqFamily

__all__ = ["PgqC"]

_CONTROL = Path("/usr/share/postgresql/15/extension/pgq.control")


class PgqC(PgqFamily):
    """The extension, pgqd, and the project's own Python library for bulk loads."""

    name = "pgq"
    title = "PgQ 3.5 (C)"
    practice = (
        "insert_event; bulk by pgq.bulk_insert_events of its Python library (COPY), 10,000 a transaction; next_batch, "
        "get_batch_events, finish_batch; pgqd at its defaults, consumers look every 0.1 s"
    )
    requirements: ClassVar[tuple[str, ...]] = ("psycopg[binary]", "pgq", "skytools", "psycopg2-binary")
    can = frozenset({"single", "pipelined", "bulk", "read", "fanout", "live", "scale"})
    schemas: ClassVar[tuple[str, ...]] = ("pgq",)

    @classmethod
    def missing(cls, options: Mapping[str, str]) -> str | None:
        if not _CONTROL.exists():
            return "Debian's postgresql-15-pgq3 is not installed"
        if shutil.which("pgqd") is None:
            return "Debian's pgqd is not installed"
        if options.get("server_major") != "15":
            return "its extension is there for PostgreSQL 15 only, and the server is another one"
        return None

    def install(self) -> None:
        self.conn.execute("create extension pgq")

    def versions(self) -> dict[str, str]:
        return {**super().versions(), "extension": str(self.value("select pgq.version()"))}

    def send(self, message: Message) -> None:
        self.conn.execute("select pgq.insert_event(%s, %s, %s)", (QUEUE, TYPE, message.text))

    def send_pipelined(self, batch: Sequence[Message]) -> None:
        self.pipeline("select pgq.insert_event(%s, %s, %s)", [(QUEUE, TYPE, m.text) for m in batch])

    def send_bulk(self, batch: Sequence[Message]) -> None:
        import pgq
        import psycopg2

        conn = psycopg2.connect(self.dsn)
        try:
            for chunk in chunks(batch, 10_000):
                now = datetime.now(UTC).isoformat()  # its tables have no default for it
                rows = [(now, TYPE, message.text) for message in chunk]
                pgq.bulk_insert_events(conn.cursor(), rows, ("ev_time", "ev_type", "ev_data"), QUEUE)
                conn.commit()
        finally:
            conn.close()

    def background(self, stop: Event, ready: Event) -> list[int] | None:
        """pgqd, which ticks, retries and rotates; under an account of its own, for it does not run as root."""
        with tempfile.TemporaryDirectory(dir="/tmp") as directory:
            config = Path(directory, "pgqd.ini")
            config.write_text(self._configuration(directory))
            account: dict[str, Any] = {}
            if os.geteuid() == 0:
                for path in (Path(directory), config):
                    shutil.chown(path, "postgres")
                account = {"user": "postgres", "group": "postgres"}
            process = subprocess.Popen(["pgqd", str(config)], stderr=subprocess.DEVNULL, cwd="/", **account)
            sleep(1)
            ready.set()
            stop.wait()
            process.terminate()
            process.wait()
        return None

    def _configuration(self, directory: str) -> str:
        from psycopg.conninfo import conninfo_to_dict

        parts: dict[str, Any] = dict(conninfo_to_dict(self.dsn))
        name = parts.pop("dbname")
        base = " ".join(f"{key}={value}" for key, value in parts.items())
        lines = ["[pgqd]", f"base_connstr = {base}", f"database_list = {name}", f"logfile = {directory}/log"]
        return "\n".join([*lines, f"pidfile = {directory}/pid", ""])
