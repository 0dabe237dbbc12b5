"""The facade that applications hold: the client, and the consumers and jobs declared on it.

    pgq = PgQ()

    @pgq.consumer("orders", name="mailer")
    def mail(event): ...

    @pgq.job("emails")
    def welcome(address: str): ...

    pgq.run()                       # or: pgq run shop:pgq

`PgQ` and `AsyncPgQ` differ in their client alone. Either takes handlers of both kinds; see `pgq_py.consumers.runner`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, Unpack

from pgq_py.consumers import ConsumerSpec, consumer_spec
from pgq_py.errors import InvalidArgument
from pgq_py.jobs import AsyncDeclaring, Declaring
from pgq_py.running import AppRunner, AsyncAppRunner, WorkerOptions
from pgq_py.settings import Settings
from pgq_py.types import RetryPolicy

__all__ = ["AsyncPgQ", "PgQ"]

F = TypeVar("F", bound=Callable[..., Any])


class _Consumers:
    """The consumers declared in this process, by queue and name."""

    _specs: dict[tuple[str, str], ConsumerSpec]

    def consumer(
        self,
        queue: str,
        *,
        name: str,
        exactly_once: bool = False,
        batch: bool = False,
        max_events: int | None = None,
        retries: RetryPolicy | int | None = None,
        on_error: Literal["retry", "block"] = "retry",
        on_evicted: Literal["stop", "register"] = "stop",
        types: Mapping[str, Any] | None = None,
        event_type: str | None = None,
        unknown: Literal["retry", "dead", "skip", "raise"] | None = None,
    ) -> Callable[[F], F]:
        """Decorate a function that handles the events of a queue, as the consumer `name` with its own position.

        It is called with each event, or with `batch=True` with a list of at most `max_events` of them, in the order of
        their ids. By default an event is delivered at least once: again when the process ends before it could be
        acknowledged. With `exactly_once=True` the handler gets a second argument, the transaction in which its writes
        and the acknowledgement are committed together, `max_events` of them at a time.

        **Failures.** An event on which the handler raises comes again later, by itself, and after too many retries
        becomes a dead letter; `Retry` and `Discard` say so on purpose. Its neighbours are acknowledged; a failing call
        with many events is repeated with fewer, down to those on which it fails. `retries` sets the consumer's policy
        at each start (a number: so many retries, the rest by default; None: leave the one in the database).
        `on_error="block"` lets nothing pass ahead of a failed event instead: it is tried again until it succeeds.
        A lost connection or a deadlock is no failure of an event; it comes again uncounted.

        **Typed events.** `types={"order.created": OrderCreated}` validates the data with pydantic and calls the handler
        with the result; so does `event_type="order.created"` with a handler whose first parameter is annotated with a
        model or dataclass. A parameter `event` (`events` of a batch) behind the others gets the event as well. Invalid
        data becomes a dead letter. An event of another type is retried, or as `unknown` says: given up, skipped, or
        not passed ("raise", the default with `on_error="block"`).

        **Eviction** (a consumer that lagged too far was removed) stops this consumer with ConsumerNotRegistered, unless
        `on_evicted="register"` lets it go on with what is sent from then on.

        The function may be a coroutine function; its transaction is an async one then. It is returned unchanged.
        """
        options: dict[str, Any] = {"exactly_once": exactly_once, "batch": batch, "max_events": max_events}
        options |= {"retries": retries, "on_error": on_error, "on_evicted": on_evicted}
        options |= {"types": types, "event_type": event_type, "unknown": unknown}

        def declare(handler: F) -> F:
            spec = consumer_spec(handler, queue, name, **options)
            if self._specs.setdefault((queue, name), spec) is not spec:
                raise InvalidArgument(f"consumer {name!r} of queue {queue!r} is declared twice")
            return handler

        return declare

    @property
    def declared(self) -> tuple[ConsumerSpec, ...]:
        """The consumers that `run` will run; `job_specs` has the jobs."""
        return tuple(self._specs.values())


class PgQ(_Consumers, Declaring):
    """The log, for threads. `PgQ()` finds its database as `Settings` says, `PgQ("postgresql:///shop")` is told."""

    def __init__(self, dsn: str | None = None, *, settings: Settings | None = None) -> None:
        super().__init__(dsn, settings=settings)
        self._specs = {}

    def runner(self, **options: Unpack[WorkerOptions]) -> AppRunner:
        """The declared consumers and jobs, to be started and stopped by the caller."""
        return AppRunner(self.settings, self.declared, tuple(self.job_specs.values()), self.middleware, **options)

    def run(self, **options: Unpack[WorkerOptions]) -> None:
        """Run the declared consumers and jobs until SIGTERM, SIGINT or the end of the process.

        For jobs, `slots` of them run at once (10), and `queues` may choose and weigh: `{"urgent": 3, "bulk": 1}`. With
        `drain=True` it ends when no job is left that could run now. See `pgq_py.jobs.worker.Worker` for the rest.
        """
        self.runner(**options).run()


class AsyncPgQ(_Consumers, AsyncDeclaring):
    """The log, for an event loop. `AsyncPgQ()` finds its database as `Settings` says."""

    def __init__(self, dsn: str | None = None, *, settings: Settings | None = None) -> None:
        super().__init__(dsn, settings=settings)
        self._specs = {}

    def runner(self, **options: Unpack[WorkerOptions]) -> AsyncAppRunner:
        """The declared consumers and jobs, to be run and stopped by the caller."""
        return AsyncAppRunner(self.settings, self.declared, tuple(self.job_specs.values()), self.middleware, **options)

    async def run(self, **options: Unpack[WorkerOptions]) -> None:
        """Run the declared consumers and jobs until SIGTERM, SIGINT or cancellation; options as of `PgQ.run`."""
        await self.runner(**options).run()
