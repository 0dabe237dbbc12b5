"""PgQ's functions where a comparison of answers says too little: limits, forced ticks, rights of triggers."""

from __future__ import annotations

import psycopg
import pytest

from tests.clusters import Database
from tests.engine.support import refused, rows, value

Conn = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def conn(db: Database) -> psycopg.Connection[tuple[object, ...]]:
    conn = db.connect()
    conn.execute("select pgq.create_queue('q'), pgq.register_consumer('q', 'c')")
    return conn


def _limit(conn: Conn, limit: int | None) -> None:
    conn.execute("select pgq.set_queue_config('q', 'per_tx_limit', %s)", [None if limit is None else str(limit)])


def test_a_limit_of_events_per_transaction(conn: Conn) -> None:
    _limit(conn, 3)
    for last in (
        "select pgq.insert_event('q', 't', 'd')",
        "select pgq.insert_event('q', 't', 'd', '1', '2', '3', '4')",
        "select pgq.insert_event_raw('q', null, null, null, null, 't', 'd', null, null, null, null)",
        "select pgq.send('q', 't', 'd')",
        "select pgq.send_batch('q', 't', '{one,more}'::text[])",
    ):
        with conn.transaction():
            conn.execute("select pgq.send_batch('q', 't', '{1,2,3}'::text[])")
            with refused("PQ005", "Queue 'q' allows max 3 events from one TX"), conn.transaction():
                conn.execute(last.encode())
    assert value(conn, "select count(*) from pgq.event_template") == 15


def test_a_savepoint_takes_its_events_back(conn: Conn) -> None:
    _limit(conn, 1)
    for _ in range(2):
        with conn.transaction():
            for _ in range(3):
                with conn.transaction(force_rollback=True):
                    conn.execute("select pgq.send('q', 'd')")
            conn.execute("select pgq.send('q', 'd')")
            with refused("PQ005"), conn.transaction():
                conn.execute("select pgq.send('q', 'd')")
    assert value(conn, "select count(*) from pgq.event_template") == 2


def test_each_queue_has_its_limit_and_it_can_be_changed(conn: Conn) -> None:
    conn.execute("select pgq.create_queue('free')")
    _limit(conn, 0)
    with conn.transaction():
        conn.execute("select pgq.send('free', 'd') from generate_series(1, 9)")
    with refused("PQ005"):
        conn.execute("select pgq.send('q', 'd')")
    _limit(conn, 2)
    conn.execute("select pgq.send_batch('q', 't', '{1,2}'::text[])")
    _limit(conn, None)
    conn.execute("select pgq.send('q', 'd') from generate_series(1, 9)")
    conn.execute("update pgq.queue set queue_per_tx_limit = 1 where queue_name = 'q'")
    with refused("PQ005"):
        conn.execute("select pgq.send('q', 'd') from generate_series(1, 2)")
    assert value(conn, "select count(*) from pgq.event_template") == 20


def test_a_forced_tick_is_later_than_what_is_returned(conn: Conn) -> None:
    """A client of PgQ waits for a tick after the one it was told."""
    assert value(conn, "select pgq.force_tick('q')") == 1
    assert value(conn, "select last_tick_id from pgq.get_queue_info('q')") == 2
    assert value(conn, "select pgq.tick_now('q')") == 3
    assert value(conn, "select pgq.force_tick('none')") is None
    assert value(conn, "select ev_new from pgq.get_queue_info('q')") == 0


def test_the_template_shows_each_event_once(conn: Conn) -> None:
    conn.execute("select pgq.create_queue('other'), pgq.send('other', 'd') from generate_series(1, 2)")
    for _ in range(5):
        conn.execute("select pgq.send('q', 'd')")
        conn.execute("select pgq.rotate_queue('q')")
        conn.execute("select pgq.tick_now('q')")
    assert rows(conn, "select ev_id, count(*) from pgq.event_1 group by 1 having count(*) <> 1") == []
    assert value(conn, "select count(*) from pgq.event_template") == 7


@pytest.mark.newest
def test_an_expression_has_the_rights_of_whoever_changes_the_table(conn: Conn) -> None:
    """Not those of the schema's owner: whoever may create a trigger would have them all."""
    conn.execute("create role table_owner; create table t (id int primary key); grant all on t to table_owner")
    conn.execute("grant usage on schema public to table_owner; select pgq.grant_produce('q', 'table_owner')")
    conn.execute(
        "create trigger x after insert on t for each row execute function"
        " pgq.logutriga('q', 'ev_extra2=current_user', 'ev_extra3=(select count(*) from pg_authid)')"
    )
    conn.execute("set role table_owner")
    with refused("42501", "pg_authid"):
        conn.execute("insert into t values (1)")
    conn.execute("reset role; drop trigger x on t")
    conn.execute(
        "create trigger x after insert on t for each row execute function pgq.sqltriga('q', 'ev_extra2=current_user')"
    )
    conn.execute("set role table_owner; insert into t values (1); reset role")
    assert value(conn, "select ev_extra2 from pgq.event_template") == "table_owner"
    conn.execute("drop table t; drop owned by table_owner; drop role table_owner")


@pytest.mark.newest
def test_a_search_path_changes_nothing_that_a_trigger_does(conn: Conn) -> None:
    conn.execute("create schema evil")
    for name in ("quote_ident", "quote_literal", "to_json"):
        conn.execute(f"create function evil.{name}(text) returns text language sql as $$ select 'pwned' $$".encode())
    conn.execute("create table t (id int primary key, v text)")
    for kind in ("jsontriga", "logutriga", "sqltriga", "capture"):
        conn.execute(
            f"create trigger {kind} after insert or update on t for each row execute function pgq.{kind}('q')".encode()
        )
    conn.execute(
        "set search_path = evil, pg_catalog; insert into public.t values (1, 'a b'); update public.t set v = 'c'"
    )
    assert rows(conn, "select ev_type, ev_data from pgq.event_template where ev_type in ('I:id', 'U') order by 1") == [
        ("I:id", "id=1&v=a+b"),
        ("U", "v='c' where id='1'"),
    ]
