"""What a check of `pgq status` or `pgq doctor` hands back."""

from __future__ import annotations

from dataclasses import dataclass
from shlex import quote
from typing import Literal

__all__ = ["SEVERITIES", "Finding", "Problem", "Severity", "quoted"]

Severity = Literal["error", "warning", "info"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
"""The worst first."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with whom. `check` is the kind of finding, for programs; `mend` a command of the shell, or a
    statement for psql."""

    severity: Severity
    check: str
    subject: str
    what: str
    mend: str


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with what, and how to mend it. `kind` is `ticker`, `consumer`, `rotation`, `jobs` or `worker`;
    `mend` is a command of the shell, or a statement for psql. `queue` is None where it is not one queue's."""

    kind: str
    queue: str | None
    subject: str
    message: str
    advice: str
    mend: str


def quoted(*names: str) -> str:
    """Names as arguments of a shell's command."""
    return " ".join(quote(name) for name in names)
