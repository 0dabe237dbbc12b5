"""The ticker's decisions, with made-up times."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pgq_py.ticker.due import RETRY_AFTER, Mark, Pace, Watch, worth_trying


def test_a_queue_that_failed_is_left_alone_for_a_while() -> None:
    failed = {"broken": 10.0}
    assert worth_trying(["a", "broken"], failed, 10.0 + RETRY_AFTER / 2) == ["a"]
    assert worth_trying(["a", "broken"], failed, 10.0 + RETRY_AFTER) == ["a", "broken"]


def mark(seq: int, xmin: int, xmax: int, queue: str = "q") -> Mark:
    return Mark(queue, 1, seq, xmin, xmax)


def test_an_idle_queue_is_probed_until_it_is_known_to_be_quiet_and_then_never() -> None:
    watch = Watch()
    assert watch.look([mark(7, 100, 100)]) == ["q"]
    assert watch.look([mark(7, 100, 100)]) == ["q"]
    assert watch.look([mark(7, 500, 600)]) == []
    assert watch.names == {1: "q"}


def test_a_queue_is_probed_while_a_transaction_runs_that_may_have_inserted() -> None:
    watch = Watch()
    watch.look([mark(1, 50, 100)])
    for _ in range(5):
        assert watch.look([mark(1, 50, 200)]) == ["q"]
    assert watch.look([mark(1, 100, 200)]) == ["q"]
    assert watch.look([mark(1, 100, 200)]) == []


def test_a_dropped_queue_is_forgotten() -> None:
    watch = Watch()
    watch.look([mark(1, 1, 1)])
    watch.look([])
    assert watch.names == {}
    assert watch.look([mark(1, 1, 1)]) == ["q"]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=60))
def test_what_becomes_visible_is_probed_afterwards(steps: list[tuple[bool, int]]) -> None:
    """A transaction takes an id (moving the sequence), and ends later: some look after its end probes the queue."""
    watch, seq, next_xid = Watch(), 0, 10
    running: list[int] = []
    unseen = False
    for starts, number in steps:
        if starts:
            seq, next_xid = seq + 1, next_xid + 1
            running.append(next_xid - 1)
        elif running:
            del running[number % len(running)]
            unseen = True
        probed = watch.look([mark(seq, min(running, default=next_xid), next_xid)])
        assert probed or not unseen
        unseen = False


def test_a_rush_is_looked_at_and_a_trickle_wakes() -> None:
    pace = Pace(lively_rate=20, busy_rate=100)
    now = 0.0
    for _ in range(100):
        now += 0.02  # 50 a second
        pace.ticked(now)
        assert not pace.decide(now)
    for _ in range(100):
        now += 0.005  # 200 a second
        pace.ticked(now)
        pace.decide(now)
    assert pace.busy
    for _ in range(100):
        now += 0.014  # 70 a second: too few to begin with, enough to go on
        pace.ticked(now)
        assert not pace.decide(now)
    assert pace.busy
    assert pace.decide(now + 1)
    assert not pace.busy


def test_producers_that_queue_up_to_notify_are_let_go() -> None:
    """And asked to notify again when only half as many are left, which did not queue up."""
    pace, now = Pace(lively_rate=100, busy_rate=1000), 0.0

    def second(rate: int, committing: tuple[int, ...]) -> None:
        nonlocal now
        for nth in range(rate):
            now += 1 / rate
            pace.woken(now, 1)
            if pace.wonders and nth % 8 == 0:
                pace.committing(committing[nth // 8 % len(committing)])
            pace.decide(now)

    def state() -> tuple[bool, bool]:
        return pace.wonders, pace.busy

    second(80, (3,))
    assert state() == (False, False)
    second(400, (0, 1, 1, 2))
    assert state() == (True, False)
    second(400, (1, 2))
    assert state() == (False, True)
    second(240, (1,))
    assert state() == (False, True)
    second(150, (1,))
    assert state() == (True, False)
    second(400, (1,))
    assert state() == (True, False)
    for nth in range(15):  # and try again at the same rate, after a while
        second(400, (2,) if nth == 0 else (1,))
        assert pace.busy == (nth < 10)


def test_notifications_count_as_a_rush() -> None:
    """Producers that queue up to notify keep the ticker from ticking; and events for later bring no tick at all."""
    pace = Pace(lively_rate=20, busy_rate=100)
    pace.woken(0.0, 10)
    assert not pace.decide(0.0)
    pace.woken(0.1, 20)
    assert pace.decide(0.1)
    assert pace.busy
    assert pace.decide(0.5)
    assert not pace.busy


def test_what_consumers_tick_keeps_a_rush_going_and_starts_none() -> None:
    """Events of one transaction count once: they would notify once."""
    pace = Pace(lively_rate=20, busy_rate=100)
    for nth in range(30):
        pace.seen(nth / 50, nth * 20, nth * 20)
        assert not pace.decide(nth / 50)
    pace.woken(0.6, 40)
    assert pace.decide(0.6)
    for nth in range(30, 90):
        pace.seen(nth / 50, nth * 20, nth * 20)
        assert not pace.decide(nth / 50)
    events = 90 * 20
    for nth in range(90, 130):
        pace.seen(nth / 50, events + nth * 1000, 90 * 20 + nth // 10)
        pace.decide(nth / 50)
    assert not pace.busy
