"""Recurring jobs are declared with the function, and told to the database when a worker starts."""

from __future__ import annotations

import pytest

from pgq_py import InvalidArgument
from pgq_py.app import PgQ


def test_a_worker_tells_the_database(pgq: PgQ) -> None:
    @pgq.job("emails", max_attempts=3)
    def report(month: str, full: bool = False) -> None: ...

    declared = report.schedule(cron="0 9 1 * *", tz="Europe/Berlin", args=("last",), catch_up="all")
    report.schedule(name="yearly", cron="0 9 1 1 *", kwargs={"month": "all", "full": True})
    assert declared.name == "emails.report"
    assert pgq.schedules() == []
    pgq.run(drain=True)
    pgq.run(drain=True)
    monthly, yearly = pgq.schedules()
    assert (monthly.schedule_name, monthly.cron, monthly.tz) == ("emails.report", "0 9 1 * *", "Europe/Berlin")
    assert (monthly.queue_name, monthly.type, monthly.catch_up) == ("emails", "report", "all")
    assert monthly.payload == {"month": "last"}
    assert (yearly.schedule_name, yearly.tz, yearly.payload) == ("yearly", "UTC", {"month": "all", "full": True})


@pytest.mark.newest
def test_schedules_that_cannot_be(pgq: PgQ) -> None:
    @pgq.job("emails")
    def report(month: str) -> None: ...

    report.schedule(cron="* * * * *", args=["a"])
    for wrong in (
        {"cron": "* * * * *", "args": ["a"]},
        {"cron": "* * * * *", "args": [1], "name": "n"},
        {"cron": "* * * * *", "name": "n"},
        {"cron": "61 * * * *", "args": ["a"], "name": "n"},
        {"cron": "tomorrow", "args": ["a"], "name": "n"},
        {"cron": "* * * * *", "args": ["a"], "name": "n", "tz": "Mars/Olympus"},
        {"cron": "* * * * *", "args": ["a"], "name": "n", "catch_up": "some"},
        {"cron": "* * * * *", "args": ["a"], "name": "n", "max_catch_up": 0},
    ):
        with pytest.raises(InvalidArgument):
            report.schedule(**wrong)
    assert len(report.spec.schedules) == 1
