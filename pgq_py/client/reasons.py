"""Why something failed, as it is kept in the database: clean text of a bounded length; and whose fault it was."""

from __future__ import annotations

import re
import traceback

import psycopg

from pgq_py.errors import ConnectionFailed, map_error

__all__ = ["LONGEST_REASON", "is_nobodys_fault", "storable", "traceback_text"]

LONGEST_REASON = 8192
"""Bytes. A longer one loses its middle: the error's name is at its end, where it began at its start."""

_UNSTORABLE = re.compile(r"[\0\ud800-\udfff]")
_TRANSACTION_LOST = frozenset({"40001", "40P01"})
_SERVER_UNWELL = ("53", "58")
"""Insufficient resources, and system errors."""


def storable(text: str) -> str:
    """The text, without what PostgreSQL cannot store, and not too long."""
    data = _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text).encode()
    if len(data) > LONGEST_REASON:
        data = data[: LONGEST_REASON // 4] + b"\n[...]\n" + data[7 - LONGEST_REASON * 3 // 4 :]
    return data.decode(errors="ignore")


def traceback_text(exc: BaseException) -> str:
    """The traceback of what a handler raised, from the handler on."""
    trace = exc.__traceback__
    frames = trace.tb_next if trace is not None and trace.tb_next is not None else trace
    return storable("".join(traceback.format_exception(type(exc), exc, frames)).strip())


def is_nobodys_fault(exc: BaseException) -> bool:
    """Whether the same would pass with a new connection, in a new transaction, or on a server in better health.

    Libraries that wrap psycopg's errors name them as the cause.
    """
    code = getattr(exc, "sqlstate", None) or ""
    if code in _TRANSACTION_LOST or code.startswith(_SERVER_UNWELL):
        return True
    mapped = map_error(exc) if isinstance(exc, psycopg.Error) else exc
    return isinstance(mapped, ConnectionFailed) or (exc.__cause__ is not None and is_nobodys_fault(exc.__cause__))
