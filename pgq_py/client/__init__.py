"""Calls of the log from Python: one client in two forms, `Client` and its async twin.

The async sources are in `_async`; `_sync` is generated from them. What both share is beside them: the statements
(`queries`), text encoding, borrowed connections, checks.
"""

from __future__ import annotations

from pgq_py.client._async.batches import AsyncBatch
from pgq_py.client._async.client import AsyncClient
from pgq_py.client._async.looping import AsyncBatches
from pgq_py.client._async.pipelining import AsyncPipeline
from pgq_py.client._sync.batches import Batch
from pgq_py.client._sync.client import Client
from pgq_py.client._sync.looping import Batches
from pgq_py.client._sync.pipelining import Pipeline
from pgq_py.client.encoding import Data
from pgq_py.client.rows import Received

__all__ = [
    "AsyncBatch",
    "AsyncBatches",
    "AsyncClient",
    "AsyncPipeline",
    "Batch",
    "Batches",
    "Client",
    "Data",
    "Pipeline",
    "Received",
]
