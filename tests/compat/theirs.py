"""PgQ itself, from Debian's packages: PostgreSQL 15 with the extension, on a private server."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

__all__ = ["installed"]

_BIN = Path("/usr/lib/postgresql/15/bin")
_CONTROL = Path("/usr/share/postgresql/15/extension/pgq.control")


@cache
def installed() -> Path | None:
    """The bin directory of a PostgreSQL that has PgQ; installed if that is possible, for root on Debian."""
    if not _CONTROL.is_file() and os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update"], ["install", "--yes", "--no-install-recommends", "postgresql-15-pgq3"]):
            subprocess.run(["apt-get", *command], check=False, capture_output=True, timeout=300, env=environment)
    return _BIN if _CONTROL.is_file() and (_BIN / "postgres").is_file() else None
