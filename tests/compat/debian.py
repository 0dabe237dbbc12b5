"""What Debian packages of PgQ: the extension for PostgreSQL 15, the daemon, the Python client.

Installed once where that is possible, by root with apt; else the tests that need them are skipped.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

__all__ = ["BIN_DIR", "PYTHON", "needs"]

BIN_DIR = Path("/usr/lib/postgresql/15/bin")
PYTHON = "/usr/bin/python3"
"""Debian's own: its packages of Python modules are for that one."""

PROOF = {
    "postgresql-15-pgq3": Path("/usr/share/postgresql/15/extension/pgq.control"),
    "pgqd": Path("/usr/bin/pgqd"),
    "python3-pgq": Path("/usr/lib/python3/dist-packages/pgq/__init__.py"),
}
"""A file of each package."""


def needs(package: str) -> None:
    """Skip the test where the package is not there and cannot be installed."""
    if not _installed(package):
        pytest.skip(f"Debian's {package} is neither installed nor can be")


@cache
def _installed(package: str) -> bool:
    """One process at a time: apt has a lock of its own, and gives up where it is held."""
    with Path(tempfile.gettempdir(), f"pgq-tests-apt-{os.geteuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not PROOF[package].exists() and os.geteuid() == 0 and shutil.which("apt-get"):
            _apt("install", "--yes", "--no-install-recommends", package)
            if not PROOF[package].exists():  # the lists may be old
                _apt("update")
                _apt("install", "--yes", "--no-install-recommends", package)
    return PROOF[package].exists()


def _apt(*words: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", *words], check=False, capture_output=True, timeout=300, env=environment)
