"""How long a worker holds back before a claim that may bring little.

A claim costs the database nearly the same whatever it brings. So a worker that is told of jobs one by one, faster than
it can claim them, waits until there are more to a claim, and leaves the processor to those who enqueue. As long as jobs
are rare, none waits.
"""

from __future__ import annotations

__all__ = ["Restraint"]

SHARE = 0.5
"""Share of its time that a worker may spend on claims that bring less than it asks for."""

AHEAD = 0.05
"""Seconds of such claims that may follow each other at once: of a dozen jobs that come by chance close together, none
has to wait."""

LONGEST = 0.005
"""Seconds of a claim that count. One that takes longer waited for something, and no job shall pay for that again."""


class Restraint:
    """`gather` seconds lie between two such claims in any case. Times are seconds of one monotonic clock."""

    def __init__(self, gather: float = 0.0) -> None:
        self._gather = gather
        self._share_until = self._gather_until = float("-inf")

    def claimed(self, began: float, ended: float) -> None:
        """A claim brought less than there was room for."""
        spent = min(ended - began, LONGEST) / SHARE
        self._share_until = max(self._share_until, began - AHEAD) + spent
        self._gather_until = began + self._gather

    def left(self, now: float) -> float:
        """Seconds until the next claim; 0 or less: now."""
        return max(self._share_until, self._gather_until) - now
