"""The function that claims what has just come: what it does itself, and what it leaves to claim()."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import psycopg
import pytest

from tests.clusters import Database
from tests.engine.support import Conn, begin, commit, in_background, refused, rollback, rows, step, tick, value
from tests.lanes.support import (
    QUEUE,
    Claim,
    beat,
    cancel,
    claim,
    claimed,
    complete,
    create,
    drain,
    enqueue,
    enqueue_many,
    fail,
    rotate_events,
    set_clock,
    state,
    types,
    watch,
)

NOTHING = Claim(None, 0, [])
COLUMNS = "job_id, type, payload, priority, attempt, max_attempts, losses, created_at, key, options"


class Taken(NamedTuple):
    """`jobs` are the columns of claimed(); None when they are to be fetched. `dry`: nothing waits up to that tick."""

    claim: Claim
    jobs: list[tuple[Any, ...]] | None
    dry: int | None = None


@pytest.fixture
def conn(db: Database) -> Conn:
    conn = db.connect()
    create(conn)
    enqueue(conn, "first", priority=100)
    assert take(conn).jobs is None  # claim() brings the lane to the newest tick
    assert drain(conn) == []
    return conn


def take(
    conn: Conn, n: int = 10, worker: str | None = None, *, lane: int = 100, idle: bool = True, dry: int | None = None
) -> Taken:
    own = value(conn, "select pgq.taker_function(%s)", QUEUE)
    call = f"select claim_id, token, dry, {COLUMNS} from pgq.{own}(%s, %s, %s, %s, %s)"
    found = rows(conn, call, worker, n, lane, idle, dry)
    ((number, token, dry),) = {row[:3] for row in found}
    if number is None:
        assert len(found) == 1
        return Taken(NOTHING, [], dry)
    assert dry is None or dry == newest(conn)
    jobs = [row[3:] for row in found]
    return Taken(Claim(number, token, [row[0] for row in jobs]), None if jobs[0][0] is None else jobs, dry)


def newest(conn: Conn) -> int:
    return int(value(conn, "select last_tick_id from pgq.get_queue_info(%s)", QUEUE))


def test_what_has_just_come_comes_with_its_claim(conn: Conn) -> None:
    assert take(conn) == Taken(NOTHING, [], newest(conn))
    ids = enqueue(conn, "a", "b", key=None)
    c, jobs, _ = take(conn)
    assert jobs == rows(conn, f"select {COLUMNS} from pgq.claimed(%s, %s)", c.id, c.token)
    assert c.jobs == ids
    assert [state(conn, job) for job in ids] == ["running"] * 2
    assert take(conn).claim.id is None
    assert complete(conn, c) == 2


def test_one_after_the_other(conn: Conn) -> None:
    """Each finds the lane as the one before has left it."""
    for data in "abcdef":
        enqueue(conn, data)
        c, jobs, _ = take(conn)
        assert [job[1] for job in jobs or []] == [data]
        complete(conn, c)


def test_it_claims_what_others_have_ticked(conn: Conn) -> None:
    for data in "abc":
        enqueue(conn, data)
        tick(conn, QUEUE)
    upto = newest(conn)
    assert [job[1] for job in take(conn).jobs or []] == ["a", "b", "c"]
    assert newest(conn) == upto
    conn.execute("select pgq.pause_queue(%s)", (QUEUE,))
    enqueue(conn, "d")
    value(conn, "select pgq.force_tick(%s)", QUEUE)
    assert take(conn) == Taken(NOTHING, [])


def test_whom_it_tells_that_nothing_is_left(conn: Conn) -> None:
    enqueue(conn, "a")
    assert take(conn).dry is None  # nobody knew before
    dry = take(conn).dry
    assert dry == newest(conn)
    enqueue(conn, "b")
    assert take(conn, dry=dry).dry == dry + 1  # and it is known now
    enqueue(conn, "c", "d")
    assert take(conn, 1, dry=dry + 1).dry is None
    assert drain(conn) == ["d"]
    dry = take(conn).dry
    enqueue(conn, "high", priority=150)
    enqueue(conn, "normal")
    enqueue(conn, "low", priority=30)
    assert [take(conn, dry=dry).dry for _ in range(3)] == [None] * 3
    dry = take(conn, dry=dry).dry
    assert dry == newest(conn)
    value(conn, "select pgq.force_tick(%s)", QUEUE)
    assert take(conn, dry=dry) == Taken(NOTHING, [], newest(conn))
    assert take(conn, idle=False).dry == newest(conn)
    enqueue(conn, "e")
    tick(conn, QUEUE)
    conn.execute("select pgq.pause_queue(%s)", (QUEUE,))
    assert take(conn, dry=dry) == Taken(NOTHING, [])


def test_what_was_in_flight_at_the_last_tick_comes_as_soon_as_it_is_committed(db: Database, conn: Conn) -> None:
    """Its id was drawn before that tick, so the sequence says nothing of it."""
    late = db.connect()
    begin(late)
    enqueue(late, "late")
    enqueue(conn, "early")
    take(conn)
    dry = take(conn).dry
    assert take(conn, dry=dry) == Taken(NOTHING, [], dry)
    commit(late)
    assert [job[1] for job in take(conn, dry=dry).jobs or []] == ["late"]
    assert newest(conn) == (dry or 0) + 1


def test_jobs_that_run_beside_others_in_flight_are_taken_at_once(db: Database, conn: Conn) -> None:
    dry = take(conn).dry
    others = [db.connect() for _ in range(4)]
    for nth, other in enumerate(others):
        begin(other)
        enqueue(other, f"other {nth}")
        enqueue(conn, f"{nth}")
    c, jobs, dry = take(conn, dry=dry)
    assert [job[1] for job in jobs or []] == list("0123")
    commit(others[2])
    rollback(others[1])
    enqueue(conn, "4")
    assert [job[1] for job in take(conn, dry=dry).jobs or []] == ["other 2", "4"]
    complete(conn, c)


def test_a_look_that_finds_nothing_writes_nothing(db: Database, conn: Conn) -> None:
    """Neither for ids that were drawn in vain, nor for what runs or has failed since the newest tick."""
    other = db.connect()
    begin(other)
    enqueue(other, "never")
    enqueue(conn, "a")
    take(conn)
    dry = take(conn).dry
    for _ in range(2):
        begin(conn)
        assert take(conn, dry=dry) == Taken(NOTHING, [], dry)
        assert value(conn, "select pg_current_xact_id_if_assigned() is null")
        commit(conn)
        rollback(other)
    assert newest(conn) == dry


def test_a_worker_that_is_never_idle_keeps_to_the_short_way(conn: Conn) -> None:
    """One that always has something in hand: claim() says for it, too, that nothing waits above."""
    enqueue_many(conn, 100)
    assert take(conn, 100, idle=False).jobs is None
    dry = take(conn, idle=False).dry
    assert dry == newest(conn)
    enqueue(conn, "a")
    c, jobs, dry = take(conn, idle=False, dry=dry)
    assert [job[1] for job in jobs or []] == ["a"]
    assert dry == newest(conn)
    assert take(conn, idle=False, dry=dry).dry == dry
    complete(conn, c)


def test_what_has_to_run_alone_waits_for_an_idle_worker(conn: Conn) -> None:
    """And while it does, nobody is told that nothing waits."""
    set_clock(conn)
    beat(conn, "w")
    enqueue(conn, "alone")
    assert take(conn, worker="w").claim.id is not None
    assert watch(conn, 30) == 1
    for nth in range(3):
        enqueue(conn, f"{nth}")
        c, _, dry = take(conn, idle=False)
        assert (types(conn, c), dry) == ([f"{nth}"], None)
        assert take(conn, idle=False).dry is None
    assert types(conn, take(conn).claim) == ["alone"]


def test_a_wrong_guess_of_the_priority_costs_time_alone(conn: Conn) -> None:
    for lane in (30, 150, 100, 7, 0, -1):
        enqueue(conn, "a", priority=150)
        enqueue(conn, "b", priority=30)
        assert [types(conn, take(conn, lane=lane).claim) for _ in range(2)] == [["a"], ["b"]]


@pytest.mark.parametrize("seed", range(4))
def test_nothing_waits_up_to_the_tick_that_it_tells(conn: Conn, seed: int) -> None:
    chance = random.Random(seed)
    waiting: dict[int, int] = {}  # newest tick when it was enqueued; it is not in that one
    dry, told = None, 0
    for _ in range(250):
        match chance.randrange(8):
            case 0 | 1 | 2:
                upto = newest(conn)
                priority = chance.choice((30, 100, 100, 100, 150))
                waiting |= dict.fromkeys(enqueue(conn, *"xy"[: chance.randint(1, 2)], priority=priority), upto)
            case 3:
                tick(conn, QUEUE)
            case 4:
                c = claim(conn, chance.choice((1, 100)))
                if c.id is not None:
                    complete(conn, c)
                waiting = {job: upto for job, upto in waiting.items() if job not in c.jobs}
            case _:
                hints: dict[str, Any] = {"lane": chance.choice((30, 100, 100)), "idle": chance.random() < 0.8}
                c, jobs, dry_now = take(conn, chance.choice((1, 3, 100)), dry=dry, **hints)
                taken = {job[0] for job in claimed(conn, c)} if jobs is None else set(c.jobs)
                waiting = {job: upto for job, upto in waiting.items() if job not in taken}
                if c.id is not None:
                    complete(conn, c)
                if dry_now is not None:
                    dry, told = dry_now, told + 1
                    assert all(upto >= dry for upto in waiting.values())
    assert told > 5
    left: list[int] = []
    while (c := claim(conn, 100)).id is not None:
        left += c.jobs
    assert sorted(left) == sorted(waiting)


def test_without_being_idle_it_takes_no_job_that_lost_a_worker(conn: Conn) -> None:
    enqueue(conn, "a")
    assert types(conn, take(conn, idle=False).claim) == ["a"]
    set_clock(conn)
    beat(conn, "w")
    enqueue(conn, "b")
    assert take(conn, worker="w").claim.id is not None
    assert watch(conn, 30) == 1
    enqueue(conn, "c")
    assert types(conn, take(conn, idle=False).claim) == ["c"]
    assert types(conn, take(conn).claim) == ["b"]


def test_more_than_it_asks_for_is_left(conn: Conn) -> None:
    enqueue(conn, *"abcde")
    assert [job[1] for job in take(conn, 2).jobs or []] == ["a", "b"]
    assert drain(conn, 2) == ["c", "d", "e"]


def test_whom_it_tells_of_its_tick(db: Database, conn: Conn) -> None:
    """Whoever may find something by it: workers when jobs are left or may be, and fan-out consumers."""
    listener = db.connect()
    listener.execute(f"listen {value(conn, 'select pgq.tick_channel(%s)', QUEUE)}".encode())

    def told() -> bool:
        return bool(list(listener.notifies(timeout=0.1)))

    def after(*taken: Taken) -> bool:
        assert all(t.claim.id for t in taken)
        return told()

    enqueue(conn, "a", "b")
    assert not after(take(conn, 3))
    enqueue(conn, "a", "b")
    assert after(take(conn, 2))
    enqueue(conn, "a", "b")
    assert after(take(conn, 1))
    assert drain(conn) == ["b"]
    take(conn)
    enqueue(conn, "high", priority=150)
    enqueue(conn, "normal")
    assert after(take(conn, lane=150))
    assert drain(conn) == ["normal"]
    take(conn)
    enqueue(conn, "low", priority=30)
    assert after(take(conn))  # the guess was wrong: claim() has it
    told()
    value(conn, "select pgq.register_consumer(%s, 'audit')", QUEUE)
    take(conn)
    told()
    enqueue(conn, "a")
    assert after(take(conn))


def test_more_than_a_few_are_left_to_claim(conn: Conn) -> None:
    enqueue_many(conn, 100)
    c, jobs, _ = take(conn, 100)
    assert jobs is None
    assert len(claimed(conn, c)) == 100


def test_the_highest_priority_comes_first(conn: Conn) -> None:
    enqueue(conn, "low", priority=30)
    enqueue(conn, "normal")
    enqueue(conn, "high", priority=150)
    got = []
    while (c := take(conn).claim).id is not None:
        got += types(conn, c)
    assert got == ["high", "normal", "low"]


@pytest.mark.parametrize("first", [30, 100, 150])
@pytest.mark.parametrize("second", [30, 100, 150])
def test_what_waited_above_is_not_overtaken(conn: Conn, first: int, second: int) -> None:
    """A tick of somebody else shows the first, and the taker's own the second."""
    enqueue(conn, "first", priority=first)
    tick(conn, QUEUE)
    enqueue(conn, "second", priority=second)
    expected = ["first", "second"] if first >= second else ["second", "first"]
    assert [types(conn, take(conn, 1).claim) for _ in range(2)] == [[name] for name in expected]


def test_keys_options_and_attempts(conn: Conn) -> None:
    enqueue(conn, "a", key="k")
    conn.execute("select pgq.enqueue(%s, 'b', '{}', options => '{\"max_attempts\": 7}')", (QUEUE,))
    c, jobs, _ = take(conn)
    assert [(job[1], job[5], job[8], job[9]) for job in jobs or []] == [
        ("a", jobs and jobs[0][5], "k", {}),
        ("b", 7, None, {"max_attempts": 7}),
    ]
    assert jobs == rows(conn, f"select {COLUMNS} from pgq.claimed(%s, %s)", c.id, c.token)
    fail(conn, c, c.jobs[0], retry_in="0")
    complete(conn, c)
    assert not value(conn, "select created from pgq.enqueue(%s, 'c', key := 'k')", QUEUE)
    (again,) = take(conn).jobs or [(None,) * 10]
    assert again[:2] + again[4:5] == (c.jobs[0], "a", 2)


def test_cancelled_held_and_solo_jobs_are_left_to_claim(conn: Conn) -> None:
    a, b = enqueue(conn, *"ab")
    cancel(conn, a)
    c, jobs, _ = take(conn)
    assert (jobs, types(conn, c)) == (None, ["b"])
    complete(conn, c)
    assert state(conn, b) == "completed"
    enqueue(conn, "held")
    rotate_events(conn)
    enqueue(conn, "new")
    assert drain(conn) == ["held", "new"]


def test_a_transaction_that_commits_late_loses_nothing(db: Database, conn: Conn) -> None:
    late = db.connect()
    begin(late)
    enqueue(late, "late")
    for data in "ab":
        enqueue(conn, data)
        assert types(conn, take(conn).claim) == [data]
    commit(late)
    enqueue(conn, "c")
    assert sorted(types(conn, take(conn).claim)) == ["c", "late"]


def test_locked_ticks_and_lanes_are_left_to_claim(db: Database, conn: Conn) -> None:
    other = db.connect()
    enqueue(conn, "a")
    begin(other)
    value(other, "select pgq.ticker(%s)", QUEUE)
    assert take(conn).claim.id is None
    assert take(conn, dry=newest(conn)) == Taken(NOTHING, [], newest(conn))
    commit(other)
    enqueue(conn, "b")
    begin(other)
    other.execute("select from pgq.lane where lane = 100 for update")
    waiting = in_background(lambda: take(conn))
    rollback(other)
    assert types(conn, waiting.result(30).claim)[:1] == ["a"]


def test_a_rolled_back_claim_is_made_again(conn: Conn) -> None:
    enqueue(conn, "a")
    begin(conn)
    assert take(conn).jobs
    rollback(conn)
    assert types(conn, take(conn).claim) == ["a"]


def test_who_may_and_who_is_dead(conn: Conn) -> None:
    beat(conn, "w")
    enqueue(conn, "a")
    c = take(conn, worker="w").claim
    assert rows(conn, "select worker, claims from pgq.worker_info") == [("w", 1)]
    complete(conn, c)
    value(conn, "select pgq.end_worker('w')")
    enqueue(conn, "b")
    with refused("PQ022"):
        take(conn, worker="w")
    with refused("PQ006"):
        take(conn, 0)
    conn.execute("select pgq.pause_queue(%s)", (QUEUE,))
    assert take(conn).claim.id is None


def test_settings_of_a_ticker_are_kept_to(conn: Conn) -> None:
    conn.execute("select pgq.set_queue_config(%s, 'ticker_max_count', '3')", (QUEUE,))
    conn.execute("select pgq.set_queue_config(%s, 'ticker_max_lag', '1 hour')", (QUEUE,))
    enqueue(conn, "a")
    assert take(conn).claim.id is None
    enqueue(conn, *"bc")
    assert types(conn, take(conn).claim) == ["a", "b", "c"]


def test_many_takers_beside_rotation(db: Database, conn: Conn) -> None:
    """Each job is claimed once while all rings turn; jobs come one by one, as takers like it."""
    over = threading.Event()
    taken: list[int] = []

    def rotate() -> None:
        own = db.connect()
        while not over.is_set():
            for ring in ("claim_ring", "tick_ring", "event_1"):
                step(own, ring)

    working = [in_background(partial(take_all, db.connect(), over, taken)) for _ in range(3)]
    working.append(in_background(rotate))
    ids: list[int] = []
    for number in range(400):
        ids += enqueue(conn, f"{number}", priority=(30, 100, 100, 100, 150)[number % 5])
    over.set()
    for work in working:
        work.result(60)
    while (c := claim(conn, 100)).id is not None:
        taken += c.jobs
        complete(conn, c)
    assert sorted(taken) == sorted(ids)


def take_all(conn: Conn, over: threading.Event, taken: list[int]) -> None:
    """Until it is over. What was refused because a ring rotated was not done."""
    while not over.is_set():
        with suppress(psycopg.errors.SerializationFailure):
            c, jobs, _ = take(conn, 3)
            if c.id is not None:
                taken.extend(c.jobs if jobs is not None else [job[0] for job in claimed(conn, c)])
                complete(conn, c)
