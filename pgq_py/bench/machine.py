"""The circumstances that a figure depends on: the machine, the versions, the server's settings."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import pq

from pgq_py import __version__

__all__ = ["Machine", "Server", "machine", "server"]

_SETTINGS = (
    "autovacuum",
    "checkpoint_timeout",
    "fsync",
    "full_page_writes",
    "jit",
    "max_wal_size",
    "shared_buffers",
    "synchronous_commit",
    "wal_level",
    "wal_sync_method",
    "work_mem",
)


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the client ran. `load` is the one-minute load average at the start: a busy machine shows in the spread."""

    system: str
    cpu: str
    cpus: int
    memory_bytes: int | None
    load: float | None
    python: str
    psycopg: str
    libpq: str
    pgq_py: str


@dataclass(frozen=True, slots=True)
class Server:
    """Where the figures come from. `private`: started for this run, else a database on a server given by the caller."""

    version: str
    version_num: int
    private: bool
    settings: dict[str, str]


def machine() -> Machine:
    """The facts of this machine; what it does not tell is None."""
    return Machine(
        system=platform.platform(),
        cpu=_cpu_model(),
        cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_bytes=_memory(),
        load=_load(),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        psycopg=f"{psycopg.__version__} ({pq.__impl__})",
        libpq=str(pq.version()),
        pgq_py=__version__,
    )


def server(conn: psycopg.Connection[Any], *, private: bool) -> Server:
    """The facts of the server behind a connection, as that session sees them."""
    rows = conn.execute(
        "select name, current_setting(name) from pg_settings where name = any(%s) order by name", [list(_SETTINGS)]
    ).fetchall()
    version = conn.execute("select version()").fetchone()
    return Server(
        version=str(version[0]) if version else "",
        version_num=conn.info.server_version,
        private=private,
        settings={str(name): str(setting) for name, setting in rows},
    )


def _cpu_model() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory() -> int | None:
    with suppress(ValueError, OSError, AttributeError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None


def _load() -> float | None:
    with suppress(OSError, AttributeError):
        return round(os.getloadavg()[0], 2)
    return None
