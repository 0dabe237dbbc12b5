"""What a queue must do, exactly, in plain Python: the reference that the state machine compares the engine with.

One thing happens at a time here, so a snapshot is a number: how many events had been committed before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Event = tuple[int, str]


@dataclass
class Cursor:
    """Where one consumer stands: behind `last`; `next` and `batch` while a batch is open."""

    last: int
    next: int | None = None
    batch: int | None = None
    acked: int = 0
    handed: int | None = None

    def finish(self) -> None:
        assert self.next is not None
        self.last, self.next, self.batch, self.acked, self.handed = self.next, None, None, 0, None


@dataclass
class Model:
    """The log in the order of commits, the ticks as positions in it, and the consumers."""

    log: list[Event] = field(default_factory=list)
    ticks: dict[int, int] = field(default_factory=lambda: {1: 0})
    cursors: dict[str, Cursor] = field(default_factory=dict)

    @property
    def newest(self) -> int:
        return max(self.ticks)

    @property
    def fresh(self) -> bool:
        """Has something been committed since the newest tick?"""
        return len(self.log) > self.ticks[self.newest]

    def tick(self, tick: int) -> None:
        assert tick == self.newest + 1
        self.ticks[tick] = len(self.log)

    def between(self, first: int, last: int) -> list[Event]:
        """Events of the window between two ticks, in the order of ids."""
        return sorted(self.log[self.ticks[first] : self.ticks[last]])

    def open(self, cursor: Cursor, batch: int, upto: int) -> None:
        """A batch was opened: behind the cursor, at a tick that exists, empty only when there is nothing else."""
        assert cursor.last < upto <= self.newest
        cursor.batch, cursor.next = batch, upto
        assert self.left(cursor) or upto == self.newest

    def left(self, cursor: Cursor) -> list[Event]:
        """Events of the open batch that are not acknowledged."""
        assert cursor.next is not None
        return [event for event in self.between(cursor.last, cursor.next) if event[0] > cursor.acked]

    def waiting(self, cursor: Cursor) -> list[Event]:
        """Events that a tick shows behind a cursor without an open batch."""
        assert cursor.batch is None
        return self.between(cursor.last, self.newest)
