"""Which peers there are, and which of them can be measured here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final

from benchmarks.harness.environments import Unavailable, interpreter
from benchmarks.peers.adapter import Adapter

__all__ = ["PEERS", "Absent", "Peer", "adapter", "choose", "resolve"]

PEERS: Final[Mapping[str, str]] = {
    "pgq-py": "benchmarks.peers.pgq_py:PgqPy",
    "pgq-py-jobs": "benchmarks.peers.pgq_jobs:PgqJobs",
    "pgq-py-jobs-sql": "benchmarks.peers.pgq_jobs:PgqJobsSql",
    "pgq": "benchmarks.peers.pgq_c:PgqC",
    "pgque": "benchmarks.peers.pgque:Pgque",
    "pgque-tuned": "benchmarks.peers.pgque:PgqueTuned",
    "pgmq": "benchmarks.peers.pgmq:Pgmq",
    "pgmq-notify": "benchmarks.peers.pgmq:PgmqNotify",
    "procrastinate": "benchmarks.peers.procrastinate:Procrastinate",
    "pgqueuer-asyncpg": "benchmarks.peers.pgqueuer:PgqueuerAsyncpg",
    "pgqueuer-psycopg": "benchmarks.peers.pgqueuer:PgqueuerPsycopg",
    "awa": "benchmarks.peers.awa:Awa",
    "oban": "benchmarks.peers.oban:Oban",
    "skip-locked": "benchmarks.peers.skip_locked:SkipLocked",
    "raw": "benchmarks.peers.raw:Raw",
}
"""In the order in which they are shown. Elsewhere a peer can also be named by `module:Class`."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer that can be measured: where its code is, and the interpreter of its environment."""

    name: str
    reference: str
    adapter: type[Adapter]
    python: Path


@dataclass(frozen=True, slots=True)
class Absent:
    """A peer that cannot, and why. It has no figures, which is not the same as bad ones."""

    name: str
    title: str
    reason: str


def adapter(reference: str) -> type[Adapter]:
    """The class behind `module:Class`; importing it takes nothing but the standard library."""
    module, _, name = reference.partition(":")
    found: type[Adapter] = getattr(import_module(module), name)
    return found


def choose(names: Iterable[str] | None, needs: Iterable[str]) -> dict[str, type[Adapter]]:
    """The peers of these names, all when None, that can do one of what a workload `needs`. KeyError: unknown name."""
    wanted = set(needs)
    references = PEERS if names is None else {name: name if ":" in name else PEERS[name] for name in names}
    found = {name: adapter(reference) for name, reference in references.items()}
    return {name: cls for name, cls in found.items() if cls.can & wanted}


def resolve(name: str, options: Mapping[str, str]) -> Peer | Absent:
    """Make its environment, where need be, and say whether the peer can be measured."""
    reference = name if ":" in name else PEERS[name]
    cls = adapter(reference)
    if (reason := cls.missing(options)) is not None:
        return Absent(name, cls.title, reason)
    try:
        python = interpreter(cls)
    except Unavailable as exc:
        return Absent(name, cls.title, str(exc))
    return Peer(name, reference, cls, python)
