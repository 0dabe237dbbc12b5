"""What a consumer and a producer do in the live benchmarks, each in a process of its own; see `live`.

    PGQ_DSN=... python -m pgq_py.bench.roles consume '{"queue": ..., "consumer": ..., "nack_every": 0}'
    PGQ_DSN=... python -m pgq_py.bench.roles produce '{"queue": ..., "rate": 50, "seconds": 20, "delay": 0}'

A consumer says `ready`, reads from its stdin how many events it is to wait for, and then reports when each of them
reached the handler. The producer keeps to a schedule (an open loop): each event carries the time at which it was meant
to be sent, so that a stall is charged to all events that it kept waiting, not to one. Both read the system's monotonic
clock, which all processes share; delayed events carry the time of day at which they are due.
"""

from __future__ import annotations

import json
import logging
import math
import random
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any, Final

from pgq_py.app import PgQ
from pgq_py.outcomes import Retry
from pgq_py.types import Event, EventId

__all__ = ["main"]

LANES: Final = 8
EVENTS_PER_LANE: Final = 200
"""So many events a second at most are sent by one session."""

RETRY_IN: Final = timedelta(seconds=1)
PATIENCE: Final = 30.0
"""Seconds that the consumer waits for what is missing."""


def consume(queue: str, consumer: str, nack_every: int) -> dict[str, Any]:
    """Handle events until all have come. Of every `nack_every` first deliveries one is asked to come again."""
    first: dict[EventId, tuple[float, float, float]] = {}
    done: set[EventId] = set()
    nacked: set[EventId] = set()
    pgq = PgQ()
    logging.getLogger("pgq_py").setLevel(logging.ERROR)  # asking for events again is no news here

    @pgq.consumer(queue, name=consumer)
    def handle(event: Event) -> None:
        first.setdefault(event.id, (float(event.data or 0), monotonic(), time.time()))
        if nack_every and not event.retries and event.id % nack_every == 0:
            nacked.add(event.id)
            raise Retry(in_=RETRY_IN)
        done.add(event.id)

    with pgq, pgq.runner():
        _say("ready")
        expected = int(sys.stdin.readline() or 0)
        deadline = monotonic() + PATIENCE
        while len(done) < expected and monotonic() < deadline:
            time.sleep(0.01)
    return {"done": len(done), "nacked": len(nacked), "first": sorted(first.values())}


def produce(queue: str, rate: float, seconds: float, delay: float) -> dict[str, Any]:
    """Send `rate` events a second; with a `delay`, each to be delivered within so many seconds."""
    total, lanes = round(rate * seconds), max(1, min(LANES, math.ceil(rate / EVENTS_PER_LANE)))
    spent: list[float] = []
    with PgQ() as pgq:
        start = monotonic() + 0.5
        _say(json.dumps({"start": start}))
        schedules = [[start + nth / rate for nth in range(lane, total, lanes)] for lane in range(lanes)]
        threads = [threading.Thread(target=_lane, args=(pgq, queue, times, delay, spent)) for times in schedules]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return {"sent": len(spent), "spent": spent}


def _lane(pgq: PgQ, queue: str, times: list[float], delay: float, spent: list[float]) -> None:
    rng = random.Random(len(times))
    for due in times:
        time.sleep(max(0.0, due - monotonic()))
        begin = monotonic()
        if delay:
            at = time.time() + delay * rng.uniform(0.1, 1)
            pgq.send(queue, repr(at), type="bench", deliver_at=datetime.fromtimestamp(at, UTC))
        else:
            pgq.send(queue, repr(due), type="bench")
        spent.append(monotonic() - begin)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(role: str, parameters: str) -> None:
    """Play a role, and report as one JSON object."""
    play = consume if role == "consume" else produce
    _say(json.dumps(play(**json.loads(parameters))))


if __name__ == "__main__":
    main(*sys.argv[1:])
