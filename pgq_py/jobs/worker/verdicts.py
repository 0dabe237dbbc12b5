"""From what a handler returned or raised to what is said of its job."""

from __future__ import annotations

import asyncio
import logging
import re
from datetime import timedelta

from pydantic_core import PydanticSerializationError, to_json

from pgq_py.client.reasons import is_nobodys_fault, storable, traceback_text
from pgq_py.errors import ClaimLost
from pgq_py.jobs.worker.work import Outcome, Said, Undecodable, Work
from pgq_py.outcomes import Discard, JobCancelled, Retry, Snooze

__all__ = ["Refused", "answered", "raised", "timed_out", "undone"]

logger = logging.getLogger("pgq_py.jobs")

TRIES = 5
"""How often a handler is run when its transaction loses against another; then the job rests for a moment."""

_TRANSACTION_LOST = frozenset({"40001", "40P01"})
_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")

_SETTLED = Said("settled")


class Refused(Exception):
    """The job has an outcome, and what its transaction wrote has to go."""

    def __init__(self, said: Said) -> None:
        super().__init__(said.reason)
        self.said = said


def answered(work: Work, result: object) -> Outcome:
    """The handler returned: the job is done. Its result counts only if somebody asked for it."""
    seconds = work.job.options.get("result_retention")
    retention = work.handler.spec.result_retention if seconds is None else timedelta(seconds=seconds)
    if retention is None:
        return None
    try:
        text = to_json(result, inf_nan_mode="null").decode()
    except (PydanticSerializationError, UnicodeError, ValueError) as exc:
        return Said("failed", f"the result is not JSON: {storable(str(exc))}", final=True)
    return Said("completed", result=_NUL.sub(r"\1\\ufffd", text), retention=retention)


def raised(work: Work, exc: BaseException) -> Said:
    """The handler raised."""
    if isinstance(exc, Snooze):
        return Said("snoozed", delay=exc.in_)
    if isinstance(exc, Undecodable):
        return Said("failed", storable(str(exc)), final=True)
    if isinstance(exc, JobCancelled | asyncio.CancelledError):
        return Said("failed", "cancelled", final=work.cancelled or isinstance(exc, JobCancelled))
    if isinstance(exc, Retry | Discard):
        return Said(
            "failed",
            _words(exc),
            exc.in_ if isinstance(exc, Retry) else None,
            isinstance(exc, Discard) or _is_last(work),
        )
    return Said("failed", traceback_text(exc), _retry_in(work, exc), _is_last(work) or not _is_retryable(work, exc))


def timed_out(work: Work, seconds: float) -> Said:
    """The handler was stopped, or came to its end too late."""
    error = TimeoutError(f"timed out after {seconds:g} s")
    return Said("failed", str(error), _retry_in(work, error), _is_last(work) or not _is_retryable(work, error))


def undone(work: Work, exc: BaseException, tries: int) -> Outcome:
    """The transaction of a job was rolled back, or its commit got no answer. None: run the handler again.

    A job whose commit may have succeeded is snoozed: that does nothing to one that is completed.
    """
    if isinstance(exc, Refused):
        return exc.said
    code = _code(exc)
    if code == ClaimLost.default_sqlstate:
        logger.warning("job %s of %s: its claim is lost, its transaction is rolled back", work.job.id, work.claim.queue)
        return _SETTLED
    if code in _TRANSACTION_LOST and tries < TRIES:
        return None
    if is_nobodys_fault(exc):
        logger.warning("job %s of %s comes again, uncounted: %s", work.job.id, work.claim.queue, exc)
        return Said("snoozed", delay=timedelta(seconds=1))
    return raised(work, exc)


def _code(exc: BaseException) -> str | None:
    code: str | None = getattr(exc, "sqlstate", None)
    return code if code is not None or exc.__cause__ is None else _code(exc.__cause__)


def _words(exc: Retry | Discard) -> str:
    cause = exc.__cause__ or exc.__context__
    if exc.reason is not None:
        return storable(exc.reason)
    return f"the handler raised {type(exc).__name__}" if cause is None else traceback_text(cause)


def _is_last(work: Work) -> bool:
    """By the declaration of its kind, for jobs that came from plain SQL; the database knows the job's own limit."""
    most = None if "max_attempts" in work.job.options else work.handler.spec.options().get("max_attempts")
    return most is not None and work.job.attempt >= most


def _is_retryable(work: Work, exc: BaseException) -> bool:
    return work.handler.spec.is_retryable(exc)


def _retry_in(work: Work, exc: BaseException) -> timedelta | None:
    try:
        return work.handler.spec.retry_in(work.job.attempt, exc)
    except Exception:
        logger.exception("%s: its function of retries failed; the policy in the database decides", work.job.type)
        return None
