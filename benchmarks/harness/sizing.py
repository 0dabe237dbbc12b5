"""How many messages a turn gets: what takes a fast peer a blink keeps a slow one busy for a minute."""

from __future__ import annotations

__all__ = ["Sizing"]

_LEAST = 10


class Sizing:
    """The warm-up gets a tenth of the most. The turns that count get what its speed makes of `seconds`, and the most at
    most; all the same, for what differs in size is not to be compared."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._rates: dict[tuple[str, str], float] = {}

    def count(self, peer: str, figure: str, most: int) -> int:
        """Messages of the next turn; never less than ten of them, unless `most` is."""
        rate = self._rates.get((peer, figure))
        wanted = most / 10 if rate is None else rate * self._seconds
        return min(most, max(_LEAST, int(wanted)))

    def measured(self, peer: str, figure: str, rate: float) -> None:
        """Messages a second of a turn; only the first one counts."""
        self._rates.setdefault((peer, figure), rate)
