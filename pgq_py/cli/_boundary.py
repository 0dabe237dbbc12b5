"""Where every error of a verb ends: two lines on stderr and an exit status, a traceback only for what is a bug.

    pgq: the queue is paused
         Events are kept. Resume delivery with `pgq queue resume NAME`.

Wrong usage (2) and Ctrl-C (130) are typer's own and pass through.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import typer

from pgq_py.errors import PgqError, map_error

__all__ = ["boundary", "complain"]


@contextmanager
def boundary() -> Iterator[None]:
    """Turn an expected error that leaves the block into its message and SystemExit with its status."""
    try:
        try:
            yield
        finally:
            # here, and of the true stdout: the interpreter would do it at its exit, and has no better answer than 120
            if sys.__stdout__ is not None:
                sys.__stdout__.flush()
    except PgqError as exc:
        complain(exc.message, exc.advice)
        sys.exit(exc.exit_code)
    except psycopg.Error as exc:
        sys.exit(_database_error(exc))
    except BrokenPipeError:
        # Whoever read our output has seen enough; the interpreter must not try to flush the rest at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def complain(message: str, advice: str = "") -> None:
    """What happened, and what to do about it, on stderr."""
    lines = [f"pgq: {message.strip()}", *(f"     {line}" for line in advice.strip().splitlines())]
    typer.echo("\n".join(lines), err=True)


def _database_error(exc: psycopg.Error) -> int:
    """Errors of the server that have no class here, such as a missing privilege, in the server's words."""
    mapped = map_error(exc)
    if mapped is not None:
        complain(mapped.message, mapped.advice)
        return mapped.exit_code
    details = (exc.diag.message_detail, exc.diag.message_hint)
    complain(exc.diag.message_primary or str(exc), "\n".join(text for text in details if text))
    return 1
