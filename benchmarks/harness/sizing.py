"""How many messages a turn gets: what takes a fast peer a blink keeps a slow one busy for a minute."""

from __future__ import annotations

__all__ = ["Sizing"]

_LEAST = 10
"""Fewer have no rate worth the name."""


class Sizing:
    """The warm-up gets a tenth of the most, and every turn that counts what the warm-up's speed makes of `seconds`, at
    most all. A warm-up is cold: with some peers the turns take a quarter of `seconds`, so it must not be a moment."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._rates: dict[tuple[str, str], float] = {}

    def count(self, peer: str, figure: str, most: int) -> int:
        """Messages of the next turn."""
        rate = self._rates.get((peer, figure))
        wanted = most / 10 if rate is None else rate * self._seconds
        return min(most, max(_LEAST, int(wanted)))

    def measured(self, peer: str, figure: str, rate: float) -> None:
        """Messages a second of a turn; only the first one counts."""
        self._rates.setdefault((peer, figure), rate)
