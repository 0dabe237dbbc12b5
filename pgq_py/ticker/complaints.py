"""Log a failure once, not on every beat: until it changes, and again when it is over."""

from __future__ import annotations

import logging

__all__ = ["Complaints"]

logger = logging.getLogger("pgq_py.ticker")


class Complaints:
    """What has been complained about and still holds, by subject."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def about(self, subject: str, exc: BaseException) -> None:
        """The subject failed; worth an error in the log if it failed differently before, or not at all.

        Told apart by class and code: texts hold transaction ids and times, and would be new every time.
        """
        kind = f"{type(exc).__name__} {getattr(exc, 'sqlstate', None)}"
        if self._known.get(subject) != kind:
            self._known[subject] = kind
            logger.error("%s: %s: %s", subject, type(exc).__name__, exc)

    def settled(self, subject: str) -> None:
        """The subject works; worth a line if it did not before."""
        if self._known.pop(subject, None) is not None:
            logger.info("%s: works again", subject)
