"""Recurring jobs: which times are due, by cron and time zone, and firing them once each.

The database decides, by its own clock, and takes each due time once, in order; here it is only computed which times
there are. So any number of workers and tickers may fire the same schedules, and none of their clocks matters.

Cron is Debian's, as cronsim reads it: five fields, or six with seconds first. **Where clocks change:** what has a fixed
minute and hour runs once a day. A time that is skipped in spring comes right after the gap, one that comes twice in
autumn runs the first time. What has a `*` in its minute or hour, or seconds, follows the clock on the wall: as often as
that shows such a time.

**Catching up** with due times that nobody was there for: `none` fires a time only within ten seconds of it, `latest`
fires the last one that was missed, `all` fires the last `max_catch_up` of them, oldest first.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from psycopg import Connection

from pgq_py.client._sync import calls
from pgq_py.errors import InvalidArgument
from pgq_py.jobs import statements

__all__ = ["Schedule", "check_cron", "due_times", "fire_due", "next_times"]

logger = logging.getLogger("pgq_py.jobs")

ON_TIME = timedelta(seconds=10)
"""A due time younger than this was not missed."""

LONGEST_PAUSE = 10.0
"""Seconds after which schedules are looked at again, for new ones."""

COLLISION_PAUSE = 0.1
"""Seconds to leave a schedule to the one who is firing it."""

ROUND = 100
"""Due times of one schedule that are fired in one round, so that a heartbeat does not wait."""


class Schedule(NamedTuple):
    """A recurring job as the database has it. `now` is the database's clock."""

    name: str
    queue: str
    cron: str
    tz: str
    catch_up: str
    max_catch_up: int
    last_due: datetime
    now: datetime


def check_cron(cron: str, tz: str = "UTC") -> None:
    """Raise InvalidArgument for an expression that has no next time, or an unknown time zone."""
    if next(next_times(cron, tz, datetime.now(UTC)), None) is None:
        raise InvalidArgument(f"the cron expression {cron!r} is never due", advice="Nothing was changed.")


def next_times(cron: str, tz: str, after: datetime) -> Iterator[datetime]:
    """The due times behind `after`, rising, without end, in the time zone. Raises InvalidArgument."""
    zone = _zone(tz)
    try:
        times = CronSim(cron, after.astimezone(zone))
        last = after
        for due in times:
            # A schedule of fixed hours forgets which of two equal hours it started in, and begins in the first.
            if due.astimezone(UTC) > last.astimezone(UTC):
                yield due
                last = due
    except CronSimError as exc:
        raise InvalidArgument(
            f"not a cron expression: {cron!r} ({exc})",
            advice="Nothing was changed. Five fields (minute, hour, day, month, weekday), or six with seconds first.",
        ) from None


def due_times(schedule: Schedule) -> tuple[list[datetime], datetime | None, datetime]:
    """Which times of a schedule to fire, oldest first; up to which one to mark as done without firing; and the next."""
    most = schedule.max_catch_up if schedule.catch_up == "all" else 1
    missed: deque[datetime] = deque(maxlen=most)
    upcoming = schedule.now + timedelta(seconds=LONGEST_PAUSE)
    for due in next_times(schedule.cron, schedule.tz, _start(schedule, most)):
        if due > schedule.now:
            upcoming = due
            break
        missed.append(due.astimezone(UTC))
    if schedule.catch_up == "none" and missed and schedule.now - missed[0] > ON_TIME:
        return [], missed[0], upcoming
    return list(missed), None, upcoming


def fire_due(conn: Connection[Any], queues: Collection[str] | None = None) -> float:
    """Fire what is due of the schedules of these queues, or of all (None). Returns the seconds until the next look.

    A schedule that cannot be read is logged, and is nobody else's problem.
    """
    pause = LONGEST_PAUSE
    for row in calls.rows(conn, statements.SCHEDULES):
        schedule = Schedule(*row)
        if queues is not None and schedule.queue not in queues:
            continue
        try:
            pause = min(pause, _fire(conn, schedule))
        except InvalidArgument as exc:
            logger.error("schedule %s: %s", schedule.name, exc)
    return pause


def _fire(conn: Connection[Any], schedule: Schedule) -> float:
    due, skipped, upcoming = due_times(schedule)
    if skipped is not None:
        calls.value(conn, statements.FIRE_SCHEDULE, [schedule.name, skipped, False])
    for time in due[:ROUND]:
        if calls.value(conn, statements.FIRE_SCHEDULE, [schedule.name, time, True]) is None:
            # Somebody else is at it, and may not have got that far: to go on would pass over what is between.
            return COLLISION_PAUSE
    if len(due) > ROUND:
        return 0.0
    return max((upcoming - schedule.now).total_seconds(), 0.0)


def _start(schedule: Schedule, most: int) -> datetime:
    """From where to look for due times, so that there are at least `most` of them: from the last one on, or from not
    long before now. There are 31 million seconds in a year that a schedule may have rested."""
    back = timedelta(minutes=1)
    while (start := schedule.now - back) > schedule.last_due:
        times = islice(next_times(schedule.cron, schedule.tz, start), most)
        if sum(due <= schedule.now for due in times) == most:
            return start
        back *= 4
    return schedule.last_due


@lru_cache(maxsize=256)
def _zone(tz: str) -> ZoneInfo:
    try:
        return ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidArgument(f"unknown time zone: {tz!r}", advice="Nothing was changed.") from None
