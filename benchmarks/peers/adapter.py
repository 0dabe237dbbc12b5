"""The interface of a peer: what it can do, what it needs, and how each thing is done the way its documentation says.

An adapter is made anew in every process. It may hold connections; `close` ends them. All its methods block. What a peer
cannot do is left out of `can`, and is never measured.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from threading import Event
from typing import Any, ClassVar, Final

from benchmarks.peers.load import Message

__all__ = ["QUEUE", "Adapter", "Handler"]

QUEUE: Final = "bench"
Handler = Callable[[Any], None]
"""Called with a message as the peer hands it over; `Adapter.decode` makes the number and times of it later."""


class Adapter:
    """The base of all peers.

    `can` names abilities: `single`, `pipelined`, `bulk` (sending), `read` (a log or queue read by one process),
    `fanout` (any number of consumers), `jobs` (competing workers), `live` (a long-running receiver), `scale`.
    """

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    kind: ClassVar[str] = "peer"
    """`ours`, `peer` or `limit`."""
    framework: ClassVar[bool] = False
    """A Python job framework, with a worker of its own."""
    practice: ClassVar[str] = ""
    """Which of the peer's documented ways of use is measured."""
    requirements: ClassVar[tuple[str, ...]] = ()
    """What pip installs into its environment."""
    python: ClassVar[tuple[int, int]] = (3, 11)
    can: ClassVar[frozenset[str]] = frozenset()
    schemas: ClassVar[tuple[str, ...]] = ("public",)
    """Schemas that hold all its relations, metadata included."""
    unit: ClassVar[str] = "event"
    """What a message is: an `event` of a log, which stays for others, or a `job`, which somebody finishes."""

    def __init__(self, dsn: str, options: Mapping[str, str]) -> None:
        self.dsn = dsn
        self.options = options

    @classmethod
    def missing(cls, options: Mapping[str, str]) -> str | None:
        """Why the peer cannot be measured here, apart from what pip installs; None when it can."""
        del options
        return None

    def versions(self) -> dict[str, str]:
        """Versions of what is measured."""
        return {}

    def close(self) -> None:
        """End all connections."""

    def install(self) -> None:
        """Put the peer's schema into its empty database."""
        raise NotImplementedError

    def prepare(self, consumers: int = 0) -> None:
        """Create the queue, with consumers 0 .. `consumers` - 1 where the peer knows consumers."""
        raise NotImplementedError

    # -- sending --------------------------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        """One message, committed at the return."""
        raise NotImplementedError

    def send_single(self, batch: Sequence[Message]) -> None:
        """One call and one commit for each."""
        for message in batch:
            self.send(message)

    def send_pipelined(self, batch: Sequence[Message]) -> None:
        """One call for each, in one transaction, without waiting for each answer."""
        raise NotImplementedError

    def send_bulk(self, batch: Sequence[Message]) -> None:
        """Through the bulk API, in the chunks that the peer recommends."""
        raise NotImplementedError

    def contents(self) -> Sequence[Any]:
        """What is stored now, read past the API: to be compared with what was sent."""
        raise NotImplementedError

    def clear(self) -> None:
        """Empty the queue for the next turn."""
        raise NotImplementedError

    # -- receiving ------------------------------------------------------------------------------------------------

    def seal(self) -> None:
        """Make what was sent so far readable, where that takes a step of its own."""

    def read(self, consumer: int) -> Sequence[Any]:
        """Read and acknowledge everything that waits for a consumer."""
        raise NotImplementedError

    def work(self, handler: Handler, stop: Event, ready: Event, batch: int) -> None:
        """Receive until `stop`, claiming `batch` at a time; `ready` is set when messages would be noticed."""
        raise NotImplementedError

    def unfinished(self) -> bool:
        """A job is not yet finished in the database."""
        raise NotImplementedError

    def background(self, stop: Event, ready: Event) -> list[int] | None:
        """What must run beside producers and consumers (tickers, maintenance), until `stop`."""
        ready.set()
        stop.wait()
        return None

    @staticmethod
    def decode(payload: Any) -> dict[str, Any]:
        """A message as it was handed over, as the object that was sent."""
        found: dict[str, Any] = payload if isinstance(payload, dict) else json.loads(payload)
        return found

    # -- scale ----------------------------------------------------------------------------------------------------

    def populate(self, queues: int, consumers: int, backlog: int) -> None:
        """That many queues in all, that many consumers of the queue, and a backlog that nobody has read."""
        raise NotImplementedError

    def step(self, message: Message) -> dict[str, float]:
        """Send one message and bring it through; milliseconds of each step by name."""
        raise NotImplementedError
