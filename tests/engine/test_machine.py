"""Random histories of one queue against an exact model: every batch, every position, every order of steps.

Hypothesis chooses what happens next: writers at three isolation levels with transactions that stay open, savepoints,
stale COPY targets, ticks, consumers that take, finish, receive, acknowledge in part, roll back, seek, come and go, and
steps of the queue's ring and of both global rings in between. Everything runs in one thread; what happens at the same
time is for the stress test.
"""

from __future__ import annotations

from itertools import count
from typing import Any, LiteralString

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from psycopg import sql

from tests.clusters import Database
from tests.engine.model import Cursor, Event, Model
from tests.engine.support import BEGIN, Conn, create, rows, step, value

CONSUMERS = ("a", "b", "c")
WRITERS = 3
NUMBERS = count(1)

consumers = st.sampled_from(CONSUMERS)
writers = st.integers(0, WRITERS - 1)
few = st.integers(1, 3)
at_most = st.sampled_from([1, 2, 3, 5, 100])


class Sessions:
    """Connections that all examples share: opening them would take longer than a history."""

    def __init__(self, db: Database) -> None:
        self.main = db.connect()
        self.writers = [db.connect() for _ in range(WRITERS)]

    def rollback(self) -> None:
        for conn in (self.main, *self.writers):
            conn.rollback()


class Queue(RuleBasedStateMachine):
    """One history. Rules that do not apply now do nothing: that is cheaper than filtering them out."""

    sessions: Sessions

    def __init__(self) -> None:
        super().__init__()
        self.conn = self.sessions.main
        self.queue = f"m{next(NUMBERS)}"
        self.model = Model()
        self.pending: list[list[Event] | None] = [None] * WRITERS
        self.stale = ""

    @initialize(slots=st.sampled_from([3, 3, 4]), names=st.sets(consumers))
    def start(self, slots: int, names: set[str]) -> None:
        create(self.conn, *sorted(names), queue=self.queue, slots=slots)
        self.model.cursors = {name: Cursor(1) for name in names}
        self.remember_the_table()

    def call(self, query: LiteralString, *params: Any) -> Any:
        """The one value of a call of a function with the queue as its first argument."""
        return value(self.conn, query, self.queue, *params)

    # -- writers ----------------------------------------------------------------------------------------------------

    @rule(who=writers, level=st.sampled_from(sorted(BEGIN)))
    def begin(self, who: int, level: str) -> None:
        if self.pending[who] is None:
            self.sessions.writers[who].execute(BEGIN[level])
            self.sessions.writers[who].execute("select count(*) from pgq.queue")
            self.pending[who] = []

    @rule(who=writers, number=few, batch=st.booleans())
    def write(self, who: int, number: int, batch: bool) -> None:
        if (pending := self.pending[who]) is not None:
            pending += self._send(self.sessions.writers[who], number, batch)

    @rule(who=writers, number=few)
    def write_and_roll_back_to_a_savepoint(self, who: int, number: int) -> None:
        if self.pending[who] is not None:
            conn = self.sessions.writers[who]
            conn.execute("savepoint s")
            self._send(conn, number, False)
            conn.execute("rollback to savepoint s")

    @rule()
    def remember_the_table(self) -> None:
        self.stale = self.call("select pgq.current_event_table(%s)")

    @rule(who=writers)
    def copy_into_the_remembered_table(self, who: int) -> None:
        """Taken or refused, and then the whole transaction with it."""
        if (pending := self.pending[who]) is None:
            return
        conn, data = self.sessions.writers[who], f"copied {next(NUMBERS)}"
        try:
            with conn.cursor().copy(sql.SQL("copy {} (ev_data) from stdin").format(_table(self.stale))) as copy:
                copy.write_row((data,))
        except psycopg.errors.SerializationFailure:
            conn.rollback()
            self.pending[who] = None
        else:
            ((event,),) = rows(conn, "select lastval()")
            pending.append((event, data))

    @rule(who=writers, how=st.sampled_from(["commit", "commit", "rollback"]))
    def end(self, who: int, how: str) -> None:
        if (pending := self.pending[who]) is not None:
            self.sessions.writers[who].execute("commit" if how == "commit" else "rollback")
            self.model.log += pending if how == "commit" else []
            self.pending[who] = None

    @rule(number=few)
    def write_at_once(self, number: int) -> None:
        self.model.log += self._send(self.conn, number, True)

    def _send(self, conn: Conn, number: int, batch: bool) -> list[Event]:
        data = [f"sent {next(NUMBERS)}" for _ in range(number)]
        if batch:
            ids = value(conn, "select pgq.send_batch(%s, 't', %s::text[])", self.queue, data)
        else:
            ids = [value(conn, "select pgq.insert_event(%s, 't', %s)", self.queue, item) for item in data]
        return list(zip(ids, data, strict=True))

    # -- ticks ------------------------------------------------------------------------------------------------------

    @rule()
    def tick(self) -> None:
        """Made when there is something new. A tick without is made once, to let go of a closed slot."""
        made = self.call("select pgq.ticker(%s)")
        assert made is not None or not self.model.fresh
        if made is not None:
            self.model.tick(made)
            assert self.call("select pgq.ticker(%s)") is None

    @rule()
    def force_tick(self) -> None:
        self.model.tick(self.call("select pgq.tick_now(%s)"))

    @rule()
    def tick_inside_a_transaction_that_writes(self) -> None:
        with self.conn.transaction():
            sent = self._send(self.conn, 1, False)
            self.model.tick(self.call("select pgq.tick_now(%s)"))
            self.model.log += sent + self._send(self.conn, 1, True)

    # -- rotation ---------------------------------------------------------------------------------------------------

    @rule(times=few)
    def rotate(self, times: int) -> None:
        for _ in range(times):
            self.call("select pgq.rotate_queue(%s)")

    @rule(ring=st.sampled_from(["tick_ring", "cursor_ring"]), times=few)
    def evacuate(self, ring: str, times: int) -> None:
        for _ in range(times):
            step(self.conn, ring)

    # -- consumers --------------------------------------------------------------------------------------------------

    @rule(name=consumers)
    def register(self, name: str) -> None:
        known = name in self.model.cursors
        assert self.call("select pgq.register_consumer(%s, %s)", name) == (not known)
        self.model.cursors.setdefault(name, Cursor(self.model.newest))

    @rule(name=consumers)
    def unregister(self, name: str) -> None:
        known = self.model.cursors.pop(name, None) is not None
        assert self.call("select pgq.unregister_consumer(%s, %s)", name) == known

    @rule(name=consumers, most=st.none() | at_most)
    def open(self, name: str, most: int | None) -> None:
        if cursor := self.model.cursors.get(name):
            self._open(name, cursor, most)

    @rule(name=consumers)
    def take_and_finish(self, name: str) -> None:
        if (cursor := self.model.cursors.get(name)) and self._open(name, cursor, None):
            assert value(self.conn, "select pgq.finish_batch(%s)", cursor.batch) == 1
            assert value(self.conn, "select pgq.finish_batch(%s)", cursor.batch) == 0
            cursor.finish()

    @rule(name=consumers)
    def take_and_roll_back(self, name: str) -> None:
        if not (cursor := self.model.cursors.get(name)):
            return
        with self.conn.transaction(force_rollback=True):
            changed = Cursor(**vars(cursor))
            if self._open(name, changed, None):
                value(self.conn, "select pgq.finish_batch(%s)", changed.batch)

    @rule(name=consumers, ticks=st.sampled_from([True, None, False]), peek=st.booleans(), ack=st.booleans())
    def open_with_events(self, name: str, ticks: bool | None, *, peek: bool, ack: bool) -> None:
        """With the queue's own function, which ticks first when it is told to, and may leave the batch unopened."""
        if not (cursor := self.model.cursors.get(name)):
            return
        own = self.call("select pgq.opener_function(%s)")
        found = rows(self.conn, f"select * from pgq.{own}(%s, 10000, 500, %s, %s)", name, ticks, peek)
        newest = self.call("select last_tick_id from pgq.get_queue_info(%s)")
        assert newest > self.model.newest or not (ticks and self.model.fresh)
        if newest > self.model.newest:
            assert ticks is not False
            self.model.tick(newest)
        *events, (batch, upto, last, *_) = found or [(None, None, None)]
        events = [(row[9], row[14]) for row in events]
        if batch is not None and batch < 0:
            assert peek
            if ack:
                assert (cursor.batch, cursor.last) == (None, last)
                self.model.open(cursor, batch, upto)
                assert events == self.model.left(cursor)
                assert self.call("select pgq.ack_peeked(%s, %s, %s, %s, %s)", name, batch, last, upto) == 1
                cursor.finish()
                return
            batch = self.call("select pgq.open_peeked(%s, %s, %s, %s, %s)", name, batch, last, upto)
        if self._opened(cursor, batch, last, upto):
            assert events == self.model.left(cursor)

    def _open(self, name: str, cursor: Cursor, most: int | None) -> bool:
        columns = "select batch_id, prev_tick_id, cur_tick_id from pgq."
        call = "next_batch_info(%s, %s)" if most is None else f"open_batch(%s, %s, {most})"
        ((batch, last, upto),) = rows(self.conn, columns + call, self.queue, name)
        return self._opened(cursor, batch, last, upto)

    def _opened(self, cursor: Cursor, batch: int | None, last: int | None, upto: int | None) -> bool:
        if batch is None:
            assert cursor.batch is None
            assert cursor.last == self.model.newest
            return False
        assert last == cursor.last
        if cursor.batch is None:
            assert upto is not None
            self.model.open(cursor, batch, upto)
        assert (batch, upto) == (cursor.batch, cursor.next)
        cursor.handed = None  # if receive() had handed out a part of it, now it is all of it
        assert rows(self.conn, "select ev_id, ev_data from pgq.get_batch_events(%s)", batch) == self.model.left(cursor)
        return True

    @rule(name=consumers, most=at_most)
    def receive(self, name: str, most: int) -> None:
        if not (cursor := self.model.cursors.get(name)):
            return
        query = "select batch_id, ev_id, ev_data from pgq.receive(%s, %s, %s)"
        found = rows(self.conn, query, self.queue, name, most)
        if not (cursor.batch and self.model.left(cursor)):
            self._passed(name, cursor)
        if found:
            assert {row[0] for row in found} == {cursor.batch}
            assert [tuple(row[1:]) for row in found] == self.model.left(cursor)[:most]
            cursor.handed = found[-1][1] if len(found) == most else None

    def _passed(self, name: str, cursor: Cursor) -> None:
        """There was nothing left in the open batch: whatever was passed held no events."""
        if cursor.batch:
            cursor.finish()
        waiting = self.model.waiting(cursor)
        _, last, upto, batch = self._cursors()[name]
        assert self.model.between(cursor.last, last) == []
        cursor.last = last
        if batch is None:
            assert (waiting, last) == ([], self.model.newest)
        else:
            self.model.open(cursor, batch, upto)
            assert self.model.left(cursor)

    @rule(name=consumers)
    def acknowledge(self, name: str) -> None:
        if (cursor := self.model.cursors.get(name)) and cursor.batch:
            done = self.call("select pgq.ack(%s, %s, %s)", name, cursor.batch)
            assert done == (cursor.handed is None)
            if done:
                cursor.finish()
            else:
                cursor.acked = cursor.handed or 0

    @rule(name=consumers, share=st.floats(0, 1))
    def acknowledge_a_part(self, name: str, share: float) -> None:
        if not ((cursor := self.model.cursors.get(name)) and cursor.batch):
            return
        allowed = [event for event, _ in self.model.left(cursor) if event <= (cursor.handed or event)]
        if allowed:
            upto = allowed[int(share * (len(allowed) - 1))]
            assert self.call("select pgq.ack(%s, %s, %s, %s)", name, cursor.batch, upto) == 0
            cursor.acked = upto

    @rule(name=consumers, where=st.sampled_from(["earliest", "latest"]))
    def seek_to_an_end(self, name: str, where: str) -> None:
        if name in self.model.cursors:
            tick = self.call("select pgq.seek(%s, %s, %s)", name, where)
            assert tick in self.model.ticks
            assert where == "earliest" or tick == self.model.newest
            self.model.cursors[name] = Cursor(tick)

    @rule(name=consumers, share=st.floats(0, 1), register=st.booleans())
    def seek_to_a_tick(self, name: str, share: float, register: bool) -> None:
        """It succeeds if the tick is kept and its events are there, and never otherwise."""
        tick = sorted(self.model.ticks)[int(share * (len(self.model.ticks) - 1))]
        call = "register_consumer_at" if register else "seek"
        there = self.call(
            "select exists (select from pgq.tick_ring join pgq.queue on queue_id = tick_queue"
            " where queue_name = %s and tick_id = %s and lo >= (pgq._cursor(-queue_id)).lo)",
            tick,
        )
        if name in self.model.cursors or register:
            sqlstate = None
            try:
                self.call(f"select pgq.{call}(%s, %s, %s::bigint)", name, tick)
                self.model.cursors[name] = Cursor(tick)
            except psycopg.Error as exc:
                sqlstate = exc.diag.sqlstate
            assert sqlstate == (None if there else "PQ008")

    # -- always -----------------------------------------------------------------------------------------------------

    def _cursors(self) -> dict[str, Any]:
        query = "select consumer_name, last_tick, next_tick, current_batch from pgq.get_consumer_info(%s)"
        return {row[0]: row for row in rows(self.conn, query, self.queue)}

    @invariant()
    def every_consumer_stands_where_it_should(self) -> None:
        expected = {name: (name, c.last, c.next, c.batch) for name, c in self.model.cursors.items()}
        assert self._cursors() == expected

    def teardown(self) -> None:
        """In the end everybody has got everything: nothing is waiting, and the slots come free."""
        try:
            self.sessions.rollback()
            if self.pending and self.stale:
                self.tick()
                for name, cursor in self.model.cursors.items():
                    while self._open(name, cursor, 100):
                        assert self.call("select pgq.ack(%s, %s, %s)", name, cursor.batch) in (0, 1)
                        self._reread(name, cursor)
        finally:
            self.sessions.rollback()
            rows(self.conn, "select pgq.drop_queue(%s, true)", self.queue)

    def _reread(self, name: str, cursor: Cursor) -> None:
        """ack() finishes the batch unless receive() had handed out a part of it; then finish it."""
        if self._cursors()[name][3] is not None:
            assert value(self.conn, "select pgq.finish_batch(%s)", cursor.batch) == 1
        cursor.finish()


def _table(name: str) -> sql.Identifier:
    return sql.Identifier(*name.split("."))


@pytest.mark.slow
def test_random_histories_agree_with_the_model(db: Database) -> None:
    class Here(Queue):
        sessions = Sessions(db)

    chosen = settings(
        max_examples=100,
        stateful_step_count=60,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Here, settings=chosen)
