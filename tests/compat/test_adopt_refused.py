"""What cannot be taken over is refused, with its reason, and PgQ goes on as before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgq_py.errors import ForeignCluster, PgqError
from pgq_py.schema.adopt import adopt, rehearse
from tests.cli.driving import run
from tests.clusters import Database
from tests.compat.old import send, take, tick
from tests.engine.support import Conn, begin, rollback, rows, value

pytestmark = pytest.mark.newest  # PgQ itself is there for PostgreSQL 15 alone


class TestRefusals:
    """Each with its reason, and nothing changed."""

    @pytest.fixture(autouse=True)
    def _unchanged(self, old: Conn) -> Iterator[None]:
        send(old, "one", "x")
        yield
        assert value(old, "select pgq.version()") == "3.5"
        tick(old)
        assert take(old, "one", "a") == ["x"]

    @pytest.mark.parametrize(
        ("creation", "reason"),
        [
            ("create view mine as select * from pgq.queue", r"view (public\.)?mine"),
            ("create table mine (id bigint default pgq.insert_event('one', 'a', 'b'))", "default value"),
            ("create table mine (q pgq.queue)", r"column q of table (public\.)?mine"),
            ("create table pgq.mine (n int)", "relation pgq.mine"),
            ("create function pgq.mine() returns int language sql as 'select 1'", r"function pgq\.mine"),
        ],
    )
    def test_objects_of_others(self, pgq_db: Database, old: Conn, creation: str, reason: str) -> None:
        old.execute(creation.encode())
        for call in (adopt, rehearse):
            with pytest.raises(PgqError, match=reason):
                call(pgq_db.connect())

    def test_a_prepared_transaction(self, pgq_db: Database) -> None:
        other = pgq_db.connect()
        begin(other)
        send(other, "two", "x")
        other.execute("prepare transaction 'forgotten'")
        with pytest.raises(PgqError, match="prepared transaction forgotten"):
            adopt(pgq_db.connect())
        other.execute("rollback prepared 'forgotten'")

    def test_a_transaction_that_does_not_end(self, pgq_db: Database) -> None:
        other = pgq_db.connect(application_name="sleeper")
        begin(other)
        send(other, "one", "y")
        answer = run("adopt", "--yes", "--wait", "0.5", dsn=pgq_db.dsn)
        assert (answer.status, "(sleeper)" in answer.err, "Nothing was changed" in answer.err) == (1, True, True)
        rollback(other)

    def test_positions_that_do_not_exist(self, pgq_db: Database, old: Conn) -> None:
        before = value(
            old,
            "select min(sub_last_tick) from pgq.subscription where sub_queue = (select min(queue_id) from pgq.queue)",
        )
        old.execute(
            "update pgq.subscription set sub_last_tick = 99 where sub_queue = (select min(queue_id) from pgq.queue)"
        )
        with pytest.raises(PgqError, match="one/a, one/b"):
            adopt(pgq_db.connect())
        old.execute("update pgq.subscription set sub_last_tick = %s where sub_last_tick = 99", [before])

    def test_ticks_of_another_cluster(self, pgq_db: Database, old: Conn) -> None:
        before = rows(old, "select tick_queue, tick_id, tick_snapshot::text from pgq.tick")
        old.execute("update pgq.tick set tick_snapshot = '1000000:1000000:'")
        with pytest.raises(ForeignCluster):
            adopt(pgq_db.connect())
        for queue, number, snapshot in before:
            query = "update pgq.tick set tick_snapshot = %s::txid_snapshot where tick_queue = %s and tick_id = %s"
            old.execute(query, [snapshot, queue, number])

    def test_a_queue_that_cannot_be_ours(self, pgq_db: Database, old: Conn) -> None:
        old.execute("update pgq.queue set queue_ticker_max_lag = '2 days' where queue_name = 'two'")
        with pytest.raises(PgqError, match="queue_ticker_max_lag_check"):
            adopt(pgq_db.connect())
        old.execute("update pgq.queue set queue_ticker_max_lag = '0' where queue_name = 'two'")


def test_where_there_is_nothing(db: Database, empty_db: Database) -> None:
    for database in (db, empty_db):
        with pytest.raises(PgqError, match="no schema of PgQ's"):
            adopt(database.connect())
