"""Taking over a live PgQ 3.5: nothing lost, nothing twice, or nothing changed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

from pgq_py import schema
from pgq_py.errors import PgqError
from pgq_py.schema.adopt import adopt
from tests.cli.driving import run
from tests.clusters import Database
from tests.compat.old import INSERT, everything, send, take, tick
from tests.engine.support import Conn, begin, column, rows, value
from tests.waiting import wait_blocked, wait_until

pytestmark = pytest.mark.newest  # PgQ itself is there for PostgreSQL 15 alone

POSITIONS = (
    "select consumer_name, queue_name, last_tick, current_batch, next_tick from pgq.get_consumer_info() order by 1, 2"
)
SETTINGS = """
    select queue_rotation_period::text, queue_ticker_paused, queue_ticker_max_count from pgq.queue order by queue_id
"""
FUTURE = """
    create or replace function pgq._clock() returns timestamptz language sql as $$ select now() + interval '2 hours' $$
"""
MEMBERS = """
    select pg_describe_object(classid, objid, 0) from pg_depend
    where deptype = 'e' and refobjid = (select oid from pg_extension where extname = 'pgq')
"""


def test_everything_is_taken_over(pgq_db: Database, old: Conn) -> None:
    first = send(old, "one", "read", "retry-1", "retry-2")
    tick(old)
    assert take(old, "one", "a", retry=0) == ["read", "retry-1", "retry-2"]
    assert take(old, "one", "b") == ["read", "retry-1", "retry-2"]
    assert value(old, "select pgq.maint_retry_events()") == 2  # back in the log, for a alone
    tick(old)
    assert take(old, "one", "a", retry=3600) == ["retry-1", "retry-2"]
    open_ids = send(old, "one", "open-1", "open-2")
    tick(old)
    batch = value(old, "select pgq.next_batch('one', 'a')")
    ticked = send(old, "one", "ticked")
    tick(old)
    fresh = send(old, "one", "fresh")
    elsewhere = send(old, "two", *(f"two-{number}" for number in range(500)))
    old.execute(
        "update pgq.queue set queue_rotation_period = '3 hours', queue_ticker_paused = true where queue_name = 'two'"
    )
    positions = rows(old, POSITIONS)
    old.close()

    expected = run("adopt", "--dry-run", "--json", dsn=pgq_db.dsn).json
    done = run("adopt", "--yes", "--json", dsn=pgq_db.dsn).json
    assert done == expected | {"executed": True, "events": done["events"]}
    assert (done["queues"], done["consumers"], done["open_batches"], done["retries"]) == (2, 3, 1, 2)

    conn = pgq_db.connect()
    schema.check(conn)
    assert rows(conn, POSITIONS) == positions
    assert rows(conn, SETTINGS) == [("02:00:00", False, None), ("03:00:00", True, None)]
    assert column(conn, "select extname from pg_extension where extname like 'pgq%'") == []
    assert column(conn, "select nspname::text from pg_namespace where nspname like 'pgq%'") == ["pgq"]

    # the open batch again, under its id; then what came after; then the retries, when they are due
    assert value(conn, "select pgq.next_batch('one', 'a')") == batch
    assert column(conn, "select ev_data from pgq.get_batch_events(%s)", batch) == ["open-1", "open-2"]
    conn.execute("select pgq.resume_queue('two')")
    retries = rows(conn, "select ev_data, ev_retry from pgq.retry_queue order by 1")
    assert retries == [("retry-1", 2), ("retry-2", 2)]
    conn.execute(FUTURE)
    b_gets = [*zip(open_ids, ["open-1", "open-2"], strict=True), (ticked[0], "ticked"), (fresh[0], "fresh")]
    a_gets = [*b_gets, (first[1], "retry-1"), (first[2], "retry-2")]
    assert Counter(everything(pgq_db, "one", "a")) == Counter(a_gets)
    assert everything(pgq_db, "one", "b") == b_gets
    assert everything(pgq_db, "two", "b") == [(ev_id, f"two-{number}") for number, ev_id in enumerate(elsewhere)]
    (later,) = send(conn, "one", "later")
    assert later > fresh[0]
    assert everything(pgq_db, "one", "b") == [(later, "later")]


def test_a_consumer_that_holds_a_batch_finishes_it(pgq_db: Database, old: Conn) -> None:
    """Its session lives on, with the batch that PgQ gave it."""
    send(old, "one", "held")
    tick(old)
    batch = value(old, "select pgq.next_batch('one', 'a')")
    assert column(old, "select ev_data from pgq.get_batch_events(%s)", batch) == ["held"]
    adopt(pgq_db.connect())
    assert value(old, "select pgq.finish_batch(%s)", batch) == 1
    assert everything(pgq_db, "one", "a") == []
    assert [data for _, data in everything(pgq_db, "one", "b")] == ["held"]


@dataclass
class Producer:
    """Sends until it is told to stop, in transactions of one to three events; remembers what was committed."""

    db: Database
    number: int
    stop: threading.Event
    committed: list[str] = field(default_factory=list)
    refused: int = 0

    def run(self) -> None:
        turn = 0
        with psycopg.connect(self.db.dsn) as conn:
            while not self.stop.is_set():
                turn += 1
                data = [f"p{self.number}-{turn}-{part}" for part in range(1 + turn % 3)]
                try:
                    for item in data:
                        conn.execute(INSERT, ["one", "t", item])
                    conn.commit()
                    self.committed += data
                except psycopg.Error:
                    conn.rollback()
                    self.refused += 1


@contextmanager
def producing(db: Database, number: int) -> Iterator[list[Producer]]:
    stop = threading.Event()
    producers = [Producer(db, index, stop) for index in range(number)]
    threads = [threading.Thread(target=producer.run) for producer in producers]
    for thread in threads:
        thread.start()
    try:
        yield producers
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)


@pytest.mark.concurrency
@pytest.mark.slow
def test_under_four_producers_and_a_consumer(pgq_db: Database, old: Conn) -> None:
    """They run before, during and after it; every event that was committed comes once to each."""
    seen: list[str] = []
    with producing(pgq_db, 4) as producers:
        wait_until(lambda: min(len(producer.committed) for producer in producers) > 100, 30)
        tick(old)
        seen += take(old, "one", "a")
        before = [len(producer.committed) for producer in producers]
        done = adopt(pgq_db.connect())
        wait_until(
            lambda: all(len(p.committed) > n + 100 for p, n in zip(producers, before, strict=True)),
            30,
            "sending goes on",
        )
    sent = [item for producer in producers for item in producer.committed]
    assert done.events
    assert sum(producer.refused for producer in producers) <= len(producers)  # who was waiting, at most
    a_gets = seen + [data for _, data in everything(pgq_db, "one", "a")]
    assert Counter(a_gets) == Counter(sent)
    assert Counter(data for _, data in everything(pgq_db, "one", "b")) == Counter(sent)


def test_late_commits_of_before_come_after(pgq_db: Database, old: Conn) -> None:
    """Transactions that were running at the last tick, in every order of ids."""
    early, late = pgq_db.connect(), pgq_db.connect()
    for conn in (late, early):
        begin(conn)
    send(late, "one", "late")
    send(early, "one", "early")
    early.execute("commit")
    tick(old)
    assert take(old, "one", "b") == ["early"]
    late.execute("commit")
    adopt(pgq_db.connect())
    assert [data for _, data in everything(pgq_db, "one", "b")] == ["late"]
    assert sorted(data for _, data in everything(pgq_db, "one", "a")) == ["early", "late"]


def test_a_plain_schema_is_taken_over_too(pgq_db: Database, old: Conn) -> None:
    """Not an extension: as installed from PgQ's SQL file."""
    for name in column(old, MEMBERS):
        old.execute(f"alter extension pgq drop {name}".encode())
    old.execute("drop extension pgq")
    send(old, "one", "x")
    assert adopt(pgq_db.connect()).events == 1
    assert [data for _, data in everything(pgq_db, "one", "a")] == ["x"]


@pytest.mark.concurrency
def test_a_waiting_producer_is_told_and_sends_again(pgq_db: Database, old: Conn) -> None:
    holder, waiting = pgq_db.connect(), pgq_db.connect()
    begin(holder)
    send(holder, "one", "slow")
    errors: list[Exception] = []
    pids: list[int] = []

    def work() -> None:
        with pgq_db.connect() as own:
            pids.append(own.info.backend_pid)
            try:
                adopt(own)
            except Exception as exc:
                errors.append(exc)

    def produce() -> None:
        try:
            send(waiting, "one", "told")
        except psycopg.Error:
            send(waiting, "one", "again")

    adopting = threading.Thread(target=work)
    adopting.start()
    wait_until(lambda: pids)
    watcher = pgq_db.connect()
    assert wait_blocked(watcher, pids[0]) == [holder.info.backend_pid]
    producing_thread = threading.Thread(target=produce)
    producing_thread.start()
    wait_blocked(watcher, waiting.info.backend_pid)
    holder.execute("commit")
    adopting.join(30)
    producing_thread.join(30)
    assert errors == []
    assert [data for _, data in everything(pgq_db, "one", "a")] in (["slow", "again"], ["slow", "told"])


def test_cooperative_consumers_keep_their_batches(pgq_db: Database, old: Conn) -> None:
    """As pgq_coop leaves them: subconsumers with the main consumer's sub_id, with a window or with nothing."""
    for name in ("m", "m.busy", "m.idle"):
        value(old, "select pgq.register_consumer('one', %s)", name)
    share = """
        update pgq.subscription set sub_last_tick = null, sub_id = (
            select sub_id from pgq.subscription join pgq.consumer on co_id = sub_consumer where co_name = 'm')
        where sub_consumer in (select co_id from pgq.consumer where co_name like 'm._%')
    """
    old.execute(share)
    ids = send(old, "one", "busy's")
    tick(old)
    hand = "select batch_id, prev_tick_id, cur_tick_id from pgq.next_batch_info('one', 'm')"
    batch, last, following = rows(old, hand)[0]
    old.execute(
        "update pgq.subscription set sub_batch = null, sub_next_tick = null, sub_last_tick = %s"
        " where sub_consumer = (select co_id from pgq.consumer where co_name = 'm')",
        [following],
    )
    old.execute(
        "update pgq.subscription set sub_batch = %s, sub_last_tick = %s, sub_next_tick = %s"
        " where sub_consumer = (select co_id from pgq.consumer where co_name = 'm.busy')",
        [batch, last, following],
    )
    send(old, "one", "anybody's")
    assert adopt(pgq_db.connect()).parts == ("coop",)
    conn = pgq_db.connect()
    assert value(conn, "select pgq_coop.next_batch('one', 'm', 'busy')") == batch
    assert rows(conn, "select ev_id, ev_data from pgq.get_batch_events(%s)", batch) == [(ids[0], "busy's")]
    assert value(conn, "select pgq_coop.next_batch('one', 'm', 'idle')") is None
    value(conn, "select pgq.ticker('one')")
    other = value(conn, "select pgq_coop.next_batch('one', 'm', 'idle')")
    assert column(conn, "select ev_data from pgq.get_batch_events(%s)", other) == ["anybody's"]
    assert [value(conn, "select pgq_coop.finish_batch(%s)", number) for number in (batch, other)] == [1, 1]


@pytest.mark.parametrize("function", ["jsontriga", "logutriga", "sqltriga"])
def test_triggers_are_made_anew_or_the_reason_is_told(pgq_db: Database, old: Conn, function: str) -> None:
    old.execute("create table mine (id int primary key, t text)")
    old.execute(
        f"create trigger capture after insert on mine for each row execute function pgq.{function}('one')".encode()
    )
    old.execute("alter table mine enable always trigger capture")
    old.execute("insert into mine values (1, 'a')")
    told, done = "", None
    try:
        done = adopt(pgq_db.connect())
    except PgqError as exc:
        told = exc.message
    if done is None:
        assert f"pgq.{function}()" in told
        assert value(old, "select pgq.version()") == "3.5"
        pytest.skip(f"this schema has no {function} yet")
    assert done.triggers == 1
    conn = pgq_db.connect()
    assert column(conn, "select tgenabled::text from pg_trigger where tgname = 'capture'") == ["A"]
    conn.execute("insert into mine values (2, 'b')")
    assert len(everything(pgq_db, "one", "a")) == 2


def test_remote_marks_are_taken_over(empty_db: Database) -> None:
    """Where there is pgq_ext alone, as in the database that a consumer writes to; and its tables as PgQ makes them."""
    conn = empty_db.connect()
    conn.execute("""
        create schema pgq_ext;
        create table pgq_ext.completed_tick (consumer_id text, subconsumer_id text, last_tick_id bigint);
        create table pgq_ext.completed_batch (consumer_id text, subconsumer_id text, last_batch_id bigint);
        create table pgq_ext.completed_event (consumer_id text, subconsumer_id text, batch_id bigint, event_id bigint);
        create table pgq_ext.partial_batch (consumer_id text, subconsumer_id text, cur_batch_id bigint);
        insert into pgq_ext.completed_tick values ('c', '', 7);
        insert into pgq_ext.completed_batch values ('c', '', 8), ('c', 's', 9);
        insert into pgq_ext.partial_batch values ('c', '', 9);
        insert into pgq_ext.completed_event values ('c', '', 9, 1), ('c', '', 9, 2);
    """)
    assert adopt(conn).parts == ("ext",)
    assert value(conn, "select pgq_ext.get_last_tick('c')") == 7
    marks: Any = ("select pgq_ext.is_batch_done('c', 8)", "select pgq_ext.is_batch_done('c', 's', 9)")
    assert [value(conn, query) for query in marks] == [True, True]
    assert column(conn, "select event_id from pgq_ext.completed_event order by 1") == [1, 2]
    assert column(conn, "select nspname::text from pg_namespace where nspname ~ '^pgq' order by 1") == [
        "pgq",
        "pgq_ext",
    ]
