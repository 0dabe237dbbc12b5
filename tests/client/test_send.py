"""Sending: what arrives, in whose transaction, and what happens when the queue changes underneath."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import IsolationLevel
from psycopg.rows import dict_row

from pgq_py import Event, InsertDisabled, InvalidArgument, NewEvent, QueueNotFound, SchemaMissing, SlotClosed
from pgq_py.app import PgQ
from pgq_py.client._sync.copying import CopyWriter
from pgq_py.client.copytext import copy_block
from tests.client.test_encoding import DATA, FIELD
from tests.clusters import Database


def delivered(pgq: PgQ, queue: str = "orders", consumer: str = "mailer") -> list[Event]:
    pgq.force_tick(queue)
    with pgq.batches(queue, consumer, wait=0) as batches:
        return [event for batch in batches for event in batch]


def test_every_kind_of_data(pgq: PgQ) -> None:
    values: list[Any] = ["text", {"id": 42}, [1, None], 7, 1.5, True, None, ""]
    ids = [pgq.send("orders", value, type="kind") for value in values]
    events = delivered(pgq)
    assert [event.id for event in events] == ids == sorted(ids)
    assert [event.data for event in events] == ["text", '{"id":42}', "[1,null]", "7", "1.5", "true", None, ""]
    assert {event.type for event in events} == {"kind"}
    assert events[1].json == {"id": 42}


def test_extras_and_a_missing_type(pgq: PgQ) -> None:
    pgq.send("orders", "x", extra1="1", extra4="4")
    (event,) = delivered(pgq)
    assert (event.type, event.extra1, event.extra2, event.extra3, event.extra4) == (None, "1", None, None, "4")


def test_a_send_is_part_of_the_callers_transaction(pgq: PgQ, db: Database) -> None:
    with suppress(ZeroDivisionError), pgq.transaction() as tx:
        tx.execute("create table sale ()")
        pgq.send("orders", "rolled back", conn=tx)
        pgq.send_many("orders", ["rolled back too"], conn=tx)
        raise ZeroDivisionError
    with pgq.transaction() as tx:
        tx.execute("create table sale ()")
        pgq.send("orders", "kept", conn=tx)
        assert pgq.send_many("orders", ["kept too"], conn=tx) == 1
    assert [event.data for event in delivered(pgq)] == ["kept", "kept too"]
    assert db.value("select to_regclass('sale') is not null")


def test_nothing_is_committed_on_a_borrowed_connection(pgq: PgQ, db: Database) -> None:
    conn = db.connect(autocommit=False)
    pgq.send("orders", "x", conn=conn)
    pgq.send_many("orders", ["x"], conn=conn)
    assert conn.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
    conn.rollback()
    assert delivered(pgq) == []


@pytest.mark.parametrize("level", [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE])
def test_producing_keeps_the_callers_isolation_level(pgq: PgQ, db: Database, level: IsolationLevel) -> None:
    conn = db.connect(autocommit=False)
    conn.isolation_level = level
    pgq.send("orders", "one", conn=conn)
    pgq.send_many("orders", ["two"], conn=conn)
    assert conn.execute("show transaction_isolation").fetchone() == (level.name.lower().replace("_", " "),)
    conn.commit()
    assert [event.data for event in delivered(pgq)] == ["one", "two"]


def test_a_borrowed_connections_own_habits_do_not_matter(pgq: PgQ, db: Database) -> None:
    conn = db.connect(row_factory=dict_row, cursor_factory=psycopg.ClientCursor)
    assert pgq.send("orders", "%s {} %", type="100%", conn=conn) == 1
    assert pgq.send_many("orders", ["two"], conn=conn.cursor()) == 1
    events = delivered(pgq)
    assert [(event.type, event.data) for event in events] == [("100%", "%s {} %"), (None, "two")]


def test_a_queue_that_was_created_anew_is_found_again(pgq: PgQ) -> None:
    pgq.send("orders", "old")
    pgq.drop_queue("orders", force=True)
    with pytest.raises(QueueNotFound):
        pgq.send("orders", "nowhere")
    pgq.create_queue("orders")
    pgq.register_consumer("orders", "mailer")
    pgq.send("orders", "new")
    assert [event.data for event in delivered(pgq)] == ["new"]


def test_a_stale_queue_in_the_callers_transaction_is_an_error_once(pgq: PgQ, db: Database) -> None:
    pgq.send("orders", "old")
    pgq.drop_queue("orders", force=True)
    pgq.create_queue("orders")
    pgq.register_consumer("orders", "mailer")
    conn = db.connect(autocommit=False)
    with pytest.raises(QueueNotFound):
        pgq.send("orders", "x", conn=conn)
    conn.rollback()
    pgq.send("orders", "again", conn=conn)
    conn.commit()
    assert [event.data for event in delivered(pgq)] == ["again"]


def test_one_client_and_connections_to_two_databases(pgq: PgQ, pg: Any) -> None:
    pgq.create_queue("elsewhere")
    pgq.send("orders", "here")
    with pg.database() as other, PgQ(other.dsn) as far:
        far.create_queue("elsewhere")  # has there the number that `orders` has here
        far.create_queue("orders")
        far.register_consumer("orders", "mailer")
        pgq.send("orders", "there", conn=other.connect())
        assert [event.data for event in delivered(far)] == ["there"]
    assert [event.data for event in delivered(pgq)] == ["here"]


def test_unknown_queue_disabled_queue_missing_schema(pgq: PgQ, empty_db: Database) -> None:
    for call in (pgq.send, pgq.send_many):
        with pytest.raises(QueueNotFound):
            call("no such queue", ["x"])
    pgq.set_queue_config("orders", "disable_insert", True)
    for call in (pgq.send, pgq.send_many):
        with pytest.raises(InsertDisabled):
            call("orders", ["x"])
    with PgQ(empty_db.dsn) as bare:
        for call in (bare.send, bare.send_many):
            with pytest.raises(SchemaMissing):
                call("orders", ["x"])


@pytest.mark.parametrize("queue", ["", "a\0b", 7, None, "\ud800"])
def test_impossible_queue_names(pgq: PgQ, queue: Any) -> None:
    for send in (pgq.send, pgq.send_many):
        with pytest.raises(InvalidArgument):
            send(queue, ["x"])
    for call in (pgq.create_queue, pgq.tick, pgq.queue_info):
        with pytest.raises(InvalidArgument):
            call(queue)


@pytest.mark.parametrize(
    "queue", ["q" * 63, "q" * 64, "\N{GRINNING FACE}" * 32, "100% 'quoted' \"name\" {}", "with\\backslash"], ids=ascii
)
def test_unusual_queue_and_consumer_names(pgq: PgQ, queue: str) -> None:
    assert pgq.create_queue(queue)
    assert pgq.register_consumer(queue, queue)
    pgq.send(queue, "one")
    pgq.send_many(queue, [(queue, "two")])
    assert [(event.type, event.data) for event in delivered(pgq, queue, queue)] == [(None, "one"), (queue, "two")]
    assert pgq.consumer_info(queue, queue).queue_name == queue


def test_send_many_takes_every_shape(pgq: PgQ) -> None:
    pgq.send_many("orders", ["a", {"b": 1}, 2], type="plain")
    pgq.send_many("orders", (pair for pair in [("pair", "c"), (None, None)]), type="default")
    pgq.send_many("orders", [NewEvent("named", "d", extra2="x"), ("tuple", "e", "1", "2", "3", "4"), "f"])
    events = delivered(pgq)
    assert [(event.type, event.data) for event in events] == [
        ("plain", "a"),
        ("plain", '{"b":1}'),
        ("plain", "2"),
        ("pair", "c"),
        ("default", None),
        ("named", "d"),
        ("tuple", "e"),
        (None, "f"),
    ]
    assert events[5].extra2 == "x"
    assert events[6][6:] == ("1", "2", "3", "4")
    pgq.send_many("orders", events)
    assert [event[4:] for event in delivered(pgq)] == [event[4:] for event in events]


@pytest.mark.parametrize("events", ["text", b"bytes", {"a": 1}])
def test_one_event_is_not_many(pgq: PgQ, events: Any) -> None:
    with pytest.raises(InvalidArgument):
        pgq.send_many("orders", events)


def test_no_events_at_all(pgq: PgQ) -> None:
    assert pgq.send_many("orders", []) == 0
    assert delivered(pgq) == []


def test_chunks_are_transactions_and_an_error_keeps_the_earlier_ones(pgq: PgQ) -> None:
    def rows() -> Iterator[str]:
        yield from map(str, range(25))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        pgq.send_many("orders", rows(), chunk_size=10)
    events = delivered(pgq)
    assert [event.data for event in events] == [str(number) for number in range(20)]
    assert len({event.txid for event in events}) == 2


def test_a_refused_row_aborts_its_chunk(pgq: PgQ) -> None:
    with pytest.raises(InvalidArgument):
        pgq.send_many("orders", ["fine", "\0"])
    assert delivered(pgq) == []
    assert pgq.send_many("orders", ["fine"]) == 1


class StaleAtFirst(CopyWriter):
    """Aims its first COPY at a slot that rotation has left, as a writer does that stalls ahead of it."""

    stale = "pgq.event_1_2"

    def _begin(self) -> psycopg.Copy:
        table, self.stale = self.stale, ""
        if not table:
            return super()._begin()
        self._context = psycopg.Cursor(self._conn).copy(f"copy {table} (ev_type, ev_data) from stdin")
        self._copy = self._context.__enter__()
        return self._copy


def leave_slot(pgq: PgQ) -> str:
    """Fill the queue's current slot, rotate away from it until it is closed, and return its name."""
    with pgq.transaction() as tx:
        (slot,) = tx.execute("select pgq.current_event_table('orders')").fetchone() or ("",)
    pgq.send("orders", "early")
    delivered(pgq)
    steps = [pgq.rotate_queue("orders") for _ in range(2)]
    assert steps == ["switched", "closed"]
    return str(slot)


def test_a_closed_slot_is_retried_where_the_transaction_is_ours(pgq: PgQ, db: Database) -> None:
    StaleAtFirst.stale = leave_slot(pgq)
    with StaleAtFirst(db.connect(), "orders", 10, attempts=2) as writer:
        writer.write(copy_block(["a", "b"], None))
        writer.write(copy_block(["c"], None))
    assert [event.data for event in delivered(pgq)] == ["a", "b", "c"]


def test_a_closed_slot_in_the_callers_transaction_is_reported(pgq: PgQ, db: Database) -> None:
    StaleAtFirst.stale = leave_slot(pgq)
    with pytest.raises(SlotClosed), StaleAtFirst(db.connect(), "orders", 10, attempts=1) as writer:
        writer.write(copy_block(["a"], None))
    assert delivered(pgq) == []


def test_a_pipeline_is_one_transaction(pgq: PgQ) -> None:
    with pgq.pipeline() as pipeline:
        for number in range(100):
            pipeline.send("orders", number, type="n")
    events = delivered(pgq)
    assert [event.json for event in events] == list(range(100))
    assert len({event.txid for event in events}) == 1
    with suppress(ZeroDivisionError), pgq.pipeline() as pipeline:
        pipeline.send("orders", "rolled back")
        raise ZeroDivisionError
    assert delivered(pgq) == []


def test_a_pipeline_keeps_the_order_and_all_columns(pgq: PgQ) -> None:
    """Of each queue, whatever goes to the server as a block, and whatever does not."""
    pgq.create_queue("other")
    pgq.register_consumer("other", "c")
    rows = [
        (None, None, None),
        ("t", None, None),
        (None, '{"a": [1, "b,\\c"]}', None),
        ("t", "NULL", "x"),
        ("", "", ""),
    ]
    for count in (0, 1, 3, 4, 500, 1_203):
        with pgq.pipeline() as pipeline:
            for nth in range(count):
                kind, data, extra = rows[nth % len(rows)]
                pipeline.send("orders", data, type=kind, extra4=extra)
                if nth % 3 == 0:
                    pipeline.send("other", nth)
        found = [(event.type, event.data, event.extra4) for event in delivered(pgq)]
        assert found == [rows[nth % len(rows)] for nth in range(count)]
        assert [event.json for event in delivered(pgq, "other", "c")] == list(range(0, count, 3))


def test_what_follows_a_flush_comes_after_it(pgq: PgQ) -> None:
    with pgq.pipeline() as pipeline:
        for number in range(10):
            pipeline.send("orders", number)
        pipeline.flush()
        pgq.send("orders", 10, conn=pipeline.conn)
        pipeline.send("orders", 11)
    assert [event.json for event in delivered(pgq)] == list(range(12))


def test_events_without_anything_and_large_ones_go_through_a_pipeline(pgq: PgQ) -> None:
    with pgq.pipeline() as pipeline:
        for _ in range(12):
            pipeline.send("orders", None)
        pipeline.flush()
        for number in range(12):
            pipeline.send("orders", str(number) * 100_000)
            assert all(block.characters < 256 * 1024 for block in pipeline._blocks.values())
    assert [event.data for event in delivered(pgq)] == [None] * 12 + [str(number) * 100_000 for number in range(12)]


def test_an_unknown_queue_is_an_error_of_the_call(pgq: PgQ) -> None:
    with suppress(QueueNotFound), pgq.pipeline() as pipeline:
        pipeline.send("orders", "rolled back")
        pipeline.send("nosuch", 1)
        pytest.fail("no error")
    assert delivered(pgq) == []


def test_an_error_in_a_pipeline_surfaces(pgq: PgQ) -> None:
    pgq.send("orders", "x")
    pgq.set_queue_config("orders", "disable_insert", True)
    with pytest.raises(InsertDisabled), pgq.pipeline() as pipeline:
        pipeline.send("orders", "refused")
    pgq.set_queue_config("orders", "disable_insert", False)
    assert len(delivered(pgq)) == 1


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(FIELD, DATA, FIELD), min_size=1, max_size=5), st.booleans())
def test_unusual_characters_come_back(pgq: PgQ, rows: list[tuple[Any, Any, Any]], plain: bool) -> None:
    if plain:
        pgq.send_many("orders", [data for _, data, _ in rows])
    else:
        pgq.send_many("orders", rows)
    events = delivered(pgq)
    for event, (kind, data, extra) in zip(events, rows, strict=True):
        assert (event.type, event.extra1) == ((None, None) if plain else (kind, extra))
        assert event.data == data if data is None or isinstance(data, str) else event.json == data
    for kind, data, extra in rows:
        pgq.send("orders", data, type=kind, extra1=extra)
    assert [event[4:6] for event in delivered(pgq)] == [
        (
            kind,
            data
            if data is None or isinstance(data, str)
            else json.dumps(data, ensure_ascii=False, separators=(",", ":")),
        )
        for kind, data, _ in rows
    ]
