"""Every message of a run has a number of its own, so that one of an earlier turn is foreign in a later one."""

from __future__ import annotations

__all__ = ["Numbers"]


class Numbers:
    """Gives out ranges of numbers."""

    def __init__(self) -> None:
        self._next = 0

    def take(self, count: int) -> int:
        """The first of `count` new ones."""
        first = self._next
        self._next += count
        return first
