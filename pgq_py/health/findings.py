"""What a check of `pgq doctor` hands back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["SEVERITIES", "Finding", "Severity"]

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
