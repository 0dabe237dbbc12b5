"""Every workload in a short form: ten minutes on two cores. They scatter more, and hide what takes long to come."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from benchmarks.harness.arena import Request
from benchmarks.harness.outcome import Outcome
from benchmarks.workloads import bloat, consume, idle, jobs, latency, produce, scale, wal

__all__ = ["SHORT"]

_FEW: Final = ("pgq-py", "pgq-py-jobs", "pgq-py-jobs-sql", "pgq", "pgque", "pgmq", "oban")
"""For what takes some seconds of each peer, however short it is made."""
_BLOAT: Final = tuple(name for name in _FEW if name != "pgq-py-jobs-sql")
_QUICK: Final = (*_FEW, "pgqueuer-asyncpg", "pgmq-notify", "skip-locked")


def _narrow(request: Request, peers: Sequence[str]) -> Request:
    """Fewer peers, unless somebody asked for certain ones."""
    return request if request.peers is not None else replace(request, peers=peers)


def _produce(given: argparse.Namespace, request: Request) -> Outcome:
    del given
    return produce.run(produce.Parameters(50_000, 10_000, 200, rounds=2, seconds=1.0), request)


def _consume(given: argparse.Namespace, request: Request) -> Outcome:
    del given
    return consume.run(consume.Parameters(30_000, (1, 3), rounds=2), request)


def _jobs(given: argparse.Namespace, request: Request) -> Outcome:
    del given
    return jobs.run(jobs.Parameters(5_000, (1, 2), (100,), rounds=1, seconds=1.0), request)


def _latency(given: argparse.Namespace, request: Request) -> Outcome:
    del given
    return latency.run(latency.Parameters((200.0,), 3, 1, rounds=1, slice=1, run_up=0.25), _narrow(request, _QUICK))


def _idle(given: argparse.Namespace, request: Request) -> Outcome:
    del given
    return idle.run(idle.Parameters(4, 2), _narrow(request, _FEW))


def _wal(given: argparse.Namespace, request: Request) -> Outcome:
    del given
    return wal.run(wal.Parameters(300, modes=("in batches",), rounds=1), _narrow(request, _FEW))


def _bloat(given: argparse.Namespace, request: Request) -> Outcome:
    del given
    return bloat.run(bloat.Parameters(200, 2, 7, 3, ("idle snapshot",)), _narrow(request, _BLOAT))


def _scale(given: argparse.Namespace, request: Request) -> Outcome:
    del given
    return scale.run(scale.Parameters((1, 100), (1, 10), (0, 10_000), steps=15, warm_up=2), request)


SHORT: Final = {
    "produce": _produce,
    "consume": _consume,
    "jobs": _jobs,
    "latency": _latency,
    "idle": _idle,
    "wal": _wal,
    "bloat": _bloat,
    "scale": _scale,
}
