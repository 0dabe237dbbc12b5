"""A worker that waits for news does not sleep over what it has been told already."""

from __future__ import annotations

import pytest

from pgq_py.client.acompat import AsyncStop
from pgq_py.jobs.worker.claiming import Claiming
from pgq_py.settings import load_settings
from tests.clusters import Database

pytestmark = pytest.mark.anyio


async def test_what_came_with_the_answer_to_a_statement_is_heard(db: Database) -> None:
    """It makes the connection readable no more: whoever waited for that would wait for the next poll."""
    other = db.connect()
    other.execute("select pgq.create_job_queue('emails')")
    claiming = Claiming(load_settings(dsn=db.dsn), AsyncStop())
    assert await claiming.connect()
    try:
        (number,) = await claiming.listen(["emails"])
        said = [claiming.has_heard]
        other.execute("select pg_notify(%s, '2')", (f"pgq_tick_{number}",))
        await claiming.solo_waits("emails")
        said.append(claiming.has_heard)
        assert claiming.heard() == {number}
        assert [*said, claiming.has_heard] == [False, True, False]
    finally:
        await claiming.disconnect()
