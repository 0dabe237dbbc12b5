"""Every error that the package raises, in one tree.

    PgqError
     |-- ConnectionFailed         no server, no database, or no permission to log in
     |-- SchemaMissing            the database has no schema pgq, or an unfinished one
     |-- SchemaOutdated           the schema is older (or newer) than this package
     |-- ForeignSchema            a schema pgq that this package did not create
     |-- QueueNotFound            PQ001
     |-- ConsumerNotRegistered    PQ002
     |-- BatchNotFound            PQ003
     |-- QueuePaused              PQ004
     |-- InsertDisabled           PQ005
     |-- InvalidArgument          PQ006, also a ValueError
     |-- WrongIsolationLevel      PQ007
     |-- PositionGone             PQ008
     |-- ConsumersAttached        PQ009
     |-- ForeignCluster           PQ010
     |-- ExternalTicker           PQ011
     |-- EngineInconsistent       PQ012
     |-- DeadLetterNotFound       PQ013
     |-- ClaimLost                PQ020
     |-- ScheduleNotFound         PQ021
     |-- WorkerEnded              PQ022
     |-- NotAJobQueue             PQ023
     |-- KeyTaken                 PQ024
     |-- ResultExpired            PQ025
     |-- JobFailed                asked for the result of a job that has none, and never will
     |-- PermissionDenied         42501 from one of our functions
     `-- SlotClosed               40001 from a slot's trigger: retry the transaction

The database raises a code, and the code alone chooses the class: message texts are PgQ's own, are translated by
servers, and change. An error that is none of ours stays what psycopg made of it. The tree is one file, however long.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import ClassVar

import psycopg

__all__ = [
    "BatchNotFound",
    "ClaimLost",
    "ConnectionFailed",
    "ConsumerNotRegistered",
    "ConsumersAttached",
    "DeadLetterNotFound",
    "EngineInconsistent",
    "ExternalTicker",
    "ForeignCluster",
    "ForeignSchema",
    "InsertDisabled",
    "InvalidArgument",
    "JobFailed",
    "KeyTaken",
    "NotAJobQueue",
    "PermissionDenied",
    "PgqError",
    "PositionGone",
    "QueueNotFound",
    "QueuePaused",
    "ResultExpired",
    "ScheduleNotFound",
    "SchemaMissing",
    "SchemaOutdated",
    "SlotClosed",
    "WorkerEnded",
    "WrongIsolationLevel",
    "map_error",
    "translate",
]


class PgqError(Exception):
    """Base of every error raised on purpose by this package.

    `message` says what happened, `advice` what was kept and what to do about it; `str()` shows both, on two lines.
    `sqlstate` is the code the database raised, None when the database was not asked. `exit_code` is the exit status of
    the command line.
    """

    exit_code: ClassVar[int] = 1
    default_advice: ClassVar[str] = ""
    default_sqlstate: ClassVar[str | None] = None

    def __init__(self, message: str, *, advice: str | None = None, sqlstate: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.advice = self.default_advice if advice is None else advice
        self.sqlstate = self.default_sqlstate if sqlstate is None else sqlstate

    def __str__(self) -> str:
        return f"{self.message}\n{self.advice}" if self.advice else self.message

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.advice, self.sqlstate))


def _rebuild(cls: type[PgqError], message: str, advice: str, sqlstate: str | None) -> PgqError:
    """Unpickle: keyword-only arguments do not travel through BaseException's own pickling."""
    return cls(message, advice=advice, sqlstate=sqlstate)


class ConnectionFailed(PgqError):
    """The server could not be reached, refused the log-in, or dropped the connection."""

    exit_code = 3
    default_advice = (
        "Committed work is kept, other work is rolled back; a COMMIT that got no answer may be either. "
        "Check --dsn, PGQ_DSN or PGHOST/PGPORT/PGUSER/PGDATABASE, and that the server is up."
    )


class SchemaMissing(PgqError):
    """The database has no schema pgq, or one without the called function's tables."""

    exit_code = 4
    default_advice = "Nothing was changed. Run `pgq install` on this database, then try again."


class SchemaOutdated(PgqError):
    """The schema pgq in the database and this package are of different versions."""

    exit_code = 4
    default_advice = (
        "Nothing was changed. Run `pgq upgrade` on this database (it keeps every event and consumer), then try again."
    )


class ForeignSchema(PgqError):
    """The database has a schema pgq that this package did not create, so it is not touched."""

    exit_code = 4
    default_advice = (
        "Nothing was changed. Install into another database, or move the other schema away: `alter schema pgq rename "
        "to pgq_old`."
    )


class QueueNotFound(PgqError):
    """No queue of that name."""

    default_sqlstate = "PQ001"
    default_advice = "Nothing was written. See `pgq queue ls`; create the queue with `pgq queue create NAME`."


class ConsumerNotRegistered(PgqError):
    """The consumer is not registered on the queue."""

    default_sqlstate = "PQ002"
    default_advice = (
        "Events are kept for registered consumers only. See `pgq consumer ls`; register with `pgq consumer register "
        "QUEUE CONSUMER`."
    )


class BatchNotFound(PgqError):
    """The batch is not open, or belongs to another consumer."""

    default_sqlstate = "PQ003"
    default_advice = (
        "Nothing was acknowledged; the consumer's position is unchanged. Another process may have finished the batch "
        "or moved the consumer: open the next one."
    )


class QueuePaused(PgqError):
    """The queue is paused: events are accepted and kept, but not delivered."""

    default_sqlstate = "PQ004"
    default_advice = "Events are kept. Resume delivery with `pgq queue resume NAME`."


class InsertDisabled(PgqError):
    """The queue does not accept events at present."""

    default_sqlstate = "PQ005"
    default_advice = (
        "The event was not written; earlier ones are kept and delivered. Allow events again with `pgq queue set NAME "
        "disable_insert false`."
    )


class InvalidArgument(PgqError, ValueError):
    """An argument or a setting has an impossible value."""

    default_sqlstate = "PQ006"
    default_advice = "Nothing was changed."


class WrongIsolationLevel(PgqError):
    """A call that changes a consumer's or a queue's state was made outside READ COMMITTED."""

    default_sqlstate = "PQ007"
    default_advice = (
        "Nothing was changed. Make this call in a READ COMMITTED transaction: it must see the newest committed state. "
        "Sending events works at every isolation level."
    )


class PositionGone(PgqError):
    """The tick or position asked for is no longer, or not yet, in the log."""

    default_sqlstate = "PQ008"
    default_advice = (
        "The consumer's position is unchanged. `earliest` is the oldest position that can still be read, `latest` the "
        "newest."
    )


class ConsumersAttached(PgqError):
    """The queue still has consumers, so it is not dropped."""

    default_sqlstate = "PQ009"
    default_advice = (
        "Nothing was dropped. See `pgq consumer ls QUEUE`; unregister them, or force the drop if their unread events "
        "may go."
    )


class ForeignCluster(PgqError):
    """The log was restored from another cluster, whose transaction ids mean nothing here."""

    default_sqlstate = "PQ010"
    default_advice = (
        "Every event is kept and nothing is delivered: the positions belong to another cluster. Restore a physical "
        "backup, or start the queue anew."
    )


class ExternalTicker(PgqError):
    """The queue takes its ticks from elsewhere and makes none of its own."""

    default_sqlstate = "PQ011"
    default_advice = (
        "Nothing was ticked. Tick it where its ticks come from, or run `pgq queue set NAME external_ticker false`."
    )


class EngineInconsistent(PgqError):
    """The engine found its own state contradictory: a bug, please report it."""

    default_sqlstate = "PQ012"
    default_advice = (
        "The transaction was rolled back and every event is kept. Please report this with the message and the output "
        "of `pgq status`."
    )


class DeadLetterNotFound(PgqError):
    """No dead letter of that number: it was replayed or purged already, perhaps by somebody else at the same time."""

    default_sqlstate = "PQ013"
    default_advice = "Nothing was changed. See `pgq dlq ls` for those that are left."


class ClaimLost(PgqError):
    """The claim is no longer the caller's: its lease ran out, or its jobs were given to others."""

    default_sqlstate = "PQ020"
    default_advice = (
        "Nothing of this call is kept: roll back, the job runs again elsewhere. A worker that is cut off for longer "
        "than its lease loses its claims; raise the lease when that is too short."
    )


class ScheduleNotFound(PgqError):
    """No recurring job of that name."""

    default_sqlstate = "PQ021"
    default_advice = "Nothing was enqueued. `select * from pgq.get_schedules()` shows those that exist."


class WorkerEnded(PgqError):
    """The worker was declared dead, or has ended: it may not claim any more."""

    default_sqlstate = "PQ022"
    default_advice = (
        "Nothing was claimed; what it had claimed runs elsewhere. Start again under a new name, as a worker does by "
        "itself."
    )


class NotAJobQueue(PgqError):
    """The queue is one of events alone: jobs need lanes, which it has not."""

    default_sqlstate = "PQ023"
    default_advice = (
        "Nothing was written. A queue is a job queue from its creation on: `select pgq.create_job_queue('NAME')`, with "
        "another name."
    )


class KeyTaken(PgqError):
    """Another active job has the same idempotency key."""

    default_sqlstate = "PQ024"
    default_advice = "Nothing was changed; the dead letter is kept. Wait for the other job, or cancel it."


class ResultExpired(PgqError):
    """The job's result was kept for its time and is gone."""

    default_sqlstate = "PQ025"
    default_advice = "The job was completed. Ask sooner, or keep results for longer: result_retention."


class JobFailed(PgqError):
    """There is no result of this job: it failed for good, was cancelled, or left no trace."""

    default_advice = (
        "`select * from pgq.get_job('QUEUE', ID)` says more; a failed job is kept as a dead letter: `pgq dlq ls`."
    )


class PermissionDenied(PgqError):
    """The role may not do this."""

    default_sqlstate = "42501"
    default_advice = (
        "Nothing was changed. Have an administrator grant it: pgq_reader, pgq_writer or pgq_admin for all queues, "
        "`pgq queue grant` for one."
    )


class SlotClosed(PgqError):
    """The insert came so late that its slot had been closed by rotation."""

    default_sqlstate = "40001"
    default_advice = "The transaction was rolled back; nothing of it is in the log. Run the whole transaction again."


_BY_SQLSTATE: dict[str, type[PgqError]] = {
    cls.default_sqlstate: cls
    for cls in (
        QueueNotFound,
        ConsumerNotRegistered,
        BatchNotFound,
        QueuePaused,
        InsertDisabled,
        InvalidArgument,
        WrongIsolationLevel,
        PositionGone,
        ConsumersAttached,
        ForeignCluster,
        ExternalTicker,
        EngineInconsistent,
        DeadLetterNotFound,
        ClaimLost,
        ScheduleNotFound,
        WorkerEnded,
        NotAJobQueue,
        KeyTaken,
        ResultExpired,
        PermissionDenied,
    )
}

# Without a connection: shutdown and crash of the server or the session, too many connections, a session timed out, no
# such database.
_CONNECTION_CODES = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03", "53300", "3D000"})
_CONNECTION_CLASSES = ("08", "28")

# What a statement of ours meets in a database without the schema, and in one with an old schema.
_SCHEMA_CODES: dict[str, type[PgqError]] = {
    "3F000": SchemaMissing,
    "42P01": SchemaMissing,
    "42883": SchemaOutdated,
}


def map_error(exc: psycopg.Error) -> PgqError | None:
    """The package's error for a psycopg error, or None when it is not one of ours.

    Decides by SQLSTATE, never by text.
    """
    cls = _class_of(exc)
    if cls is None:
        return None
    message = exc.diag.message_primary or str(exc).strip() or type(exc).__name__
    # The engine's hint knows more than the class; the server's own ("add explicit type casts") would mislead.
    hint = exc.diag.message_hint if cls.default_sqlstate else None
    return cls(message, advice=hint, sqlstate=exc.sqlstate)


class _Translation:
    """What `translate()` is. Written out and without state: a generator would cost a tenth of a send in a pipeline."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, exc: BaseException | None, _traceback: object) -> None:
        if isinstance(exc, psycopg.Error) and (mapped := map_error(exc)) is not None:
            raise mapped from exc


_TRANSLATION = _Translation()


def translate() -> AbstractContextManager[None]:
    """Re-raise a psycopg error that has a class here as that class, `from` the original; let every other pass.

    Put it around statements of this package only: around a user's own statement, a missing table of theirs would be
    called a missing schema.
    """
    return _TRANSLATION


def _class_of(exc: psycopg.Error) -> type[PgqError] | None:
    """Two codes are not ours alone, so where they were raised counts too.

    A missing object is a missing schema only at the top level of a statement: inside a function (`context` is set) it
    is somebody's trigger. 40001 is a slot's trigger only when PL/pgSQL raised it: the server's own serialization
    failures stay psycopg's.
    """
    code = exc.sqlstate
    if code is None:
        return ConnectionFailed if _lost_connection(exc) else None
    if code in _BY_SQLSTATE:
        return _BY_SQLSTATE[code]
    if code in _CONNECTION_CODES or code.startswith(_CONNECTION_CLASSES):
        return ConnectionFailed
    if code in _SCHEMA_CODES and exc.diag.context is None:
        return _SCHEMA_CODES[code]
    if code == SlotClosed.default_sqlstate and exc.diag.source_function == "exec_stmt_raise":
        return SlotClosed
    return None


def _lost_connection(exc: psycopg.Error) -> bool:
    """libpq's own failures carry no code: connection refused, closed, timed out, pool exhausted."""
    return isinstance(exc, psycopg.OperationalError) and not isinstance(exc, psycopg.errors.PipelineAborted)
