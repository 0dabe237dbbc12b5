"""Behind PgBouncer in transaction mode: no session state, so no prepared statements, no ownership, no held cursor."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgq_py import Event
from pgq_py.app import PgQ
from pgq_py.client._sync.batches import FETCH_ROWS
from tests.clusters import Database
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.newest,
    pytest.mark.skipif(
        shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin") is None, reason="no pgbouncer"
    ),
]

CONFIGURATION = """
[databases]
* = host={host} port={port} user=postgres
[pgbouncer]
listen_addr =
listen_port = 6432
unix_socket_dir = {directory}
auth_type = any
pool_mode = transaction
"""


@pytest.fixture
def pooled_dsn(pgq: PgQ, db: Database) -> Iterator[str]:
    """The database through a pooler of its own."""
    server = conninfo_to_dict(db.dsn)
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program is not None
    with tempfile.TemporaryDirectory(prefix="pgq-", dir="/tmp") as directory:
        Path(directory).chmod(0o777)
        configuration = Path(directory, "pgbouncer.ini")
        configuration.write_text(
            CONFIGURATION.format(host=server["host"], port=server["port"], directory=directory), "utf-8"
        )
        # It refuses to run as root; who started the server may enter its directory.
        owner = Path(str(server["host"])).stat().st_uid
        as_owner: dict[str, Any] = {"user": owner, "extra_groups": []} if os.geteuid() == 0 else {}
        pooler = subprocess.Popen([program, "-q", str(configuration)], cwd="/", stderr=subprocess.DEVNULL, **as_owner)
        try:
            wait_until(Path(directory, ".s.PGSQL.6432").exists)
            yield make_conninfo(db.dsn, host=directory, port=6432)
        finally:
            pooler.terminate()
            pooler.wait()


def test_everything_but_ownership(pgq: PgQ, db: Database, pooled_dsn: str) -> None:
    count = 2 * FETCH_ROWS + 7
    with PgQ(pooled_dsn) as pooled:
        for number in range(10):
            pooled.send("orders", number)
        with pooled.transaction() as tx:
            pooled.send_many("orders", range(10, count), conn=tx)
        seen = []
        with pooled.batches("orders", "mailer", wait=5) as batches:
            for batch in batches:
                for event in batch:
                    seen.append(event.json)
                    if len(seen) % FETCH_ROWS == 0:
                        batch.ack(event)
                break
        assert seen == list(range(count))
        assert pooled.receive("orders", "mailer") == []
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
