"""PgBouncer in transaction mode, Debian's package, in front of a test's server."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.clusters import Database
from tests.waiting import wait_until

__all__ = ["pgbouncer", "pooled"]

CONFIGURATION = """
[databases]
* = host={host} port={port} user=postgres
[pgbouncer]
listen_addr =
listen_port = 6432
unix_socket_dir = {directory}
auth_type = any
pool_mode = transaction
default_pool_size = {sessions}
"""


@cache
def pgbouncer() -> str | None:
    """Where the program is; installed if that is possible, for root on Debian."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    if shutil.which("pgbouncer", path=path) is None and os.geteuid() == 0 and shutil.which("apt-get"):
        command = ["apt-get", "install", "--yes", "--no-install-recommends", "pgbouncer"]
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(command, check=False, capture_output=True, timeout=120, env=environment)
    return shutil.which("pgbouncer", path=path)


@contextmanager
def pooled(db: Database, sessions: int) -> Iterator[str]:
    """The DSN of the database through a pooler of its own, which shares so many sessions out."""
    program, server = pgbouncer(), conninfo_to_dict(db.dsn)
    assert program is not None
    with tempfile.TemporaryDirectory(prefix="pgq-", dir="/tmp") as directory:
        Path(directory).chmod(0o777)
        file = Path(directory, "pgbouncer.ini")
        values = {"host": server["host"], "port": server["port"], "directory": directory, "sessions": sessions}
        file.write_text(CONFIGURATION.format(**values), "utf-8")
        # It refuses to run as root; who started the server may enter its directory.
        owner = Path(str(server["host"])).stat().st_uid
        as_owner: dict[str, Any] = {"user": owner, "extra_groups": []} if os.geteuid() == 0 else {}
        process = subprocess.Popen([program, "-q", str(file)], cwd="/", stderr=subprocess.DEVNULL, **as_owner)
        try:
            wait_until(Path(directory, ".s.PGSQL.6432").exists)
            yield make_conninfo(db.dsn, host=directory, port=6432)
        finally:
            process.terminate()
            process.wait()
