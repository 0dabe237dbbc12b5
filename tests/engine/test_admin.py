"""Queues: creating, configuring, dropping; every setting that makes no sense is refused at the door."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any, LiteralString

import pytest

from tests.clusters import Database
from tests.engine.support import (
    Conn,
    begin,
    column,
    configure,
    create,
    deliver,
    drain,
    next_batch,
    refused,
    rollback,
    rows,
    send,
    tick,
    value,
)


def _objects(conn: Conn) -> list[Any]:
    """Names of everything in the schema."""
    return column(
        conn,
        "select relkind::text || ' ' || relname from pg_class where relnamespace = 'pgq'::regnamespace"
        " union all select 'f ' || proname from pg_proc where pronamespace = 'pgq'::regnamespace order by 1",
    )


# -- create and drop ------------------------------------------------------------------------------------------------


def test_create_and_drop_leave_nothing(db: Database) -> None:
    conn = db.connect()
    before = _objects(conn)
    create(conn, "c")
    assert value(conn, "select pgq.create_queue('q')") == 0
    assert len(_objects(conn)) > len(before)
    with refused("PQ009", "consumers still attached"):
        value(conn, "select pgq.drop_queue('q')")
    with refused("PQ009"):
        value(conn, "select pgq.drop_queue('q', null)")
    assert value(conn, "select pgq.unregister_consumer('q', 'c')") == 1
    assert value(conn, "select pgq.drop_queue('q')") == 1
    assert _objects(conn) == before
    for call in ("select pgq.drop_queue(%s)", "select pgq.drop_queue(%s, true)"):
        for unknown in ("q", None):
            with refused("PQ001", "No such event queue"):
                conn.execute(call.encode(), [unknown])


def test_a_queue_of_the_same_name_is_another_queue(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    send(conn, "old")
    tick(conn)
    batch = next_batch(conn)
    assert value(conn, "select pgq.drop_queue('q', true)") == 1
    create(conn, "c")
    with refused("PQ003"):
        value(conn, "select pgq.batch_event_sql(%s)", batch)
    assert value(conn, "select pgq.finish_batch(%s)", batch) == 0
    send(conn, "new")
    assert deliver(conn) == ["new"]
    assert column(conn, "select tick_id from pgq.tick order by 1") == [1, 2]


def test_creating_can_be_rolled_back(db: Database) -> None:
    conn = db.connect()
    before = _objects(conn)
    begin(conn)
    create(conn, "c")
    send(conn, "x")
    assert deliver(conn) == []
    rollback(conn)
    assert _objects(conn) == before
    create(conn, "c")
    send(conn, "y")
    assert deliver(conn) == ["y"]


def test_dropping_a_queue_drops_nothing_else(db: Database) -> None:
    conn = db.connect()
    create(conn, "c")
    conn.execute("create view report as select * from pgq.event_1")
    with refused("2BP01"):
        value(conn, "select pgq.drop_queue('q', true)")
    send(conn, "x")
    assert deliver(conn) == ["x"]
    assert value(conn, "select count(*) from report") == 1
    conn.execute("drop view report")
    assert value(conn, "select pgq.drop_queue('q', true)") == 1


@pytest.mark.concurrency
def test_parallel_creations(db: Database) -> None:
    """Of the same queue: one creates it. Of different ones: all are created."""
    sessions = [db.connect() for _ in range(6)]
    barrier = Barrier(6)

    def work(number: int) -> list[int]:
        barrier.wait(30)
        create_queue = "select pgq.create_queue(%s)"
        return [value(sessions[number], create_queue, name) for name in ("same", f"own {number}", "same 2")]

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(work, range(6)))
    assert [sorted(column) for column in zip(*results, strict=True)] == [[0] * 5 + [1], [1] * 6, [0] * 5 + [1]]
    assert value(sessions[0], "select count(*) from pgq.queue") == 8


def test_numbers_of_slots_that_are_refused(db: Database) -> None:
    conn = db.connect()
    for slots in (2, 0, -1, 65, None):
        with refused("PQ006", "the number of slots must be 3 to 64"):
            value(conn, "select pgq.create_queue('q', %s)", slots)


# -- settings -------------------------------------------------------------------------------------------------------

GOOD: dict[str, list[str | None]] = {
    "ticker_max_count": ["1", "2147483647", None],
    "ticker_max_lag": ["0", "50 ms", "1 day", None],
    "ticker_idle_period": ["0", "10 years", None],
    "rotation_period": ["0", "2 hours", "10 years", None],
    "retention": ["0", "7 days", "10 years"],
    "ticker_paused": ["true", "false"],
    "external_ticker": ["on", "off"],
    "disable_insert": ["1", "0"],
}

BAD: dict[str, list[str | None]] = {
    "ticker_max_count": ["0", "-1", "1.5", "2147483648", "many", ""],
    "ticker_max_lag": ["-1 s", "25 hours", "infinity", "-infinity", "soon", ""],
    "ticker_idle_period": ["-1 s", "11 years", "infinity", "-infinity", "soon"],
    "rotation_period": ["-1 s", "-1 month", "11 years", "infinity", "1000000000 years"],
    "retention": ["-1 s", "11 years", "infinity", None],
    "ticker_paused": ["maybe", "", None],
    "external_ticker": ["2", None],
    "disable_insert": ["perhaps", None],
}


def test_settings(db: Database) -> None:
    """Good ones are kept, bad ones are refused and change nothing."""
    conn = db.connect()
    create(conn)
    for param in GOOD:
        _check_settings(conn, param)


def _check_settings(conn: Conn, param: str) -> None:
    for setting in GOOD[param]:
        configure(conn, param, setting)
        kept = rows(conn, "select to_jsonb(q) ->> ('queue_' || %s) from pgq.queue q", param)
        record: LiteralString = "jsonb_populate_record(null::pgq.queue, jsonb_build_object(%s::text, %s::text))"
        typed: LiteralString = "select to_jsonb(q) ->> %s from " + record + " q"
        assert kept == rows(conn, typed, f"queue_{param}", f"queue_{param}", setting)
    before = rows(conn, "select * from pgq.queue")
    for setting in BAD[param]:
        with refused("PQ006", f'parameter "{param}" cannot be'):
            configure(conn, param, setting)
    assert rows(conn, "select * from pgq.queue") == before


def test_settings_that_are_none(db: Database) -> None:
    conn = db.connect()
    create(conn)
    for param in ("nosuch", "id", "name", "ntables", "extra_maint", "data_pfx", 'paused" = true, "x', ""):
        with refused("PQ006", f'cannot change parameter "{param}"'):
            configure(conn, param, "1")
    for queue, name in ((None, "retention"), ("q", None)):
        with refused("PQ006", "Invalid NULL value"):
            value(conn, "select pgq.set_queue_config(%s, %s, '1')", queue, name)
    with refused("PQ001", "No such event queue"):
        configure(conn, "retention", "0", queue="nosuch")
    for call in ("select pgq.pause_queue(%s)", "select pgq.resume_queue(%s)"):
        for unknown in ("nosuch", None):
            with refused("PQ001", "No such queue"):
                conn.execute(call.encode(), [unknown])


def test_what_makes_a_queue_cannot_be_changed_in_its_row(db: Database) -> None:
    """Not even by its owner: slots and sequences are named after it."""
    conn = db.connect()
    create(conn, "c")
    for change, sqlstate in (
        ("queue_ntables = 2", "23514"),
        ("queue_rotation_period = '-1 s'", "23514"),
        ("queue_data_pfx = 'x'", "428C9"),
        ("queue_event_seq = 'x'", "428C9"),
    ):
        with refused(sqlstate):
            conn.execute(f"update pgq.queue set {change}".encode())
    send(conn, "x")
    assert deliver(conn) == ["x"]
    assert drain(conn) == []
