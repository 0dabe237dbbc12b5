"""What is due when: the ticker's decisions, without clock, database or thread.

Times are seconds of one monotonic clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["RETRY_AFTER", "Mark", "Pace", "Watch", "worth_trying"]

RETRY_AFTER = 1.0
"""Seconds between two attempts to tick a queue that failed."""


def worth_trying(due: Iterable[str], failed_at: Mapping[str, float], now: float) -> list[str]:
    """The due queues but for those that have just failed: a broken one must not cost a try per beat."""
    return [queue for queue in due if now - failed_at.get(queue, float("-inf")) >= RETRY_AFTER]


@dataclass(frozen=True, slots=True)
class Mark:
    """A queue as seen in one look at all of them: where its event sequence stands, and the snapshot's bounds."""

    queue: str
    queue_id: int
    event_seq: int
    xmin: int
    xmax: int


class Watch:
    """Which queues are worth a probe, out of thousands that are idle.

    A queue needs none while its event sequence has not moved, and every transaction is over that was running when it
    was last seen to move: what such a transaction inserted may have become visible at any time until then.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int]] = {}
        self.names: dict[int, str] = {}

    def look(self, marks: Iterable[Mark]) -> list[str]:
        """Take note of the marks of all queues; returns those to probe."""
        seen: dict[str, tuple[int, int]] = {}
        probe = []
        self.names = {}
        for mark in marks:
            self.names[mark.queue_id] = mark.queue
            seq, horizon = self._seen.get(mark.queue, (-1, 0))
            if mark.event_seq != seq:
                horizon = mark.xmax
                probe.append(mark.queue)
            elif mark.xmin < horizon:
                probe.append(mark.queue)
            else:
                # Seen quiet in a snapshot in which all of them were over; look once more, then never.
                if horizon:
                    probe.append(mark.queue)
                horizon = 0
            seen[mark.queue] = (mark.event_seq, horizon)
        self._seen = seen
        return probe


class Pace:
    """Whether to be woken or to keep looking.

    Asleep, every event sends a notification, and a tick follows it at once: the lowest latency, and nothing to do while
    idle. But PostgreSQL lets one notifying transaction commit at a time. One producer loses nothing by that; several
    that commit at once get half done of what they could. So when they are seen to queue up, or come faster than the
    ticker can hear them, it takes the notifications off and looks by itself, a few hundred times a second, until the
    rate has fallen to half of what it was. Whether they would still be in each other's way it can see only while they
    notify; so after a while it lets them try, unless they come too fast.

    The rate is that of ticks or of notifications, whichever is higher: events for later bring no tick. In a rush nobody
    notifies, and consumers make most ticks; then the rate is that of events, or of transactions if that is lower (many
    events of one would notify once).
    """

    WINDOW = 0.2

    CROWD = 1.5
    """Notifying transactions that commit or wait for it, on average of some looks. One sender makes less than one, and
    whoever ticks adds to it now and then."""

    LOOKS = 8

    TRIAL = 10.0
    """Seconds after which those that were in each other's way may try again: what that costs, it costs a thirtieth of
    the time."""

    def __init__(self, lively_rate: float = 80.0, busy_rate: float = 1500.0) -> None:
        self._lively, self._busy, self._calm = lively_rate, busy_rate, busy_rate / 2
        self._ticks: deque[float] = deque()
        self._wakes: deque[float] = deque()
        self._seen: deque[tuple[float, int, int]] = deque()
        self._committing: deque[int] = deque(maxlen=self.LOOKS)
        self._try_at = 0.0
        self.busy = False

    def ticked(self, now: float) -> None:
        """A tick was made."""
        self._ticks.append(now)

    def woken(self, now: float, times: int) -> None:
        """So many notifications have come."""
        self._wakes.extend([now] * times)

    def seen(self, now: float, events: int, transactions: int) -> None:
        """How many events all queues have had so far, and the cluster transactions."""
        self._seen.append((now, events, transactions))
        while len(self._seen) > 2 and self._seen[1][0] < now - self.WINDOW:
            self._seen.popleft()

    @property
    def wonders(self) -> bool:
        """There are enough notifications for producers to be in each other's way: `committing` tells whether they are.
        As of the last decision."""
        return not self.busy and len(self._wakes) >= self._lively * self.WINDOW

    def committing(self, transactions: int) -> None:
        """So many notifying transactions were about to commit at some moment."""
        self._committing.append(transactions)

    def _sent(self) -> float:
        """Events or transactions a second, as seen during the last window."""
        if len(self._seen) < 2:
            return 0.0
        (then, *before), (now, *after) = self._seen[0], self._seen[-1]
        return min(b - a for a, b in zip(before, after, strict=True)) / max(now - then, self.WINDOW)

    def decide(self, now: float) -> bool:
        """True when `busy` has just changed."""
        for times in (self._ticks, self._wakes):
            while times and times[0] < now - self.WINDOW:
                times.popleft()
        rate = max(len(self._ticks), len(self._wakes)) / self.WINDOW
        if self.busy:
            self.busy = max(rate, self._sent()) >= (self._calm if now < self._try_at else self._busy)
            return not self.busy
        if not self.wonders:
            self._committing.clear()
        crowd = len(self._committing) == self.LOOKS and sum(self._committing) >= self.CROWD * self.LOOKS
        if crowd or rate >= self._busy:
            self.busy, self._calm, self._try_at = True, min(rate, self._busy) / 2, now + self.TRIAL
            self._committing.clear()
        return self.busy
