"""`pgq run MODULE:OBJ`: run the consumers that an application has declared on its PgQ object."""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import sys
import traceback
from typing import Annotated, Any, Unpack

import typer

from pgq_py.app import AsyncPgQ, PgQ
from pgq_py.cli._logs import Format, LogFormat, Verbose, start_logging
from pgq_py.cli._options import Dsn
from pgq_py.errors import PgqError
from pgq_py.running import WorkerOptions

__all__ = ["check_target", "load_app", "run", "run_app"]


def run(
    target: Annotated[str, typer.Argument(metavar="MODULE:OBJ", show_default=False, help="As in `shop.events:pgq`.")],
    *,
    slots: Annotated[int | None, typer.Option(min=1, max=10_000, help="Jobs that run at once (10).")] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=WEIGHT]",
            help="Work the jobs of this queue alone; again for more. Of those that have work, each gets jobs in "
            "proportion to its weight (1).",
        ),
    ] = None,
    drain: Annotated[bool, typer.Option("--drain", help="End when no job is left that could run now.")] = False,
    gather: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0,
            max=10,
            help="Wait so long between claims that bring less than there is room for: jobs come later, and more at a "
            "time, which costs less WAL (0).",
        ),
    ] = None,
    log_format: LogFormat = Format.TEXT,
    verbose: Verbose = False,
    dsn: Dsn = None,
) -> None:
    """Run the consumers and jobs declared on a PgQ or AsyncPgQ object, until SIGTERM or Ctrl-C.

    MODULE is imported as Python finds it, from the current directory first. Current calls of handlers are finished; a
    second signal does not wait for them.
    """
    check_target(target)
    options: WorkerOptions = {}
    if slots is not None:
        options["slots"] = slots
    if queue:
        options["queues"] = dict(map(_weighed, queue))
    if drain:
        options["drain"] = True
    if gather is not None:
        options["gather"] = gather
    if dsn is not None:
        os.environ["PGQ_DSN"] = dsn  # where the application's own PgQ() looks
    start_logging(verbose=verbose, log_format=log_format)
    app = load_app(target)
    if options and not app.job_specs:
        raise PgqError(
            f"{target} declares no jobs, and --slots, --queue, --drain and --gather are about jobs",
            advice="Nothing was started. Name the object that the jobs are declared on, or leave these options out.",
        )
    run_app(app, **options)


def run_app(app: PgQ | AsyncPgQ, **options: Unpack[WorkerOptions]) -> None:
    """Until it is stopped."""
    # What was imported stays until the end; a full collection that walks through it stops all handlers for some ten ms.
    gc.collect()
    gc.freeze()
    if isinstance(app, AsyncPgQ):
        asyncio.run(app.run(**options))
    else:
        app.run(**options)


def _weighed(queue: str) -> tuple[str, float]:
    """`NAME=WEIGHT`, or a name alone, which may contain the sign, too."""
    name, _, weight = queue.rpartition("=")
    try:
        return (name, float(weight)) if name else (queue, 1.0)
    except ValueError:
        return queue, 1.0


def check_target(target: str) -> None:
    """Wrong usage unless it is MODULE:OBJ."""
    module, _, name = target.partition(":")
    if not module or not name:
        raise typer.BadParameter(f"{target!r} is not MODULE:OBJ", param_hint="'MODULE:OBJ'")


def load_app(target: str) -> PgQ | AsyncPgQ:
    """The object. Raises PgqError, naming the line that went wrong when it is the application's."""
    module, _, name = target.partition(":")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - sys.path holds str
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except PgqError:
        raise
    except Exception as exc:
        raise PgqError(f"cannot import {module}:{name}: {_one_line(exc)}", advice=_place(exc)) from exc
    if not isinstance(found, PgQ | AsyncPgQ):
        raise PgqError(
            f"{module}:{name} is a {type(found).__name__}, not a PgQ or AsyncPgQ",
            advice="Nothing was started. Name the object that the consumers are declared on.",
        )
    return found


def _one_line(exc: Exception) -> str:
    return traceback.format_exception_only(exc)[-1].strip()


def _place(exc: Exception) -> str:
    """The innermost line of the application on the way to the error, if it got that far."""
    frames = [frame for frame in traceback.extract_tb(exc.__traceback__) if not _is_ours(frame.filename)]
    where = f"{frames[-1].filename}, line {frames[-1].lineno}: {frames[-1].line}\n" if frames else ""
    return f"{where}Nothing was started. Modules are looked for in the current directory first, then as Python does."


def _is_ours(filename: str) -> bool:
    return filename == __file__ or filename.startswith("<frozen") or filename == importlib.__file__
