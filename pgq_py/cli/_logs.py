"""The log of a process that runs on, on stderr: lines for a supervisor, or for the eye on a terminal."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

__all__ = ["Verbose", "start_logging"]

Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log what is done in detail.")]


def start_logging(*, verbose: bool) -> None:
    """Log this package at INFO (DEBUG when verbose), and everything else from WARNING on."""
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.WARNING,
        format="%(asctime)s %(levelname)-7s %(name)s %(message)s",
    )
    logging.getLogger("pgq_py").setLevel(logging.DEBUG if verbose else logging.INFO)
