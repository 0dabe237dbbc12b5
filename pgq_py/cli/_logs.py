"""The log of a process that runs on, on stderr: lines for the eye and a supervisor, or JSON objects for a collector."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer

__all__ = ["Format", "LogFormat", "Verbose", "start_logging"]


class Format(StrEnum):
    """The forms of a log."""

    TEXT = "text"
    JSON = "json"


Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log what is done in detail.")]
LogFormat = Annotated[
    Format, typer.Option("--log-format", metavar="text|json", help="Lines, or one JSON object per line.")
]


class _Json(logging.Formatter):
    """time (UTC, ISO 8601), level, logger, message; `thread` and `error` where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "thread": record.threadName,
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def start_logging(*, verbose: bool, log_format: Format = Format.TEXT) -> None:
    """Log this package at INFO (DEBUG when verbose), and everything else from WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s %(message)s")
    handler.setFormatter(_Json() if log_format is Format.JSON else text)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("pgq_py").setLevel(logging.DEBUG if verbose else logging.INFO)
