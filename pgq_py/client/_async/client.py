"""The whole client: everything that can be asked of the log, on connections of one's own or of the caller's."""

from __future__ import annotations

from pgq_py.client._async.administering import AsyncAdministering
from pgq_py.client._async.capturing import AsyncCapturing
from pgq_py.client._async.consuming import AsyncConsuming
from pgq_py.client._async.job_admin import AsyncJobAdmin
from pgq_py.client._async.jobs import AsyncJobs
from pgq_py.client._async.producing import AsyncProducing
from pgq_py.client._async.retrying import AsyncRetrying

__all__ = ["AsyncClient"]


class AsyncClient(
    AsyncProducing, AsyncConsuming, AsyncRetrying, AsyncCapturing, AsyncJobs, AsyncJobAdmin, AsyncAdministering
):
    """See the bases for the calls. Threads may share one object, and so may tasks of one event loop."""
