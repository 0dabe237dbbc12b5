"""The facade that applications hold: the client, and the consumers declared on it.

    pgq = PgQ()

    @pgq.consumer("orders", name="mailer")
    def mail(event): ...

    pgq.run()                       # or: pgq run shop:pgq

`PgQ` and `AsyncPgQ` differ in their client alone. Either takes handlers of both kinds; see `pgq_py.consumers.runner`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pgq_py.client import AsyncClient, Client
from pgq_py.consumers import AsyncRunner, ConsumerSpec, Runner, consumer_spec
from pgq_py.errors import InvalidArgument
from pgq_py.settings import Settings

__all__ = ["AsyncPgQ", "PgQ"]

F = TypeVar("F", bound=Callable[..., Any])


class _Consumers:
    """The consumers declared in this process, by queue and name."""

    _specs: dict[tuple[str, str], ConsumerSpec]

    def consumer(
        self, queue: str, *, name: str, exactly_once: bool = False, batch: bool = False, max_events: int | None = None
    ) -> Callable[[F], F]:
        """Decorate a function that handles the events of a queue, as the consumer `name` with its own position.

        It is called with each event, or with `batch=True` with a list of at most `max_events` of them, in the order of
        their ids. By default an event is delivered at least once: it comes again when the handler raises (after a
        pause; the next ones wait) or the process ends in between. With `exactly_once=True` the handler gets a second
        argument, the transaction in which its writes and the acknowledgement are committed together, `max_events` of
        them at a time.

        The function may be a coroutine function; its transaction is an async one then. It is returned unchanged.
        """

        def declare(handler: F) -> F:
            spec = consumer_spec(handler, queue, name, exactly_once=exactly_once, batch=batch, max_events=max_events)
            if self._specs.setdefault((queue, name), spec) is not spec:
                raise InvalidArgument(f"consumer {name!r} of queue {queue!r} is declared twice")
            return handler

        return declare

    @property
    def declared(self) -> tuple[ConsumerSpec, ...]:
        """What `run` will run."""
        return tuple(self._specs.values())


class PgQ(_Consumers, Client):
    """The log, for threads. `PgQ()` finds its database as `Settings` says, `PgQ("postgresql:///shop")` is told."""

    def __init__(self, dsn: str | None = None, *, settings: Settings | None = None) -> None:
        super().__init__(dsn, settings=settings)
        self._specs = {}

    def runner(self) -> Runner:
        """The declared consumers, to be started and stopped by the caller."""
        return Runner(self.settings, self.declared)

    def run(self) -> None:
        """Run the declared consumers until SIGTERM, SIGINT or the end of the process."""
        self.runner().run()


class AsyncPgQ(_Consumers, AsyncClient):
    """The log, for an event loop. `AsyncPgQ()` finds its database as `Settings` says."""

    def __init__(self, dsn: str | None = None, *, settings: Settings | None = None) -> None:
        super().__init__(dsn, settings=settings)
        self._specs = {}

    def runner(self) -> AsyncRunner:
        """The declared consumers, to be run and stopped by the caller."""
        return AsyncRunner(self.settings, self.declared)

    async def run(self) -> None:
        """Run the declared consumers until SIGTERM, SIGINT or cancellation."""
        await self.runner().run()
