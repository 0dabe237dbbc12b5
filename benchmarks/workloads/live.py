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

_LEAD = 1.0
"""Seconds between the command to send and the first message that is due."""


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
        """Start to send at seeded times, independent of how the peer is doing."""
        offsets = arrivals(rate, seconds, seed)
        start = monotonic() + _LEAD
        self.sender.ask("schedule", first=first, seed=seed, start=start, offsets=offsets)
        return Sent(first, len(offsets), start)

    def collect(self, patience: float = 30) -> tuple[dict[str, Any], dict[str, Any]]:
        """Wait for all of it: what the sender says, and what arrived (after `patience` seconds, what has arrived)."""
        report: dict[str, Any] = self.sender.ask("sent", timeout=900)
        if report["errors"]:
            raise PeerFailed(f"{self.contestant.name}: sending failed: {report['errors'][0]}")
        deadline = monotonic() + patience
        while self.receiver.ask("progress") < report["sent"] and monotonic() < deadline:
            sleep(0.02)
        # what came twice does not stand for what has not come yet
        while _different(self.receiver.ask("received")) < report["sent"] and monotonic() < deadline:
            sleep(0.1)
        self.receiver.ask("stop")
        received: dict[str, Any] = self.receiver.ask("received")
        self.background.ask("stop")
        return report, received


def _different(received: dict[str, Any]) -> int:
    """How many messages arrived, however often."""
    return sum(last - first + 1 for first, last in received["ranges"])
