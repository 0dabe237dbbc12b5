"""What enqueueing returns: the job's number, and the questions that can be asked about it."""

from __future__ import annotations

from typing import Any

from pgq_py.client._async.client import AsyncClient
from pgq_py.job_types import JobProgress, JobStatus

__all__ = ["AsyncJobHandle"]


class AsyncJobHandle:
    """One job of a queue. `created` is False when the key was taken: then it is the job that has it.

    `id` is of 64 bits; queue and id are enough to make a handle elsewhere: `pgq.job_handle(queue, id)`.
    """

    __slots__ = ("_client", "created", "id", "queue")

    def __init__(self, client: AsyncClient, queue: str, job_id: int, created: bool = True) -> None:
        self._client = client
        self.queue, self.id, self.created = queue, job_id, created

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.queue!r}, {self.id}{'' if self.created else ', created=False'})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncJobHandle) and (self.queue, self.id) == (other.queue, other.id)

    def __hash__(self) -> int:
        return hash((self.queue, self.id))

    async def status(self) -> JobStatus | None:
        """What has become of it; None when there is no trace (any more), also before its transaction is committed."""
        return await self._client.get_job(self.queue, self.id)

    async def progress(self) -> JobProgress:
        """How far it is, in its own words; empty when it has not said anything."""
        status = await self.status()
        return JobProgress(**status.progress) if status is not None and status.progress else JobProgress()

    async def result(self, timeout: float | None = None) -> Any:
        """Wait until it is completed, and return its result: a JSON value, None when it keeps none.

        Raises JobFailed when it failed for good or was cancelled, ResultExpired when its `result_retention` is over,
        TimeoutError after `timeout` seconds.
        """
        return await self._client.job_result(self.queue, self.id, timeout)

    async def cancel(self) -> str | None:
        """'cancelled': it will not run; 'cancel_requested': it runs, and is asked to stop; 'completed' or 'failed': too
        late; None: there is no trace of it."""
        return (await self._client.cancel_jobs(self.queue, [self.id]))[self.id]
