"""pgq-py: an event log and queue inside PostgreSQL.

The public names, and nothing else. Everything that is not listed here or in a public module's `__all__` may change.
"""

from __future__ import annotations

from pgq_py.app import AsyncPgQ, PgQ
from pgq_py.errors import (
    BatchNotFound,
    ConnectionFailed,
    ConsumerNotRegistered,
    ConsumersAttached,
    DeadLetterNotFound,
    EngineInconsistent,
    ExternalTicker,
    ForeignCluster,
    ForeignSchema,
    InsertDisabled,
    InvalidArgument,
    PermissionDenied,
    PgqError,
    PositionGone,
    QueueNotFound,
    QueuePaused,
    SchemaMissing,
    SchemaOutdated,
    SlotClosed,
    WrongIsolationLevel,
)
from pgq_py.settings import Settings
from pgq_py.types import (
    BatchId,
    BatchInfo,
    ConsumerInfo,
    Event,
    EventId,
    NewEvent,
    OpenBatch,
    QueueInfo,
    RingBlocker,
    RingInfo,
    Tick,
    TickId,
    Txid,
)

__version__ = "0.1.0"

__all__ = [
    "AsyncPgQ",
    "BatchId",
    "BatchInfo",
    "BatchNotFound",
    "ConnectionFailed",
    "ConsumerInfo",
    "ConsumerNotRegistered",
    "ConsumersAttached",
    "DeadLetterNotFound",
    "EngineInconsistent",
    "Event",
    "EventId",
    "ExternalTicker",
    "ForeignCluster",
    "ForeignSchema",
    "InsertDisabled",
    "InvalidArgument",
    "NewEvent",
    "OpenBatch",
    "PermissionDenied",
    "PgQ",
    "PgqError",
    "PositionGone",
    "QueueInfo",
    "QueueNotFound",
    "QueuePaused",
    "RingBlocker",
    "RingInfo",
    "SchemaMissing",
    "SchemaOutdated",
    "Settings",
    "SlotClosed",
    "Tick",
    "TickId",
    "Txid",
    "WrongIsolationLevel",
    "__version__",
]
