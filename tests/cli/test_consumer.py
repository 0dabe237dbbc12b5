"""`pgq consumer ...`."""

from __future__ import annotations

from datetime import datetime

import pytest

from tests.cli.driving import Run
from tests.clusters import Database

pytestmark = pytest.mark.newest


@pytest.fixture
def ticks(db: Database) -> list[int]:
    """Queue orders with three events, a tick after each."""
    db.rows("select pgq.create_queue('orders')")
    found = []
    for number in range(3):
        db.rows("select pgq.insert_event('orders', 't', %s)", [str(number)])
        found.append(db.value("select pgq.ticker('orders')"))
    return found


def test_register_ls_unregister(pgq: Run, db: Database, ticks: list[int]) -> None:
    new = pgq("consumer", "register", "orders", "mailer", "--json").json
    assert new == {"queue": "orders", "consumer": "mailer", "registered": True, "last_tick": str(ticks[-1])}
    again = pgq("consumer", "register", "orders", "mailer")
    assert (again.status, again.out) == (0, "")
    assert "was registered already" in again.err

    (row,) = pgq("consumer", "ls", "orders").tsv
    (same,) = pgq("consumer", "ls", "--json").json
    assert list(row) == list(same)
    assert same["last_tick"] == row["last_tick"] == str(ticks[-1])
    assert (row["open_batch"], same["open_batch"]) == ("", None)

    refused = pgq("consumer", "unregister", "orders", "mailer")
    assert (refused.status, refused.out) == (2, "")
    assert pgq("consumer", "unregister", "orders", "mailer", "--yes").status == 0
    assert pgq("consumer", "ls", "--json").json == []


def test_register_at_a_position(pgq: Run, db: Database, ticks: list[int]) -> None:
    def where(name: str, at: str) -> str:
        return str(pgq("consumer", "register", "orders", name, "--at", at, "--json").json["last_tick"])

    time: datetime = db.value("select tick_time from pgq.tick where tick_id = %s", [ticks[1]])
    assert where("first", "earliest") == "1"
    assert where("by_tick", str(ticks[0])) == str(ticks[0])
    assert where("by_time", time.isoformat()) == str(ticks[1])
    assert where("by_local_time", time.astimezone().replace(tzinfo=None).isoformat()) == str(ticks[1])
    assert where("first", "latest") == str(ticks[-1])  # --at moves one that is there

    gone = pgq("consumer", "register", "orders", "late", "--at", "99999")
    assert gone.status == 1
    assert "earliest" in gone.err
    assert pgq("consumer", "register", "orders", "late", "--at", "yesterday").status == 2
    assert {row["consumer"] for row in pgq("consumer", "ls").tsv} == {"first", "by_tick", "by_time", "by_local_time"}


def test_seek_is_a_rehearsal_until_it_is_executed(pgq: Run, db: Database, ticks: list[int]) -> None:
    db.rows("select pgq.register_consumer('orders', 'mailer')")
    last, first = str(ticks[-1]), str(ticks[0])
    rehearsal = pgq("consumer", "seek", "orders", "mailer", first)
    assert rehearsal.tsv == [
        {"queue": "orders", "consumer": "mailer", "from_tick": last, "to_tick": first, "executed": "false"}
    ]
    assert "--execute" in rehearsal.err
    assert pgq("consumer", "ls", "--json").json[0]["last_tick"] == last
    (moved,) = pgq("consumer", "seek", "orders", "mailer", first, "--execute", "--json").json
    assert (moved["to_tick"], moved["executed"]) == (first, True)
    assert pgq("consumer", "ls", "--json").json[0]["last_tick"] == first


def test_what_is_not_there(pgq: Run, db: Database) -> None:
    db.rows("select pgq.create_queue('orders')")
    for verb in (
        ("ls", "nosuch"),
        ("register", "nosuch", "mailer"),
        ("unregister", "nosuch", "mailer", "--yes"),
        ("seek", "nosuch", "mailer", "earliest"),
    ):
        answer = pgq("consumer", *verb)
        assert (answer.status, answer.out) == (1, "")
        assert "queue" in answer.err
    for verb in (("unregister", "orders", "mailer", "--yes"), ("seek", "orders", "mailer", "earliest")):
        answer = pgq("consumer", *verb)
        assert (answer.status, answer.out) == (1, "")
        assert "pgq consumer register" in answer.err
