"""How long something that fails pauses: longer each time, up to half a minute, until something gets done again."""

from __future__ import annotations

import random

__all__ = ["Backoff"]

SHORTEST, LONGEST = 0.1, 30.0
"""Seconds."""


class Backoff:
    """Counts failures in a row. The pauses double and are spread by a fifth, so that workers do not return in step."""

    def __init__(self) -> None:
        self._failures = 0

    def reset(self) -> None:
        """Something went well."""
        self._failures = 0

    def next(self) -> float:
        """Seconds to pause after one more failure."""
        pause = min(LONGEST, SHORTEST * 2.0 ** min(self._failures, 16))
        self._failures += 1
        return pause * random.uniform(0.8, 1.2)
