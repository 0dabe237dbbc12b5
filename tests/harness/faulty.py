"""Peers with a known fault, on a real table: what the harness must measure, and what it must catch."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from threading import Event
from typing import Any, ClassVar

from benchmarks.peers.adapter import Handler
from benchmarks.peers.load import Message
from benchmarks.peers.skip_locked import SkipLocked

__all__ = ["Broken", "Doubler", "Hermit", "Honest", "Loser", "Parent", "Sleeper", "Staller", "Unready"]


class Honest(SkipLocked):
    """Nothing wrong with it, and in our own environment."""

    name = "honest"
    title = "honest"
    requirements: ClassVar[tuple[str, ...]] = ()
    can = frozenset({"single", "pipelined", "bulk", "read", "fanout", "jobs", "live"})


class Loser(Honest):
    """Every tenth message is acknowledged and forgotten."""

    name = "loser"

    def send(self, message: Message) -> None:
        if message.data["nr"] % 10:
            super().send(message)

    def send_pipelined(self, batch: Sequence[Message]) -> None:
        super().send_pipelined([message for message in batch if message.data["nr"] % 10])

    def send_bulk(self, batch: Sequence[Message]) -> None:
        super().send_bulk([message for message in batch if message.data["nr"] % 10])


class Doubler(Honest):
    """Every tenth message is handed over twice."""

    name = "doubler"

    def contents(self) -> Sequence[Any]:
        return self._again(super().contents())

    def read(self, consumer: int) -> Sequence[Any]:
        return self._again(super().read(consumer))

    def work(self, handler: Handler, stop: Event, ready: Event, batch: int) -> None:
        def twice(payload: Any) -> None:
            for one in self._again([payload]):
                handler(one)

        super().work(twice, stop, ready, batch)

    def _again(self, payloads: Sequence[Any]) -> list[Any]:
        return [*payloads, *(payload for payload in payloads if self.decode(payload)["nr"] % 10 == 0)]


class Sleeper(Honest):
    """Sending takes 10 ms longer, handing over 20 ms."""

    name = "sleeper"

    def send(self, message: Message) -> None:
        time.sleep(0.010)
        super().send(message)

    def work(self, handler: Handler, stop: Event, ready: Event, batch: int) -> None:
        def slowly(payload: Any) -> None:
            time.sleep(0.020)
            handler(payload)

        super().work(slowly, stop, ready, batch)


class Staller(Honest):
    """Its first call after a second stalls for half a second; all others are quick."""

    name = "staller"
    _begin = 0.0

    def send(self, message: Message) -> None:
        if not self._begin:
            self._begin = time.monotonic()
        if self._begin > 0 and time.monotonic() - self._begin > 1:
            self._begin = -1
            time.sleep(0.5)
        super().send(message)


class Broken(Honest):
    """Cannot send."""

    name = "broken"

    def send_bulk(self, batch: Sequence[Message]) -> None:
        raise RuntimeError(f"out of paper for {len(batch)} messages")


class Unready(Honest):
    """What it needs in the background does not start."""

    name = "unready"

    def background(self, stop: Event, ready: Event) -> list[int] | None:
        del stop, ready
        raise RuntimeError("nobody at home")


class Parent(Honest):
    """Runs something of its own, and does not care for it."""

    name = "parent"

    def background(self, stop: Event, ready: Event) -> list[int] | None:
        subprocess.Popen(["sleep", "600"])
        ready.set()
        stop.wait()
        return None


class Hermit(Honest):
    """Needs what is not to be had."""

    name = "hermit"
    title = "hermit"
    requirements: ClassVar[tuple[str, ...]] = ("/nowhere/hermit.whl",)
