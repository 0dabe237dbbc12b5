"""Seeded messages and schedules: the same for every peer, whatever its interpreter."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["TYPE", "Message", "arrivals", "chunks", "messages", "summary"]

TYPE: Final = "order.created"
_STATES: Final = ("new", "paid", "sent", "returned")


@dataclass(frozen=True, slots=True)
class Message:
    """One message of about 120 bytes in both forms, rendered before any clock runs; an adapter takes its API's own."""

    data: dict[str, Any]
    text: str


def messages(first: int, count: int, seed: int, due: Sequence[float] | None = None) -> list[Message]:
    """Messages numbered from `first`; `due` is when each is meant to be sent, on the system's monotonic clock."""
    rng = random.Random(seed * 1_000_003 + first)
    made = []
    for nth in range(count):
        data = {
            "nr": first + nth,
            "due": due[nth] if due else 0,
            "customer": f"customer-{rng.randrange(100_000)}",
            "amount": round(rng.uniform(1, 1000), 2),
            "state": rng.choice(_STATES),
            "items": [rng.randrange(10_000), rng.randrange(10_000)],
        }
        made.append(Message(data, json.dumps(data, separators=(",", ":"))))
    return made


def arrivals(rate: float, seconds: float, seed: int) -> list[float]:
    """Offsets in seconds of independent arrivals (exponential gaps) at `rate` a second: an open loop's schedule."""
    rng = random.Random(seed)
    offsets: list[float] = []
    at = rng.expovariate(rate)
    while at < seconds:
        offsets.append(at)
        at += rng.expovariate(rate)
    return offsets


def chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]


def summary(numbers: Iterable[int]) -> dict[str, Any]:
    """What arrived, small enough for a line of JSON: ranges of numbers, and how often those came that came again."""
    counts = Counter(numbers)
    ranges: list[list[int]] = []
    for number in sorted(counts):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    again = {str(number): times for number, times in counts.items() if times > 1}
    return {"received": sum(counts.values()), "ranges": ranges, "again": again}
