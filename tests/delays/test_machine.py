"""Random histories of delayed events under a clock of our own: each is released once, in time, never before.

The clock is a sequence that the test sets, forwards and back: `pgq._clock()` is replaced by one that reads it. Writers
keep transactions open at three isolation levels and commit out of order; the delay ring and the tick ring, which holds
the marks of the releases, turn at random moments; the server is killed and recovers now and then.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any, LiteralString

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.clusters import Database
from tests.engine.support import BEGIN, Conn, rows, value

WRITERS = 3
NUMBERS = count(1)
CLOCK: LiteralString = """
create sequence test_clock minvalue 0;
select setval('test_clock', 1000);
create or replace function pgq._clock() returns timestamptz language plpgsql as
$$ begin return to_timestamp(pg_sequence_last_value('public.test_clock'::regclass)); end $$;
"""

writers = st.integers(0, WRITERS - 1)


@dataclass
class Delayed:
    """What the model knows of an event."""

    due: int
    committed: bool = False
    cancelled: bool = False
    released: bool = False


class Sessions:
    """The connections; made anew when the server has crashed."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.connect()

    def connect(self) -> None:
        self.main = self.db.connect()
        self.writers = [self.db.connect() for _ in range(WRITERS)]

    def crash(self) -> None:
        self.db.server.crash()
        self.db.server.start()
        for conn in (self.main, *self.writers):
            conn.close()
        self.connect()


class Delays(RuleBasedStateMachine):
    """One history of one queue. Rules that do not apply now do nothing."""

    sessions: Sessions

    def __init__(self) -> None:
        super().__init__()
        self.queue = f"d{next(NUMBERS)}"
        self.events: dict[int, Delayed] = {}
        self.pending: list[list[int] | None] = [None] * WRITERS
        self.now = self.mark = 1000

    @initialize()
    def start(self) -> None:
        self.set_clock(1000)
        assert self.call("select pgq.create_queue(%s)") == 1
        self.number = self.call("select queue_id from pgq.queue where queue_name = %s")

    def call(self, query: LiteralString, *params: Any, conn: Conn | None = None) -> Any:
        return value(conn or self.sessions.main, query, self.queue, *params)

    def set_clock(self, now: int) -> None:
        self.now = now
        value(self.sessions.main, "select setval('test_clock', %s)", now)

    # -- writers ----------------------------------------------------------------------------------------------------

    @rule(who=writers, level=st.sampled_from(sorted(BEGIN)))
    def begin(self, who: int, level: str) -> None:
        if self.pending[who] is None:
            self.sessions.writers[who].execute(BEGIN[level])
            self.sessions.writers[who].execute("select count(*) from pgq.queue")
            self.pending[who] = []

    @rule(who=writers, after=st.integers(1, 20))
    def delay(self, who: int, after: int) -> None:
        self._send(who, self.now + after)

    def _send(self, who: int, due: int) -> None:
        """Sent in the open transaction of this writer, or in one of its own."""
        conn, pending = self.sessions.writers[who], self.pending[who]
        try:
            event = self.call("select pgq.insert_event_at(%s, to_timestamp(%s), 'd', 'x')", due, conn=conn)
        except psycopg.errors.SerializationFailure:
            conn.rollback()
            self.pending[who] = None
            return
        self.events[event] = Delayed(due, committed=pending is None)
        if pending is not None:
            pending.append(event)

    @rule(who=writers, commit=st.booleans())
    def end(self, who: int, commit: bool) -> None:
        pending, self.pending[who] = self.pending[who], None
        if pending is not None:
            self.sessions.writers[who].execute("commit" if commit else "rollback")
            for event in pending:
                self.events[event].committed = commit

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """Whether it was in time is for the queue to say, and it must say what the model says."""
        if not self.events:
            return
        event = data.draw(st.sampled_from(sorted(self.events)))
        known = self.events[event]
        waits = known.committed and not known.released and not known.cancelled
        assert self.call("select pgq.cancel_event(%s, %s)", event) == int(waits)
        known.cancelled = known.cancelled or waits

    # -- time and release -------------------------------------------------------------------------------------------

    @rule(step=st.integers(-3, 15))
    def pass_time(self, step: int) -> None:
        self.set_clock(self.now + step)

    @rule()
    def release(self) -> None:
        """All that has committed and is due, and nothing else, comes with this step."""
        self.mark = max(self.mark, self.now)
        due = [
            event
            for event, known in self.events.items()
            if known.committed and known.due <= self.mark and not known.cancelled and not known.released
        ]
        released = self.call("select coalesce(pgq.release(%s), 0)")
        assert released == len(due), (released, due)
        for event in due:
            self.events[event].released = True

    @rule()
    def look_ahead(self) -> None:
        """The next release is announced for no later than the earliest due time."""
        waiting = [e.due for e in self.events.values() if e.committed and not e.released and not e.cancelled]
        announced = rows(self.sessions.main, "select wait_ms from pgq.releases_due(array[%s])", self.queue)
        if waiting:
            assert announced
            assert announced[0][0] <= max(0, (min(waiting) - self.now)) * 1000

    # -- maintenance ------------------------------------------------------------------------------------------------

    @rule(ring=st.sampled_from(["delay", "delay", "tick_ring", "cursor_ring"]), steps=st.integers(1, 4))
    def turn(self, ring: str, steps: int) -> None:
        name = f"delay_{self.number}" if ring == "delay" else ring
        for _ in range(steps):
            value(self.sessions.main, "select pgq._ring_step(%s, true)", name)

    @rule(chance=st.integers(0, 40))
    def crash(self, chance: int) -> None:
        """Open transactions are gone with the server; what was committed is not."""
        if chance == 0:
            self.sessions.crash()
            self.pending = [None] * WRITERS

    # -- what holds at every moment ----------------------------------------------------------------------------------

    @invariant()
    def the_log_has_what_was_released_and_each_once(self) -> None:
        if hasattr(self, "number"):
            query: LiteralString = "select ev_id from pgq.event_template where tableoid::regclass::text like %s"
            found = [event for (event,) in rows(self.sessions.main, query, f"pgq.event\\_{self.number}\\_%")]
            assert sorted(found) == sorted(event for event, known in self.events.items() if known.released)

    def teardown(self) -> None:
        """In the end all that was committed is released."""
        for who in range(WRITERS):
            self.end(who, True)
        if hasattr(self, "number"):
            self.set_clock(self.now + 100)
            self.release()
            left = [e for e in self.events.values() if e.committed and not e.cancelled and not e.released]
            assert left == []
            self.call("select pgq.drop_queue(%s, true)")


@pytest.mark.slow
@pytest.mark.newest
def test_random_histories_of_delays(private_db: Database) -> None:
    with private_db.connect() as conn:
        conn.execute(CLOCK)

    class Here(Delays):
        sessions = Sessions(private_db)

    chosen = settings(
        max_examples=120,
        stateful_step_count=50,
        deadline=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Here, settings=chosen)
