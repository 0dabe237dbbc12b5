"""A live set-up of one peer: what runs in the background, a receiver, and a sender that keeps to a schedule."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any, Self

from benchmarks.harness.arena import Contestant
from benchmarks.harness.process import PeerFailed, PeerProcess
from benchmarks.peers.load import arrivals

__all__ = ["Live", "Sent"]

_LEAD, _LEAD_EACH = 0.3, 2e-5
"""Seconds between the command to send and the start of the schedule, and for each message, which is made first."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A schedule that is being kept: numbers from `first`, `count` of them, from `start` on."""

    first: int
    count: int
    start: float


class Live:
    """Processes of one peer; they end with the block."""

    def __init__(self, contestant: Contestant, claim: int = 10) -> None:
        self.contestant, self._claim = contestant, claim
        self._stack = ExitStack()
        self.background_pids: list[int] = []
        self._spent: list[tuple[float, float]] = []
        self._count = 0
        self._sending = self._late = False

    def __enter__(self) -> Self:
        try:
            self.background = self._stack.enter_context(self.contestant.process())
            self.background_pids = self.background.ask("background")
            self.receiver = self._stack.enter_context(self.contestant.process())
            self.receiver.ask("work", batch=self._claim)
            self.sender = self._stack.enter_context(self.contestant.process())
            self.sender.ask("versions")
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    @property
    def processes(self) -> list[PeerProcess]:
        return [self.background, self.receiver, self.sender]

    def send(self, first: int, rate: float, seconds: float, seed: int) -> Sent:
        """Start to send at seeded times, independent of how the peer is doing. Once more only after `settle`."""
        offsets = arrivals(rate, seconds, seed)
        start = monotonic() + _LEAD + _LEAD_EACH * len(offsets)
        self.sender.ask("schedule", first=first, seed=seed, start=start, offsets=offsets)
        self._sending = True
        return Sent(first, len(offsets), start)

    def settle(self, patience: float = 10) -> None:
        """Wait for the end of the schedule, and until all of it has arrived; once in vain, not again."""
        report: dict[str, Any] = self.sender.ask("sent", timeout=900)
        if report["errors"]:
            raise PeerFailed(f"{self.contestant.name}: sending failed: {report['errors'][0]}")
        self._count += report["sent"]
        self._spent += report["spent"]
        self._sending = False
        deadline = monotonic() + patience
        while not self._late and self.receiver.ask("progress") < self._count:
            self._late = monotonic() > deadline
            sleep(0.02)

    def collect(self, patience: float = 30) -> tuple[list[tuple[float, float]], dict[str, Any]]:
        """End it: intended time and seconds of each call that sent, and what arrived (within `patience` seconds)."""
        if self._sending:
            self.settle(patience)
        deadline = monotonic() + patience
        # what came twice does not stand for what has not come yet
        while _different(self.receiver.ask("received")) < self._count and monotonic() < deadline:
            sleep(0.1)
        self.receiver.ask("stop")
        received: dict[str, Any] = self.receiver.ask("received")
        self.background.ask("stop")
        return self._spent, received


def _different(received: dict[str, Any]) -> int:
    """How many messages arrived, however often."""
    return sum(last - first + 1 for first, last in received["ranges"])
