"""Maintenance: slots rotate while the ticker runs, and no operation's failure stops another."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pgq_py.app import PgQ
from pgq_py.settings import load_settings
from pgq_py.ticker import maintenance as rounds
from pgq_py.ticker.maintenance import MOST_REPEATS, Maintenance
from tests.clusters import Database
from tests.ticker.conftest import running_ticker
from tests.waiting import wait_until


@contextmanager
def maintenance(db: Database) -> Iterator[Maintenance]:
    maintained = Maintenance(load_settings(dsn=db.dsn))
    try:
        yield maintained
    finally:
        maintained.stop()


def drain(pgq: PgQ) -> None:
    with pgq.batches("orders", "mailer", wait=0) as batches:
        for _ in batches:
            pass


def test_an_idle_queue_ends_up_with_empty_slots(pgq: PgQ, db: Database) -> None:
    pgq.set_queue_config("orders", "rotation_period", "0 seconds")
    pgq.send_many("orders", map(str, range(1000)))

    def is_empty() -> bool:
        drain(pgq)
        return bool(db.value("select sum(pg_relation_size(oid)) = 0 from pg_class where relname ~ '^event_1_[0-9]+$'"))

    with running_ticker(db.dsn, tick_interval=0.01, maintenance_interval=0.05):
        wait_until(is_empty, 30)
    assert db.value("select count(*) from pgq.event_1") == 0


def test_an_operation_is_repeated_while_it_asks_for_it_but_not_for_ever(pgq: PgQ, db: Database) -> None:
    db.rows("create sequence calls")
    db.rows("create function again(text) returns int language sql as $$ select (nextval('calls') < 3)::int $$")
    db.rows("create function always(text) returns int language sql as $$ select 1 $$")
    db.rows("update pgq.queue set queue_extra_maint = '{public.again,public.always}'")
    with maintenance(db) as maintained:
        assert maintained.run_round() == 3 + MOST_REPEATS
    assert db.value("select last_value from calls") == 3


def test_one_failure_stops_no_other_operation_and_is_reported_once(
    pgq: PgQ, db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    db.rows("create sequence calls")
    db.rows("create function fails(text) returns int language plpgsql as $$ begin perform 1 / 0; return 0; end $$")
    db.rows("create function works(text) returns int language sql as $$ select nextval('calls')::int * 0 $$")
    db.rows("update pgq.queue set queue_extra_maint = '{public.fails,public.works,public.missing}'")
    with caplog.at_level(logging.INFO), maintenance(db) as maintained:
        for _ in range(3):
            maintained.run_round()
        complaints = [record.message.partition(":")[0] for record in caplog.records if record.levelno == logging.ERROR]
        assert complaints == ["public.fails(orders)", "public.missing(orders)"]
        db.rows("create or replace function fails(text) returns int language sql as $$ select 0 $$")
        maintained.run_round()
        assert "public.fails(orders): works again" in caplog.messages
    assert db.value("select last_value from calls") == 4


def test_each_operation_is_a_transaction_of_its_own(pgq: PgQ, db: Database) -> None:
    db.rows("create table seen (txid xid8)")
    db.rows(
        "create function look(text) returns int language sql as "
        "$$ insert into seen values (pg_current_xact_id()); select ((select count(*) from seen) < 3)::int $$"
    )
    db.rows("update pgq.queue set queue_extra_maint = '{public.look}'")
    with maintenance(db) as maintained:
        maintained.run_round()
    assert db.value("select count(distinct txid) from seen") == 3


def test_vacuum_is_run_outside_a_transaction(pgq: PgQ, db: Database) -> None:
    db.rows('create table "Odd.Name" ()')
    with maintenance(db) as maintained:
        assert not maintained._call(maintained._connection(), "vacuum", "pgq.queue")
    wait_until(lambda: db.value("select vacuum_count from pg_stat_user_tables where relid = 'pgq.queue'::regclass"))


def comes_to_rest(maintained: Maintenance, db: Database) -> None:
    """It finds nothing to do a few times, and then does not see that there is something."""
    db.rows("create function once(text) returns int language sql as $$ select 0 $$")
    wait_until(lambda: maintained.run_round() == 0)
    assert [maintained.run_round() for _ in range(rounds.ROUNDS)] == [0] * rounds.ROUNDS
    db.rows("update pgq.queue set queue_extra_maint = '{public.once}'")
    assert maintained.run_round() == 0


def test_it_rests_where_it_takes_long_to_find_nothing(pgq: PgQ, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "LONG", 0.0)
    monkeypatch.setattr(rounds, "REST", 1_000_000)
    with maintenance(db) as maintained:
        comes_to_rest(maintained, db)
    with maintenance(db) as another:
        assert another.run_round() == 1
        assert another.run_round() == 1


def test_no_rest_is_longer_than_the_longest(pgq: PgQ, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "LONG", 0.0)
    monkeypatch.setattr(rounds, "REST", 1_000_000)
    monkeypatch.setattr(rounds, "LONGEST", 0.5)
    with maintenance(db) as maintained:
        comes_to_rest(maintained, db)
        wait_until(lambda: maintained.run_round() == 1)
