"""Which of several consumers of a queue ticks for an event that was announced to all of them.

One is enough, and any of them will do. Each tries at first; whoever finds that another was faster leaves it to the
others for a while, twice as long each time. Nobody counts on it: the ticker looks a moment later.
"""

from __future__ import annotations

__all__ = ["Turns"]

MOST_LOST = 6


class Turns:
    """The turns of one consumer."""

    def __init__(self) -> None:
        self._lost = self._leave = 0
        self._tried = False

    @property
    def are_mine(self) -> bool:
        """Nobody was faster of late."""
        return self._leave == 0

    def take(self) -> bool:
        """An event was announced: whether to try."""
        if self._leave:
            self._leave -= 1
            return False
        self._tried = True
        return True

    def found(self) -> None:
        """There is a batch, and if it was tried for, it was in time."""
        if self._tried:
            self._tried, self._lost = False, 0

    def overtaken(self) -> None:
        """Somebody else has ticked."""
        if self._tried:
            self._tried, self._lost = False, min(self._lost + 1, MOST_LOST)
            self._leave = 2**self._lost - 1
