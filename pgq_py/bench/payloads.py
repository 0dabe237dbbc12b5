"""Events of an ordinary size, the same in every run with the same seed."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any, Final

__all__ = ["EVENT_TYPE", "copy_chunks", "payloads", "texts"]

EVENT_TYPE: Final = "order.created"

_STATES: Final = ("new", "paid", "sent", "returned")


def payloads(count: int, seed: int) -> list[dict[str, Any]]:
    """Objects of about 100 bytes as JSON."""
    rng = random.Random(seed)
    return [
        {
            "id": nr,
            "customer": f"customer-{rng.randrange(100_000)}",
            "amount": round(rng.uniform(1, 1000), 2),
            "state": rng.choice(_STATES),
            "items": [rng.randrange(10_000), rng.randrange(10_000)],
        }
        for nr in range(count)
    ]


def texts(objects: Sequence[dict[str, Any]]) -> list[str]:
    """The same as the text that the log stores."""
    return [json.dumps(value, separators=(",", ":")) for value in objects]


def copy_chunks(data: Sequence[str], size: int) -> list[bytes]:
    """(ev_type, ev_data) as finished chunks of COPY's text format, `size` rows each; our texts need no escaping."""
    lines = [f"{EVENT_TYPE}\t{text}\n" for text in data]
    return ["".join(lines[first : first + size]).encode() for first in range(0, len(lines), size)]
