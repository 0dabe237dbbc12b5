"""Nothing bloats, whatever anyone holds open: hot tables are appended to and truncated, never updated."""

from __future__ import annotations

import re
from typing import Any, LiteralString

import pytest

from tests.clusters import Database
from tests.engine.support import (
    Conn,
    begin,
    column,
    commit,
    create,
    deliver,
    finish,
    next_batch,
    receive,
    rollback,
    rotate,
    rows,
    send,
    step,
    take,
    tick,
    value,
)
from tests.waiting import wait_until

CYCLES = 300


def _cycle(conn: Conn, number: int) -> None:
    """Insert, tick, three consumers in their three ways, and a step of every ring."""
    send(conn, str(number))
    assert tick(conn) is not None
    assert take(conn, "a") == [str(number)]
    batch, data = receive(conn, "b")
    assert (data, value(conn, "select pgq.ack('q', 'b', %s)", batch)) == ([str(number)], 1)
    begin(conn)
    batch = next_batch(conn, "c")
    finish(conn, batch)
    commit(conn)
    rotate(conn)
    for ring in ("tick_ring", "cursor_ring"):
        step(conn, ring)


def _flush(conn: Conn) -> None:
    """Send this session's statistics: at once from 15 on, before that when it is idle."""
    if conn.info.server_version >= 150000:
        conn.execute("select pg_stat_force_next_flush()")


def _dead(db: Database) -> dict[str, tuple[Any, ...]]:
    query = (
        "select relname, n_dead_tup, n_tup_upd, n_tup_del from pg_stat_all_tables"
        " where schemaname = 'pgq' and n_dead_tup + n_tup_upd + n_tup_del > 0"
    )
    return {row[0]: row[1:] for row in db.rows(query)}


def _wait_for_statistics(db: Database, inserted: int) -> None:
    def counted() -> bool:
        query = "select sum(n_tup_ins) >= %s from pg_stat_all_tables where relname ~ '^event_[0-9]+_[0-9]+$'"
        return bool(db.value(query, [inserted]))

    wait_until(counted, what="statistics of all inserts")


# What VACUUM says of row versions that it removed, and of those that it could not: on 15 and later, on 14.
_REMOVED = re.compile(r"tuples: (\d+) removed|found (\d+) removable")
_KEPT = re.compile(r"(\d+) are dead but not yet removable|(\d+) dead row versions cannot be removed")


def _vacuumed(conn: Conn) -> dict[str, int]:
    """Tables of the schema in which VACUUM finds dead row versions, removable or not; and how many."""
    found: dict[str, int] = {}
    notices: list[str] = []
    conn.add_notice_handler(lambda diag: notices.append(f"{diag.message_primary}\n{diag.message_detail}"))
    tables: LiteralString = (
        "select oid::regclass::text from pg_class where relnamespace = 'pgq'::regnamespace and relkind = 'r'"
    )
    for name in column(conn, tables):
        notices.clear()
        conn.execute(f"vacuum (verbose, process_toast false) {name}".encode())
        counts = [pattern.search("\n".join(notices)) for pattern in (_REMOVED, _KEPT)]
        assert all(counts), notices
        if dead := sum(int(number) for match in counts if match for number in match.groups() if number):
            found[name] = dead
    return found


@pytest.mark.slow
def test_no_dead_row_while_a_snapshot_is_held(db: Database) -> None:
    """300 cycles with the horizon pinned in the same database: a PgQ leaves 3,000 dead rows, and gets slow."""
    pin, conn = db.connect(), db.connect()
    create(conn, "a", "b", "c")
    begin(pin, "repeatable read")
    results: list[Any] = []
    for number in range(CYCLES):
        _cycle(conn, number)
        results.append(value(conn, "select generation from pgq.ring_info() where ring = 'event_1'"))
    _flush(conn)
    conn.close()
    _wait_for_statistics(db, CYCLES)
    assert _dead(db) == {}
    assert results[-1] > 50
    assert _vacuumed(db.connect()) == {}
    rollback(pin)


def test_what_updates_do_happen_are_configuration(db: Database) -> None:
    """Consumers that come, go and are moved delete a row of their registration each time; nothing else."""
    conn = db.connect()
    create(conn, "a")
    for number in range(10):
        value(conn, "select pgq.register_consumer('q', %s)", f"c{number}")
        value(conn, "select pgq.seek('q', %s, 'latest')", f"c{number}")
        value(conn, "select pgq.unregister_consumer('q', %s)", f"c{number}")
    send(conn, "x")
    deliver(conn, "a")
    _flush(conn)
    conn.close()
    _wait_for_statistics(db, 1)
    assert {name: counts[1:] for name, counts in _dead(db).items()} == {"registration": (0, 10)}


def test_polling_writes_nothing(db: Database) -> None:
    """No row, no transaction id, no WAL: idle consumers and tickers are free."""
    conn = db.connect()
    create(conn, "c")
    state = "select pg_snapshot_xmax(pg_current_snapshot())::text, (select count(*) from pgq.cursor_ring)"
    polls = (
        "select pgq.next_batch('q', 'c')",
        "select batch_id from pgq.open_batch('q', 'c')",
        "select * from pgq.open_1_7694f4a6('c', 10000, 500, false)",
        "select * from pgq.open_1_7694f4a6('c', 10000, 500, null)",
        "select * from pgq.receive('q', 'c')",
        "select pgq.ticker('q')",
        "select pgq.ticker()",
        "select pgq.poke('q')",
        "select * from pgq.queues_due()",
        "select * from pgq.maint_operations()",
        "select pgq.register_consumer('q', 'c')",
    )
    before = rows(conn, state)
    for poll in polls:
        conn.execute(poll.encode())
        assert rows(conn, state) == before, poll
