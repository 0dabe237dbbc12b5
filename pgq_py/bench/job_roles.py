"""What a worker and a producer do in `pgq bench jobs`, each in a process of its own.

    PGQ_DSN=... python -m pgq_py.bench.job_roles work '{"way": "log", "batch": 25, "pause": 0.02}'
    PGQ_DSN=... python -m pgq_py.bench.job_roles enqueue '{"way": "log", "rate": 800, "seconds": 60, "size": 120}'

A worker says `ready` and works until it reads a line and finds nothing any more. The jobs do nothing: what is measured
is the queue. The producer keeps to a schedule (an open loop), so that a stall is charged to all jobs that it kept
waiting. Both use plain SQL, the same loop for either way, so that no client's speed is in the figures.
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from time import monotonic
from typing import Any, Final

import psycopg

from pgq_py.bench.job_ways import WAYS, Way
from pgq_py.bench.targets import connect

__all__ = ["main", "padded"]

JOBS_PER_SESSION: Final = 50
"""So many a second at most are enqueued by one session: few, so that it is not the commits of one that are measured."""


def padded(due: float, size: int) -> str:
    """A payload of so many bytes that says when its job was meant to be enqueued."""
    head = f'{{"due": {due:.6f}, "pad": "'
    return head + "x" * max(0, size - len(head) - 2) + '"}'


def work(way: str, batch: int, pause: float) -> dict[str, Any]:
    """Claim and complete; when there is not (or no longer) a whole batch, look again after `pause` seconds."""
    chosen, name = WAYS[way], f"bench:{os.getpid()}"
    stop = threading.Event()
    threading.Thread(target=_await_line, args=(stop,), daemon=True).start()
    done: list[tuple[float, float]] = []
    claims = 0
    with connect(os.environ["PGQ_DSN"]) as conn:
        _say("ready")
        while True:
            last = stop.is_set()
            taken = conn.execute(chosen.claim, [name, batch]).fetchone()
            if taken is not None:
                claims += 1
                done += _complete(conn, chosen, taken)
            elif last:
                return {"done": done, "claims": claims}
            if taken is None or len(taken[2]) < batch:
                time.sleep(pause)


def _await_line(stop: threading.Event) -> None:
    sys.stdin.readline()
    stop.set()


def _complete(conn: psycopg.Connection[Any], way: Way, taken: tuple[Any, ...]) -> list[tuple[float, float]]:
    """When each of the jobs was due, and how late it was done."""
    conn.execute(way.complete, taken[:2])
    now = monotonic()
    dues = [float(json.loads(payload)["due"]) for payload in taken[2]]
    return [(due, now - due) for due in dues]


def enqueue(way: str, rate: float, seconds: float, size: int) -> dict[str, Any]:
    """`rate` jobs a second, one by one, each in a transaction of its own."""
    total, sessions = round(rate * seconds), max(1, math.ceil(rate / JOBS_PER_SESSION))
    spent: list[float] = []
    start = monotonic() + 0.5
    _say(json.dumps({"start": start}))
    schedules = [[start + nth / rate for nth in range(first, total, sessions)] for first in range(sessions)]
    threads = [threading.Thread(target=_session, args=(WAYS[way], times, size, spent)) for times in schedules]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"sent": len(spent), "spent": spent}


def _session(way: Way, times: list[float], size: int, spent: list[float]) -> None:
    with connect(os.environ["PGQ_DSN"]) as conn:
        for due in times:
            time.sleep(max(0.0, due - monotonic()))
            begin = monotonic()
            conn.execute(way.enqueue, [padded(due, size)])
            spent.append(monotonic() - begin)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(role: str, parameters: str) -> None:
    """Play a role, and report as one JSON object."""
    play = work if role == "work" else enqueue
    _say(json.dumps(play(**json.loads(parameters))))


if __name__ == "__main__":
    main(*sys.argv[1:])
