"""Cooperative consumers: each event to one of several processes, whoever dies, and rotation goes on."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, LiteralString

import psycopg
import pytest

from pgq_py import schema
from tests.clusters import Database
from tests.engine.support import (
    QUEUE,
    Conn,
    batch_data,
    begin,
    column,
    commit,
    drain,
    filled_slots,
    finish,
    force_tick,
    next_batch,
    refused,
    rotate_until,
    rotated,
    rows,
    send,
    stepped,
    tick,
    value,
    waits_for_a_cursor,
)
from tests.waiting import wait_blocked

LONG = "1 hour"


def register(conn: Conn, sub: str, main: str = "m") -> Any:
    return value(conn, "select pgq_coop.register_subconsumer(%s, %s, %s)", QUEUE, main, sub)


def coop_batch(conn: Conn, sub: str, dead: str | None = None, main: str = "m") -> Any:
    return value(conn, "select pgq_coop.next_batch(%s, %s, %s, %s::interval)", QUEUE, main, sub, dead)


def coop_finish(conn: Conn, batch: int) -> Any:
    return value(conn, "select pgq_coop.finish_batch(%s)", batch)


def coop_take(conn: Conn, sub: str) -> list[str] | None:
    batch = coop_batch(conn, sub)
    if batch is None:
        return None
    data = batch_data(conn, batch)
    assert coop_finish(conn, batch) == 1
    return data


def send_ticked(conn: Conn, *data: str) -> None:
    for item in data:
        send(conn, item)
        force_tick(conn)


def silence(conn: Conn, sub: str, main: str = "m") -> None:
    """Make a subconsumer look as if it was last heard of long ago."""
    conn.execute(
        "update pgq.subscription set sub_active = '2005-01-01' where sub_consumer ="
        " (select co_id from pgq.consumer where co_name = %s)",
        [f"{main}.{sub}"],
    )


def test_every_window_goes_to_one_and_comes_again_until_it_is_finished(conn: Conn) -> None:
    assert (register(conn, "a"), register(conn, "a"), register(conn, "b")) == (1, 0, 1)
    send_ticked(conn, "1", "2", "3")
    first, second = coop_batch(conn, "a"), coop_batch(conn, "b")
    assert coop_batch(conn, "a") == first
    assert (batch_data(conn, first), batch_data(conn, second)) == (["1"], ["2"])
    assert coop_finish(conn, second) == 1
    assert coop_take(conn, "b") == ["3"]
    assert coop_batch(conn, "b") is None
    assert coop_finish(conn, first) == 1
    assert coop_finish(conn, first) == 0


def test_conditions_are_those_of_next_batch_custom(conn: Conn) -> None:
    register(conn, "a")
    send_ticked(conn, "1", "2", "3")
    call = "select pgq_coop.next_batch_custom('q', 'm', 'a', %s::interval, %s::int, %s::interval)"
    assert value(conn, call, LONG, None, None) is None
    assert value(conn, call, None, 1_000_000, None) is None
    assert batch_data(conn, value(conn, call, None, 2, None)) == ["1", "2"]


def test_what_is_refused(conn: Conn) -> None:
    register(conn, "a")
    for call in (
        "select pgq.next_batch('q', 'm.a')",
        "select * from pgq.receive('q', 'm.a')",
        "select pgq.seek('q', 'm.a', 'latest')",
        "select pgq.seek('q', 'm.a', 1)",
        "select pgq.register_consumer_at('q', 'm.a', 1)",
        "select pgq_coop.register_subconsumer('q', 'm.a', 'x')",
        "select pgq_coop.register_subconsumer('q', 'm', null)",
    ):
        with refused("PQ006"):
            conn.execute(call.encode())
    value(conn, "select pgq.register_consumer('q', 'm.plain')")
    with refused("PQ006", "not as a subconsumer"):
        coop_batch(conn, "plain")
    with refused("PQ001"):
        conn.execute("select pgq_coop.next_batch('nowhere', 'm', 'a')")
    send_ticked(conn, "1")
    own = next_batch(conn, "m")
    with refused("PQ009", "main consumer has batch open?"):
        coop_batch(conn, "a")
    finish(conn, own)
    begin(conn, "repeatable read")
    with refused("PQ007"):
        coop_batch(conn, "a")


def test_a_dead_one_is_taken_over_and_gone(conn: Conn) -> None:
    register(conn, "a")
    register(conn, "b")
    send_ticked(conn, "1", "2")
    batch = coop_batch(conn, "a")
    silence(conn, "a")
    assert coop_take(conn, "b") == ["2"]  # without an interval nobody is dead
    assert coop_batch(conn, "b", LONG) == batch
    assert batch_data(conn, batch) == ["1"]
    assert column(conn, "select consumer_name from pgq.get_consumer_info('q')") == ["m", "m.b"]
    assert value(conn, "select consumer_name from pgq.get_batch_info(%s)", batch) == "m.b"
    assert coop_finish(conn, batch) == 1
    assert coop_batch(conn, "a", LONG) is None  # it comes back, as a new one


def test_progress_inside_a_batch_is_taken_over_too(conn: Conn) -> None:
    register(conn, "a")
    ids = send(conn, "1", "2", "3")
    tick(conn)
    batch = coop_batch(conn, "a")
    assert value(conn, "select pgq.ack('q', 'm.a', %s, %s)", batch, ids[1]) == 0
    silence(conn, "a")
    assert coop_batch(conn, "b", LONG) == batch
    assert batch_data(conn, batch) == ["3"]


@pytest.mark.concurrency
def test_one_whose_transaction_is_open_is_slow_and_not_dead(db: Database, conn: Conn) -> None:
    register(conn, "a")
    register(conn, "b")
    send_ticked(conn, "1", "2")
    batch = coop_batch(conn, "a")
    silence(conn, "a")
    other = db.connect()
    begin(other)
    assert coop_finish(other, batch) == 1
    taken = coop_batch(conn, "b", LONG)
    assert batch_data(conn, taken) == ["2"]
    commit(other)


@pytest.mark.concurrency
@pytest.mark.parametrize("dead", [None, "1 hour"])
@pytest.mark.parametrize("gone", ["a", "b"])
def test_one_that_goes_while_it_is_looked_at(db: Database, conn: Conn, gone: str, dead: LiteralString | None) -> None:
    """The cursor of the one that asks, or of one that may be dead, has gone when it is read: then there is none."""
    asks, mover = db.connect(), db.connect()
    for sub in ("a", "b"):
        register(conn, sub)
    send_ticked(conn, *"12345678")
    while coop_take(conn, "c"):
        pass
    send_ticked(conn, "last")
    query = f"select pgq_coop.next_batch('q', 'm', 'a', {'null' if dead is None else repr(dead)})"
    waiting = waits_for_a_cursor(asks, query, conn, mover)
    assert value(mover, "select pgq_coop.unregister_subconsumer('q', 'm', %s, 1)", gone) == 1
    stepped(mover, "cursor_ring", "truncated")
    commit(mover)
    ((batch,),) = waiting.result(30)
    assert (batch is None) == (gone == "a")
    assert batch_data(conn, batch or coop_batch(conn, "a")) == ["last"]


@pytest.mark.concurrency
def test_two_at_once_get_different_batches(db: Database, conn: Conn) -> None:
    register(conn, "a")
    register(conn, "b")
    send_ticked(conn, "1", "2")
    first, second = db.connect(), db.connect()
    begin(first)
    one = coop_batch(first, "a")
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(coop_batch, second, "b")
        assert wait_blocked(conn, second.info.backend_pid) == [first.info.backend_pid]
        commit(first)
        assert [batch_data(conn, batch) for batch in (one, other.result())] == [["1"], ["2"]]


def test_an_idle_one_keeps_no_slot_and_a_busy_one_keeps_its_own(conn: Conn) -> None:
    register(conn, "idle")
    register(conn, "busy")
    send_ticked(conn, "1")
    batch = coop_batch(conn, "busy")
    rotated(conn, "switched", "closed")
    send_ticked(conn, "2")
    assert coop_take(conn, "other") == ["2"]
    assert rotate_until(conn, "waiting")
    assert batch_data(conn, batch) == ["1"]
    coop_finish(conn, batch)
    rotated(conn, "truncated")
    force_tick(conn)
    assert coop_take(conn, "other") == []
    rotate_until(conn, "idle")
    assert filled_slots(conn, "event_1") == []


def test_an_idle_one_is_not_evicted(conn: Conn) -> None:
    register(conn, "a")
    send_ticked(conn, "1")
    assert coop_take(conn, "b") == ["1"]
    conn.execute("update pgq.queue set queue_max_consumer_lag = '1 minute'")
    assert value(conn, "select pgq._consumer_lag(r) from pgq.registration r where sub_main is not null limit 1") is None
    assert rows(conn, "select last_tick, lag from pgq.get_consumer_info('q', 'm.a')") == [(None, None)]


def test_retries_come_to_any_of_them_and_dead_letters_are_the_main_consumers(conn: Conn) -> None:
    register(conn, "a")
    register(conn, "b")
    ids = send(conn, "1", "2")
    tick(conn)
    batch = coop_batch(conn, "a")
    assert value(conn, "select pgq.event_retry(%s, %s, 0)", batch, ids[0]) == 1
    dead = rows(conn, "select * from pgq.nack('q', 'm.a', %s, array[%s::bigint], 'bad', null, true)", batch, ids[1])
    assert dead == [(0, 1)]
    coop_finish(conn, batch)
    assert value(conn, "select pgq.maint_retry_events()") == 1
    tick(conn)
    assert coop_take(conn, "b") == ["1"]
    assert rows(conn, "select consumer_name, ev_data from pgq.dead_letter") == [("m", "2")]
    value(conn, "select pgq.dlq_replay(dl_id) from pgq.dead_letter")
    tick(conn)
    assert coop_take(conn, "b") == ["2"]


def test_unregistering(conn: Conn) -> None:
    register(conn, "a")
    register(conn, "b")
    send_ticked(conn, "1")
    batch = coop_batch(conn, "a")
    call = "select pgq_coop.unregister_subconsumer('q', 'm', 'a', %s)"
    with refused("PQ009", "subconsumer has active batch"):
        value(conn, call, 0)
    assert (value(conn, call, 1), value(conn, call, 1)) == (1, 0)
    assert coop_finish(conn, batch) == 0
    assert value(conn, "select pgq.unregister_consumer('q', 'm')") == 2
    assert rows(conn, "select * from pgq.get_consumer_info('q')") == []


def test_an_evicted_main_consumer_takes_its_own_with_it(conn: Conn) -> None:
    register(conn, "a")
    send_ticked(conn, "1")
    conn.execute("update pgq.queue set queue_max_consumer_lag = '1 minute'")
    conn.execute("update pgq.tick_ring set tick_time = tick_time - interval '1 hour'")
    value(conn, "select pgq.maint_evict_consumers('q')")
    assert rows(conn, "select consumer_name from pgq.eviction") == [("m",)]
    assert rows(conn, "select * from pgq.registration") == []


def test_rights_of_the_main_consumer_are_enough(db: Database, conn: Conn) -> None:
    role = f"coop_{random.randrange(10**9)}"
    conn.execute(f"create role {role} login".encode())
    try:
        app = db.connect(user=role)
        for call in ("select pgq_coop.next_batch('q', 'm', 'a')", "select pgq_coop.finish_batch(1)"):
            with refused("42501"):
                app.execute(call.encode())
        value(conn, "select pgq.grant_consume('q', 'm', %s)", role)
        assert register(app, "a") == 1
        send_ticked(conn, "1")
        assert coop_take(app, "a") == ["1"]
        with refused("42501"):
            register(app, "a", main="other")
        conn.execute(f"revoke execute on function pgq_coop.finish_batch(bigint) from {role}".encode())
        conn.execute("update pgq.migration set checksum = '' where name = 'coop'")
        schema.upgrade(conn)  # as if the part had come after the grant
        assert value(app, "select has_function_privilege('pgq_coop.finish_batch(bigint)', 'execute')")
        assert value(conn, "select has_function_privilege('pgq_reader', 'pgq_coop.finish_batch(bigint)', 'execute')")
    finally:
        conn.execute(f"drop owned by {role}; drop role {role}".encode())


@pytest.mark.slow
def test_no_dead_row_in_300_batches(db: Database, conn: Conn) -> None:
    register(conn, "a")
    register(conn, "b")
    for number in range(300):
        send_ticked(conn, str(number))
        assert coop_take(conn, "ab"[number % 2]) == [str(number)]
    hot = (
        "select relname from pg_stat_user_tables where schemaname in ('pgq', 'pgq_coop') and n_tup_upd + n_tup_del > 0"
    )
    if conn.info.server_version >= 150000:
        conn.execute("select pg_stat_force_next_flush()")
    assert db.rows(hot) == []


@pytest.mark.slow
@pytest.mark.concurrency
def test_workers_that_die_with_rotation_as_fast_as_it_goes(db: Database, conn: Conn) -> None:
    """Six workers, each of whose batches is abandoned now and then; every event is finished by one of them, once."""
    register(conn, "0")
    sent = [str(number) for number in range(600)]
    done: list[str] = []

    def produce() -> None:
        with psycopg.connect(db.dsn, autocommit=True) as own:
            for item in sent:
                send(own, item)
                force_tick(own)
                value(own, "select pgq.rotate_queue('q')")
                value(own, "select pgq._ring_step('cursor_ring', true)")
                value(own, "select pgq._ring_step('tick_ring', true)")

    def work(number: int) -> None:
        dice = random.Random(number)
        name, life = f"w{number}", 0
        with psycopg.connect(db.dsn, autocommit=True) as own:
            while len(done) < len(sent):
                # with rotation this fast a slot may be left in the middle of a call, which is to be repeated then
                with suppress(psycopg.errors.SerializationFailure):
                    batch = coop_batch(own, f"{name}_{life}", "0.2 s")
                    if batch is None:
                        continue
                    if dice.random() < 0.1:
                        life += 1  # never heard of again
                        continue
                    with own.transaction():
                        data = batch_data(own, batch)
                        finished = value(own, "select pgq_coop.finish_batch(%s)", batch) == 1
                    if finished:
                        done.extend(data)

    with ThreadPoolExecutor(7) as pool:
        tasks = [pool.submit(produce), *(pool.submit(work, number) for number in range(6))]
        for task in tasks:
            task.result(timeout=120)
    assert sorted(done, key=int) == sent
    assert drain(conn, "m") == []
