"""A process that does nothing but stream what waits for a consumer, and says what that took; see `consume`.

PGQ_DSN=... python -m pgq_py.bench.reader QUEUE CONSUMER
"""

from __future__ import annotations

import json
import resource
import sys
from contextlib import suppress
from pathlib import Path
from time import perf_counter

from pgq_py.app import PgQ

__all__ = ["main", "peak_bytes"]


def main(queue: str, consumer: str) -> None:
    """Read everything that waits, and print a JSON object about it."""
    start, count, begin = peak_bytes(), 0, perf_counter()
    with PgQ() as pgq, pgq.batches(queue, consumer, wait=0) as batches:
        for batch in batches:
            for _ in batch:
                count += 1
    seconds = perf_counter() - begin
    report = {"events": count, "seconds": seconds, "start_bytes": start, "peak_bytes": peak_bytes()}
    sys.stdout.write(json.dumps(report) + "\n")


def peak_bytes() -> int:
    """The largest resident set of this process so far.

    Linux says so in /proc, of this program alone; getrusage there counts what the parent had when it forked.
    """
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    main(*sys.argv[1:])
