"""What an application wants done around every job: hooks before, after and on failure, and wrap-around middleware.

    @pgq.before_job
    def log(ctx: JobContext) -> None: ...

    @pgq.after_job
    def count(ctx: JobContext, result: object) -> None: ...

    @pgq.on_job_failure
    def report(ctx: JobContext, error: Exception) -> None: ...

    @pgq.around_job
    @contextmanager
    def trace(ctx: JobContext) -> Iterator[None]:
        with tracer.span(ctx.type):
            yield

They run where the handler runs: in its thread, or in the event loop. So they are plain functions and context managers,
which serve both kinds of handlers; coroutine functions and async context managers serve coroutine functions alone, and
an application that has other handlers as well is told so when it starts. Before and after run inside of those
around, in the order in which they were declared; what is declared first is outermost.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pgq_py.errors import InvalidArgument
from pgq_py.jobs.context import JobContext
from pgq_py.jobs.spec import JobSpec
from pgq_py.outcomes import JobCancelled, Snooze

__all__ = ["Around", "Call", "Middleware"]

Around: TypeAlias = Callable[[JobContext], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]]
"""A function of the context that returns a context manager, for instance one decorated with contextmanager."""

Call: TypeAlias = Callable[[JobContext, list[Any], dict[str, Any]], Any]
"""Runs a handler with all that is around it: returns its result, or for a coroutine function an awaitable."""


@dataclass(slots=True)
class Middleware:
    """What one application has declared. Empty, it costs nothing."""

    before: list[Callable[[JobContext], Any]] = field(default_factory=list)
    after: list[Callable[[JobContext, Any], Any]] = field(default_factory=list)
    failure: list[Callable[[JobContext, Exception], Any]] = field(default_factory=list)
    around: list[Around] = field(default_factory=list)

    def bind(self, spec: JobSpec) -> Call:
        """How to run the jobs of a spec: `call(context, args, kwargs)`, to be awaited when `spec.is_async`.

        An exception of a hook counts as the handler's own. A failure hook is told of every exception but Snooze and
        JobCancelled, and what it raises itself replaces that. Raises InvalidArgument for an async hook of a job that
        runs in a thread.
        """
        handler = spec.handler
        if not (self.before or self.after or self.failure or self.around):
            return lambda _context, args, kwargs: handler(*args, **kwargs)
        if spec.is_async:
            return self._async_call(handler)
        for hook in (*self.before, *self.after, *self.failure, *self.around):
            if _is_async(hook):
                raise InvalidArgument(
                    f"{_name(hook)} is asynchronous, and job {spec.type!r} a plain function that runs in a thread",
                    advice="Nothing was started. Make the hook a plain function or context manager: it serves both.",
                )
        return self._sync_call(handler)

    def _sync_call(self, handler: Callable[..., Any]) -> Call:
        def call(context: JobContext, args: list[Any], kwargs: dict[str, Any]) -> Any:
            try:
                with ExitStack() as stack:
                    for manager in self.around:
                        _enter_sync(stack, manager(context))
                    for before in self.before:
                        before(context)
                    result = handler(*args, **kwargs)
                    for after in self.after:
                        after(context, result)
                    return result
            except (Snooze, JobCancelled):
                raise
            except Exception as exc:
                for failure in self.failure:
                    failure(context, exc)
                raise

        return call

    def _async_call(self, handler: Callable[..., Any]) -> Call:
        async def call(context: JobContext, args: list[Any], kwargs: dict[str, Any]) -> Any:
            try:
                async with AsyncExitStack() as stack:
                    for manager in self.around:
                        await _enter(stack, manager(context))
                    for before in self.before:
                        await _settled(before(context))
                    result = await handler(*args, **kwargs)
                    for after in self.after:
                        await _settled(after(context, result))
                    return result
            except (Snooze, JobCancelled):
                raise
            except Exception as exc:
                for failure in self.failure:
                    await _settled(failure(context, exc))
                raise

        return call


def _enter_sync(stack: ExitStack, manager: Any) -> None:
    stack.enter_context(manager)


async def _enter(stack: AsyncExitStack, manager: Any) -> None:
    if isinstance(manager, AbstractAsyncContextManager):
        await stack.enter_async_context(manager)
    else:
        stack.enter_context(manager)


async def _settled(value: Any) -> None:
    if inspect.isawaitable(value):
        await value


def _is_async(hook: Any) -> bool:
    """Also of what contextlib's decorators have wrapped."""
    inner = inspect.unwrap(hook)
    return inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner)


def _name(hook: Any) -> str:
    return getattr(hook, "__qualname__", None) or repr(hook)
