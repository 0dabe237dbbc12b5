"""Connections of the client's own: opened when needed, replaced when dead, refused with the server's words."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest
from psycopg import IsolationLevel

from pgq_py import ConnectionFailed, InvalidArgument, Settings, WrongIsolationLevel
from pgq_py.app import PgQ
from tests.clusters import Database


@pytest.mark.parametrize("dsn", ["host=/nowhere", "host=127.0.0.1 port=1"])
def test_no_server(dsn: str) -> None:
    pgq = PgQ(dsn)
    started = time.monotonic()
    for call in (pgq.version, pgq.queues):
        with pytest.raises(ConnectionFailed):
            call()
    with pytest.raises(ConnectionFailed), pgq.batches("orders", "mailer"):
        pass
    with pytest.raises(ConnectionFailed), pgq.transaction():
        pass
    assert time.monotonic() - started < 5


def test_no_database(db: Database) -> None:
    with pytest.raises(ConnectionFailed, match="does not exist"):
        PgQ(db.dsn.replace(db.name, "no_such_database")).version()


@pytest.mark.newest
def test_the_database_is_found_in_the_environment(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGQ_DSN", db.dsn)
    with PgQ() as pgq:
        assert pgq.version()


def test_a_dsn_or_settings_but_not_both() -> None:
    with pytest.raises(InvalidArgument):
        PgQ("dbname=a", settings=Settings())


def test_nothing_is_opened_before_it_is_needed_and_close_gives_it_back(pgq: PgQ, db: Database) -> None:
    idle = "select count(*) from pg_stat_activity where application_name = 'pgq'"
    with PgQ(db.dsn) as other:
        before = db.value(idle)
        other.version()
        assert db.value(idle) > before
        other.close()
        assert other.version()
    assert PgQ(db.dsn)._pool is None


def test_connections_that_died_in_the_pool_are_not_handed_out(pgq: PgQ, db: Database) -> None:
    """Scenario 15."""
    pgq.version()
    db.rows("select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = 'pgq'")
    assert pgq.send("orders", "at once") == 1


def test_threads_share_a_client(pgq: PgQ) -> None:
    barrier = threading.Barrier(8)

    def send(number: int) -> None:
        barrier.wait()
        for step in range(20):
            pgq.send("orders", [number, step])

    threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pgq.tick("orders")
    events = pgq.receive("orders", "mailer", 1000)
    assert sorted(event.json for event in events) == [[number, step] for number in range(8) for step in range(20)]


def test_the_callers_isolation_level_is_refused_where_it_would_be_wrong(pgq: PgQ, db: Database) -> None:
    conn = db.connect(autocommit=False)
    conn.isolation_level = IsolationLevel.REPEATABLE_READ
    with pytest.raises(WrongIsolationLevel):
        pgq.receive("orders", "mailer", conn=conn)


def test_batches_do_not_mind_the_databases_default_isolation_level(pgq: PgQ, db: Database) -> None:
    db.rows(f"alter database {db.name} set default_transaction_isolation = 'serializable'")
    pgq.send("orders", "x")
    with pgq.batches("orders", "mailer", wait=10) as batches:
        assert [event.data for event in next(batches)] == ["x"]


@pytest.mark.newest
def test_a_process_may_end_without_closing(db: Database) -> None:
    code = f"from pgq_py.app import PgQ; print(PgQ({db.dsn!r}).create_queue('q'))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=20, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
