"""What is due when: the ticker's decisions, without clock, database or thread.

Times are seconds of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["RETRY_AFTER", "next_beat", "worth_trying"]

RETRY_AFTER = 1.0
"""Seconds between two attempts to tick a queue that failed."""


def next_beat(last: float, now: float, interval: float) -> float:
    """The first beat after `now` on the grid of the last one.

    Beats that a slow round or a suspended machine has missed are left out, not made up for; one that fell due at this
    very moment is not missed.
    """
    missed = max(0.0, (now - last) // interval)
    return last + (missed + 1) * interval


def worth_trying(due: Iterable[str], failed_at: Mapping[str, float], now: float) -> list[str]:
    """The due queues but for those that have just failed: a broken one must not cost a try per beat."""
    return [queue for queue in due if now - failed_at.get(queue, float("-inf")) >= RETRY_AFTER]
