"""`pgq cron ...`, and when schedules are due."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice

import pytest

from pgq_py.errors import InvalidArgument
from pgq_py.jobs.recurring import next_times
from tests.cli.driving import Run
from tests.clusters import Database

pytestmark = pytest.mark.newest


@pytest.fixture
def nightly(db: Database) -> None:
    db.rows("select pgq.create_job_queue('reports')")
    db.rows("select pgq.set_schedule('nightly', 'reports', 'report', '30 2 * * *', 'Europe/Berlin', '{\"days\": 1}')")


@pytest.mark.usefixtures("nightly")
def test_ls_next_and_run(pgq: Run, db: Database) -> None:
    (row,) = pgq("cron", "ls", "--json").json
    assert (row["schedule"], row["queue"], row["type"], row["cron"]) == ("nightly", "reports", "report", "30 2 * * *")
    assert (row["tz"], row["catch_up"], row["enabled"], row["overdue"]) == ("Europe/Berlin", "latest", True, False)
    assert datetime.fromisoformat(row["last_due"]) < datetime.fromisoformat(row["next_due"])
    times = pgq("cron", "next", "nightly", "-n", "400").tsv
    assert len(times) == 400
    assert all("02:30:00" in time["local"] or "03:00:00" in time["local"] for time in times)
    assert datetime.fromisoformat(times[0]["due"]) > datetime.now(UTC)
    assert len(pgq("cron", "next", "--json").json) == 5
    ran = pgq("cron", "run", "nightly", "--json").json
    assert (ran["schedule"], ran["queue"]) == ("nightly", "reports")
    assert db.rows("select id, type, payload::jsonb from pgq.jobs('reports')") == [
        (int(ran["id"]), "report", {"days": 1})
    ]
    assert pgq("cron", "ls", "--json").json[0]["last_due"] == row["last_due"]


@pytest.mark.usefixtures("nightly")
def test_a_schedule_that_nobody_fires_is_overdue_and_doctor_says_so(pgq: Run, db: Database) -> None:
    db.rows("update pgq.schedule set since = now() - interval '3 days'")
    assert pgq("cron", "ls", "--json").json[0]["overdue"]
    (finding,) = [found for found in pgq("doctor", "--json").json if found["check"] == "schedule"]
    assert (finding["severity"], finding["subject"]) == ("warning", "schedule nightly")
    db.rows("update pgq.schedule set enabled = false")
    assert not pgq("cron", "ls", "--json").json[0]["overdue"]
    assert "schedule" not in {found["check"] for found in pgq("doctor", "--json").json}
    db.rows("update pgq.schedule set cron = 'every night'")
    (finding,) = [found for found in pgq("doctor", "--json").json if found["check"] == "schedule"]
    assert (finding["severity"], finding["mend"]) == ("error", "select pgq.drop_schedule('nightly')")


@pytest.mark.parametrize("verb", ["next", "run"])
def test_an_unknown_schedule(pgq: Run, verb: str) -> None:
    answer = pgq("cron", verb, "nothing")
    assert (answer.status, answer.out) == (1, "")
    assert "no such schedule: nothing" in answer.err
    assert "pgq cron ls" in answer.err


def test_both_days_of_change() -> None:
    """Once each: at the end of the gap in March, the first of the two times in October."""

    def two(cron: str, after: datetime) -> list[str]:
        return [f"{time.astimezone(UTC):%d %H:%M}" for time in islice(next_times(cron, "Europe/Berlin", after), 2)]

    assert two("30 2 * * *", datetime(2027, 3, 27, 12, tzinfo=UTC)) == ["28 01:00", "29 00:30"]
    assert two("30 2 * * *", datetime(2027, 10, 30, 12, tzinfo=UTC)) == ["31 00:30", "01 01:30"]
    assert two("0 * * * *", datetime(2027, 10, 31, 0, 30, tzinfo=UTC)) == ["31 01:00", "31 02:00"]


def test_seconds_days_and_what_is_never_due() -> None:
    monday = datetime(2027, 3, 1, tzinfo=UTC)
    assert [time.second for time in islice(next_times("*/20 * * * * *", "UTC", monday), 3)] == [20, 40, 0]
    assert next(next_times("0 0 * * 0", "UTC", monday)).strftime("%A") == "Sunday"
    for wrong in ("* * * *", "60 * * * *", "0 0 30 2 *", "@daily", ""):
        with pytest.raises(InvalidArgument):
            next(next_times(wrong, "UTC", monday))
    with pytest.raises(InvalidArgument, match="time zone"):
        next(next_times("* * * * *", "Mars/Olympus", monday))
