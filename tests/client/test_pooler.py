"""Behind PgBouncer in transaction mode: no session state, so no prepared statements, no ownership, no held cursor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pgq_py import Event
from pgq_py.app import PgQ
from pgq_py.client._sync.batches import FETCH_ROWS
from tests.clusters import Database
from tests.pooler import pgbouncer, pooled
from tests.waiting import wait_until

pytestmark = [pytest.mark.newest]


@pytest.fixture
def pooled_dsn(pgq: PgQ, db: Database) -> Iterator[str]:
    """The database through a pooler of its own."""
    if pgbouncer() is None:
        pytest.skip("no pgbouncer here, and none to be installed")
    with pooled(db, 20) as dsn:
        yield dsn


def test_everything_but_ownership(pgq: PgQ, db: Database, pooled_dsn: str) -> None:
    count = 2 * FETCH_ROWS + 7
    with PgQ(pooled_dsn) as facade:
        for number in range(10):
            facade.send("orders", number)
        with facade.transaction() as tx:
            facade.send_many("orders", range(10, count), conn=tx)
        seen = []
        with facade.batches("orders", "mailer", wait=5) as batches:
            for batch in batches:
                for event in batch:
                    seen.append(event.json)
                    if len(seen) % FETCH_ROWS == 0:
                        batch.ack(event)
                break
        assert seen == list(range(count))
        assert facade.receive("orders", "mailer") == []
    assert db.value("select count(*) from pg_locks where locktype = 'advisory'") == 0


def test_two_exactly_once_workers_take_turns(pgq: PgQ, db: Database, pooled_dsn: str) -> None:
    db.rows("create table effect (n int)")
    workers = [PgQ(pooled_dsn), PgQ(pooled_dsn)]
    for worker in workers:

        @worker.consumer("orders", name="mailer", exactly_once=True, max_events=10)
        def write(event: Event, tx: Any) -> None:
            tx.execute("insert into effect values (%s)", [event.json])

    with workers[0].runner(), workers[1].runner():
        for number in range(200):
            pgq.send("orders", number)
        wait_until(lambda: db.value("select count(*) >= 200 from effect"))
    assert db.rows("select n from effect order by n") == [(number,) for number in range(200)]
