"""Which of its queues a worker claims from next, and when it comes to rest for a job that must run alone."""

from __future__ import annotations

import random
from collections.abc import Mapping
from time import monotonic

from pgq_py.client.checks import check_name
from pgq_py.errors import InvalidArgument

__all__ = ["Rest", "Share", "Shares"]


class Share:
    """One queue. `turn` is the next turn's place in the order; `dry` says that nothing waits, as far as is known, and
    nothing does up to the tick `dry_until`; `lane` is the priority of the last jobs, at first the default; `was_solo`
    says that these were a job that had to run alone: then it is the others' turn."""

    __slots__ = ("dry", "dry_until", "lane", "queue", "turn", "was_solo", "weight")

    def __init__(self, queue: str, weight: float) -> None:
        self.queue, self.weight = queue, weight
        self.turn = 0.0
        self.dry = self.was_solo = False
        self.dry_until: int | None = None
        self.lane = 100


class Shares:
    """Queues with weights: of those that have work, each gets jobs in proportion to its weight."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        if not weights:
            raise InvalidArgument("a worker needs at least one queue", advice="Nothing was started.")
        for queue, weight in weights.items():
            check_name(queue, "queue")
            if not 0 < weight < 1_000_000:
                raise InvalidArgument(f"the weight of {queue!r} must be more than 0, not {weight!r}")
        self._shares = {queue: Share(queue, weight) for queue, weight in weights.items()}
        self.queues = tuple(weights)

    def next(self) -> Share | None:
        """The queue whose turn it is, None when all are dry."""
        wet = [share for share in self._shares.values() if not share.dry]
        return min(wet, key=lambda share: share.turn, default=None)

    def took(self, share: Share, jobs: int) -> None:
        """It had so many jobs. A queue that was dry does not make up for the turns that it missed."""
        share.turn += jobs / share.weight
        for other in self._shares.values():
            if other.dry:
                other.turn = max(other.turn, share.turn)

    def forget(self) -> None:
        """Nothing is known any more: a server that was restarted may give the numbers of lost ticks out again."""
        for share in self._shares.values():
            share.dry, share.dry_until = False, None

    def water(self, queues: set[str] | None = None) -> bool:
        """Something may be waiting in these queues, or in all (None). Whether one of them was dry."""
        found = False
        for share in self._shares.values():
            if share.dry and (queues is None or share.queue in queues):
                share.dry = False
                found = True
        return found


class Rest:
    """When a worker that always has something in hand asks for jobs that must run alone, and how long it rests for one.

    Neither may starve: if what runs does not end in time, the worker goes on for nine times as long as it rested, and
    is twice as patient the next time. Workers do not rest in step.
    """

    def __init__(self) -> None:
        self._patience = 1.0
        self._until = 0.0
        self._ask_at = 0.0
        self.idle()

    def idle(self) -> None:
        """The worker had nothing in hand."""
        self._until = 0.0
        self._patience = 1.0
        self._ask_at = monotonic() + random.uniform(1.0, 3.0)

    @property
    def ask(self) -> bool:
        """It is time to ask whether such a job waits."""
        return monotonic() >= self._ask_at

    @property
    def left(self) -> float:
        """For how many seconds to claim nothing still."""
        return self._until - monotonic()

    def answer(self, waits: bool) -> None:
        """Such a job waits, or none does."""
        now = monotonic()
        if not waits:
            self._ask_at = now + random.uniform(1.0, 3.0)
            return
        self._until = now + self._patience
        self._ask_at = self._until + 9 * self._patience * random.uniform(0.8, 1.2)
        self._patience = min(self._patience * 2, 3600.0)
