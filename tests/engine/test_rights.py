"""Rights per queue and consumer, eviction, and what mixing two ways to read must not do."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.clusters import Database
from tests.engine.support import (
    QUEUE,
    ack,
    batch_data,
    column,
    create,
    deliver,
    finish,
    next_batch,
    receive,
    refused,
    rows,
    send,
    tick,
    value,
)


@pytest.fixture
def role(db: Database) -> Iterator[str]:
    name = f"app_{uuid4().hex[:8]}"
    conn = db.connect()
    conn.execute(f"create role {name} login".encode())
    yield name
    conn.execute(f"drop owned by {name}; drop role {name}".encode())


def test_a_producer_of_one_queue_produces_into_that_one(db: Database, role: str) -> None:
    conn = db.connect()
    create(conn, "c")
    create(conn, queue="other")
    app = db.connect(user=role)
    with refused("42501"):
        send(app, "x")
    value(conn, "select pgq.grant_produce(%s, %s)", QUEUE, role)
    send(app, "one")
    value(app, "select pgq.send_batch(%s, 't', array['two'])", QUEUE)
    value(app, "select pgq.insert_events(%s, '{t}', '{2}')", QUEUE)
    value(app, "select pgq.send(%s, 't', 'later'::text, deliver_in => interval '1 hour')", QUEUE)
    table = value(app, "select pgq.current_event_table(%s)", QUEUE)
    with app.cursor().copy(f"copy {table} (ev_data) from stdin".encode()) as copy:
        copy.write_row(("three",))
    for call in (
        "select pgq.insert_event('other', 't', 'x')",
        "select pgq.send('other', 't', 'x'::text)",
        "select pgq.send_batch('other', 't', array['x'])",
        "select pgq.insert_events('other', '{t}', '{x}')",
        "select pgq.send('other', 't', 'x'::text, deliver_in => interval '1 s')",
        "select pgq.current_event_table('other')",
        "select pgq.cancel_event('other', 1)",
        "select pgq.wake('other')",
        "select pgq.next_batch('q', 'c')",
        "select pgq.ticker('q')",
        "select pgq.drop_queue('other')",
        f"insert into {table} (ev_id, ev_data) values (1, 'forged')",
        "select * from pgq.event_template",
    ):
        with refused("42501"):
            app.execute(call.encode())
    assert deliver(conn) == ["one", "two", "2", "three"]
    value(conn, "select pgq.revoke_produce(%s, %s)", QUEUE, role)
    with refused("42501"):
        send(app, "x")


def test_a_consumer_acts_for_itself_alone(db: Database, role: str) -> None:
    """Scenario 9."""
    conn = db.connect()
    create(conn, "mine", "theirs")
    create(conn, "mine", queue="other")
    value(conn, "select pgq.grant_consume(%s, 'mine', %s)", QUEUE, role)
    send(conn, "x")
    tick(conn)
    app = db.connect(user=role)
    theirs = next_batch(conn, "theirs")
    own = value(app, "select pgq.opener_function(%s)", QUEUE)
    others = value(app, "select pgq.opener_function('other')")
    other = "select pgq.register_consumer('other', 'mine')"
    for call in (
        "select pgq.next_batch('q', 'theirs')",
        "select * from pgq.receive('q', 'theirs')",
        f"select * from pgq.{own}('theirs', 100, 500, true)",
        f"select * from pgq.{others}('mine', 100, 500, true)",
        f"select pgq.finish_batch({theirs})",
        f"select pgq.batch_event_sql({theirs})",
        f"select * from pgq.get_batch_info({theirs})",
        f"select * from pgq.nack('q', 'theirs', {theirs}, array[1])",
        f"select pgq.event_retry({theirs}, 1, 0)",
        f"select pgq.ack('q', 'theirs', {theirs})",
        "select pgq.ack_peeked('q', 'theirs', -1, 1, 2)",
        "select pgq.open_peeked('q', 'theirs', -1, 1, 2)",
        "select pgq.seek('q', 'theirs', 'latest')",
        "select pgq.unregister_consumer('q', 'theirs')",
        "select pgq.register_consumer('q', 'a third')",
        "select pgq.poke('other')",
        other,
        "select pgq.insert_event('q', 't', 'x')",
        "insert into pgq.cursor_ring_0 default values",
    ):
        with refused("42501"):
            app.execute(call.encode())
    batch = next_batch(app, "mine")
    assert batch_data(app, batch) == ["x"]
    assert rows(app, f"select batch_id, ev_data from pgq.{own}('mine', 100, 500, true)") == [(None, "x"), (batch, None)]
    assert rows(app, "select retried from pgq.nack(%s, 'mine', %s, array[1])", QUEUE, batch) == [(1,)]
    finish(app, batch)
    finish(conn, theirs)
    value(conn, "select pgq.revoke_consume(%s, 'mine', %s)", QUEUE, role)
    for call in ("select pgq.next_batch('q', 'mine')", f"select * from pgq.{own}('mine', 100, 500, true)"):
        with refused("42501"):
            app.execute(call.encode())


def test_the_role_that_was_set_counts(db: Database, role: str) -> None:
    conn = db.connect()
    create(conn, "mine", "another")
    value(conn, "select pgq.grant_consume(%s, 'mine', %s)", QUEUE, role)
    conn.execute(f"set role {role}".encode())
    assert next_batch(conn, "mine") is None
    with refused("42501"):
        next_batch(conn, "another")


@pytest.mark.parametrize("call", ["grant_produce(%s, 'nobody')", "grant_consume(%s, 'c', 'nobody')"])
def test_a_role_that_does_not_exist_is_refused(db: Database, call: str) -> None:
    conn = db.connect()
    create(conn)
    with refused("PQ006"):
        conn.execute(f"select pgq.{call}".encode(), [QUEUE])


def test_a_laggard_is_evicted_by_policy_and_told_so(db: Database) -> None:
    conn = db.connect()
    create(conn, "slow", "quick", "idle")
    conn.execute("alter table pgq.queue drop constraint queue_max_consumer_lag_check")
    operations = "select func_name from pgq.maint_operations() where func_name like '%%evict%%'"
    send(conn, "x")
    tick(conn)
    assert deliver(conn, "quick") == deliver(conn, "idle") == ["x"]
    assert column(conn, operations) == []
    conn.execute("update pgq.queue set queue_max_consumer_lag = '0'")
    assert column(conn, operations) == ["pgq.maint_evict_consumers"]
    value(conn, "select pgq.maint_evict_consumers(%s)", QUEUE)
    assert column(conn, "select consumer_name from pgq.get_consumer_info()") == ["idle", "quick"]
    with refused("PQ002"):
        next_batch(conn, "slow")
    assert column(conn, "select consumer_name from pgq.eviction") == ["slow"]
    notices: list[str | None] = []
    conn.add_notice_handler(lambda diag: notices.append(diag.message_primary))
    assert value(conn, "select pgq.register_consumer(%s, 'slow')", QUEUE) == 1
    assert "was evicted" in (notices[0] or "")
    assert column(conn, "select consumer_name from pgq.eviction") == []


def test_where_seek_would_go(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    send(conn, "x")
    tick(conn)
    target = "select pgq.seek_target(%s, 'c', %s)"
    assert [value(conn, target, QUEUE, where) for where in ("earliest", "latest", "1", "now")] == [1, 2, 1, 2]
    for where, code in (("99", "PQ008"), ("nowhere", "PQ006"), ("2001-01-01", "PQ008")):
        with refused(code):
            value(conn, target, QUEUE, where)
    assert deliver(conn) == ["x"]


def test_a_batch_received_in_part_and_then_opened_whole_is_acknowledged_whole(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    send(conn, *map(str, range(10)))
    tick(conn)
    batch, data = receive(conn, n=3)
    assert data == ["0", "1", "2"]
    assert value(conn, "select batch_id from pgq.open_batch(%s, 'c')", QUEUE) == batch
    assert len(batch_data(conn, batch or 0)) == 10
    assert ack(conn, batch) == 1
    assert receive(conn) == (None, [])
