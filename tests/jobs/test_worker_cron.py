"""Recurring jobs: time zones, both changes of the clocks, catching up, and once per due time.

Due times are walked through with the database's clock replaced by a sequence, as in tests/delays.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from psycopg import Connection

from pgq_py.errors import InvalidArgument
from pgq_py.jobs.recurring import Schedule, check_cron, due_times, fire_due, next_times
from pgq_py.jobs.spec import ScheduleSpec
from tests.clusters import Database
from tests.engine.support import Conn, column, value
from tests.jobs.working import make_queue, running, spec
from tests.waiting import wait_until

BERLIN = "Europe/Berlin"

CLOCK = """
create sequence test_clock minvalue 0;
create or replace function pgq._clock() returns timestamptz language plpgsql as
$$ begin return to_timestamp(pg_sequence_last_value('public.test_clock'::regclass)); end $$;
"""

SET_SCHEDULE = "select pgq.set_schedule(%s, 'jobs', 'job', %s, %s, i_catch_up => %s, i_max_catch_up => %s)"
FIRED = "select (ev_extra1::jsonb -> 'meta' ->> 'due')::timestamptz from pgq.job_template order by ev_id"


def local(times: list[datetime]) -> list[str]:
    return [f"{time:%d %H:%M%z}" for time in times]


@pytest.mark.parametrize(
    ("cron", "spring", "autumn"),
    [
        # in spring 02:00 to 03:00 is skipped, in autumn it comes twice
        ("30 2 * * *", ["28 03:00+0200", "29 02:30+0200"], ["31 02:30+0200", "01 02:30+0100"]),
        ("30 3 * * *", ["28 03:30+0200", "29 03:30+0200"], ["31 03:30+0100", "01 03:30+0100"]),
        ("0 * * * *", ["28 00:00+0100", "28 01:00+0100", "28 03:00+0200"], ["31 00:00+0200", "31 01:00+0200",
         "31 02:00+0200", "31 02:00+0100", "31 03:00+0100"]),
        ("*/30 2 * * *", ["29 02:00+0200", "29 02:30+0200"], ["31 02:00+0200", "31 02:30+0200", "31 02:00+0100",
         "31 02:30+0100", "01 02:00+0100"]),
    ],
)  # fmt: skip
def test_where_the_clocks_change(cron: str, spring: list[str], autumn: list[str]) -> None:
    before = datetime(2027, 3, 27, 22, 59, tzinfo=UTC), datetime(2027, 10, 30, 21, 59, tzinfo=UTC)
    for start, expected in zip(before, (spring, autumn), strict=True):
        assert local(list(islice(next_times(cron, BERLIN, start), len(expected)))) == expected


def test_the_second_of_two_equal_hours_repeats_nothing() -> None:
    """Started in it, a schedule does not go back into the first."""
    within = datetime(2027, 10, 31, 1, 10, tzinfo=UTC)
    assert local(list(islice(next_times("30 2 * * *", BERLIN, within), 1))) == ["01 02:30+0100"]
    assert local(list(islice(next_times("30 * * * *", BERLIN, within), 1))) == ["31 02:30+0100"]


@pytest.mark.parametrize("cron", ["", "* * * *", "60 * * * *", "0 0 30 2 *", "a b c d e", "* * * * * * *"])
def test_impossible_expressions(cron: str) -> None:
    with pytest.raises(InvalidArgument):
        check_cron(cron)


def test_impossible_time_zones() -> None:
    for tz in ("Mars/Olympus", "", "../etc/passwd"):
        with pytest.raises(InvalidArgument):
            check_cron("* * * * *", tz)


@pytest.mark.parametrize("catch_up", ["none", "latest", "all"])
@pytest.mark.parametrize("cron", ["* * * * * *", "* * * * *", "7 * * * *", "30 2 * * *", "0 5 1 1 *"])
def test_a_short_way_to_the_missed_times(cron: str, catch_up: str) -> None:
    """What due_times() finds from shortly before now is what it would find from the last due time on."""
    now = datetime(2027, 6, 1, 12, 0, 3, tzinfo=UTC)
    for rest in (timedelta(seconds=2), timedelta(minutes=90), timedelta(days=3), timedelta(days=800)):
        if cron.startswith("* * * * * *") and rest > timedelta(days=3):
            continue
        schedule = Schedule("s", "jobs", cron, BERLIN, catch_up, 5, now - rest, now)
        times: list[datetime] = []
        for time in next_times(cron, BERLIN, schedule.last_due):
            if time > now:
                break
            times.append(time)
        missed = times[-5:] if catch_up == "all" else times[-1:]
        if catch_up == "none" and missed and now - missed[0] > timedelta(seconds=10):
            assert due_times(schedule)[:2] == ([], missed[0])
        else:
            assert due_times(schedule)[:2] == (missed, None)


@pytest.fixture
def clock(db: Database) -> Callable[[datetime], None]:
    """Sets the database's clock."""
    make_queue(db)
    conn = db.connect()
    conn.execute(CLOCK)
    return lambda time: value(conn, "select setval('test_clock', %s)", int(time.timestamp()))


def walk(conn: Conn, clock: Callable[[datetime], None], start: datetime, hours: int) -> None:
    """Look at the schedules every ten minutes."""
    for minutes in range(0, hours * 60 + 1, 10):
        clock(start + timedelta(minutes=minutes))
        fire_due(conn)


@pytest.mark.parametrize("start", [datetime(2027, 3, 27, 20, tzinfo=UTC), datetime(2027, 10, 30, 20, tzinfo=UTC)])
def test_each_due_time_fires_once_over_a_change_of_clocks(
    db: Database, clock: Callable[[datetime], None], start: datetime
) -> None:
    """Scenario 28."""
    conn = db.connect()
    clock(start)
    for name, cron in (("daily", "30 2 * * *"), ("hourly", "0 * * * *")):
        value(conn, SET_SCHEDULE, name, cron, BERLIN, "latest", 100)
    conn.execute("update pgq.schedule set since = pgq._clock()")
    walk(conn, clock, start, 30)
    expected = [
        time.astimezone(UTC)
        for cron in ("30 2 * * *", "0 * * * *")
        for time in islice(next_times(cron, BERLIN, start), 40)
        if time <= start + timedelta(hours=30)
    ]
    assert sorted(column(conn, FIRED)) == sorted(expected)


@pytest.mark.parametrize(("catch_up", "fired"), [("none", []), ("latest", [59]), ("all", [57, 58, 59])])
def test_catching_up(db: Database, clock: Callable[[datetime], None], catch_up: str, fired: list[int]) -> None:
    conn = db.connect()
    start = datetime(2027, 6, 1, 12, tzinfo=UTC)
    clock(start)
    value(conn, SET_SCHEDULE, "s", "* * * * *", "UTC", catch_up, 3)
    conn.execute("update pgq.schedule set since = pgq._clock()")
    clock(start + timedelta(minutes=59, seconds=40))
    fire_due(conn)
    pause = fire_due(conn)
    assert column(conn, FIRED) == [start + timedelta(minutes=minute) for minute in fired]
    assert pause == 10.0
    clock(start + timedelta(minutes=60, seconds=1))
    fire_due(conn)
    assert column(conn, FIRED)[len(fired) :] == [start + timedelta(minutes=60)]


@pytest.mark.concurrency
def test_many_schedulers_fire_each_due_time_once(db: Database, clock: Callable[[datetime], None]) -> None:
    conn = db.connect()
    start = datetime(2027, 6, 1, 12, tzinfo=UTC)
    clock(start)
    value(conn, SET_SCHEDULE, "s", "* * * * *", "UTC", "all", 1000)
    conn.execute("update pgq.schedule set since = pgq._clock()")
    failures: list[BaseException] = []

    def fire(own: Connection[Any]) -> None:
        try:
            for _ in range(30):
                fire_due(own)
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=fire, args=(db.connect(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for minutes in range(0, 61, 5):
        clock(start + timedelta(minutes=minutes))
    for thread in threads:
        thread.join(60)
    fire_due(conn)
    assert failures == []
    assert sorted(column(conn, FIRED)) == [start + timedelta(minutes=minute) for minute in range(1, 61)]


def test_a_schedule_that_cannot_be_read_is_nobody_elses_problem(
    db: Database, clock: Callable[[datetime], None]
) -> None:
    conn = db.connect()
    start = datetime(2027, 6, 1, 12, tzinfo=UTC)
    clock(start)
    for name, cron in (("bad", "every monday please"), ("good", "* * * * *")):
        value(conn, SET_SCHEDULE, name, cron, "UTC", "latest", 1)
    conn.execute("update pgq.schedule set since = pgq._clock()")
    clock(start + timedelta(minutes=1))
    fire_due(conn, ["other"])
    assert column(conn, FIRED) == []
    fire_due(conn, ["jobs", "other"])
    assert column(conn, FIRED) == [start + timedelta(minutes=1)]


def test_workers_declare_and_fire_schedules(db: Database) -> None:
    make_queue(db)
    runs: list[str] = []

    def job(what: str) -> None:
        runs.append(what)

    recurring = spec(job)
    recurring.schedules.append(ScheduleSpec("each second", "* * * * * *", BERLIN, payload='{"what": "this"}'))
    with running(db, recurring), running(db, recurring):
        wait_until(lambda: len(runs) >= 3)
    assert set(runs) == {"this"}
    due = column(db.connect(), FIRED)
    assert len(due) == len(set(due))
