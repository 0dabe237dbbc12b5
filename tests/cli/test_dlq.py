"""`pgq dlq ...`."""

from __future__ import annotations

import pytest

from tests.cli.driving import Run
from tests.clusters import Database

pytestmark = pytest.mark.newest


@pytest.fixture(autouse=True)
def letters(db: Database) -> None:
    """Three dead letters of orders/mailer; the second is of another type."""
    db.rows("select pgq.create_queue('orders'), pgq.register_consumer('orders', 'mailer')")
    for number, kind in enumerate(("mail", "call", "mail"), 1):
        db.rows("select pgq.insert_event('orders', %s, %s)", [kind, f"data {number}"])
    db.rows("select pgq.ticker('orders')")
    batch = db.value("select pgq.next_batch('orders', 'mailer')")
    reason = "Traceback ...\nKeyError: 'colour'"
    db.rows("select pgq.nack('orders', 'mailer', %s, '{1,2,3}', %s, i_dead => true)", [batch, reason])
    db.rows("select pgq.finish_batch(%s)", [batch])


def _left(db: Database) -> list[int]:
    return [row[0] for row in db.rows("select dl_id from pgq.dead_letter order by 1")]


def test_ls_and_show(pgq: Run, terminal: Run) -> None:
    assert [row["id"] for row in pgq("dlq", "ls").tsv] == ["1", "2", "3"]
    assert [row["id"] for row in pgq("dlq", "ls", "orders", "--type", "mail", "--json").json] == ["1", "3"]
    assert pgq("dlq", "ls", "--consumer", "nobody").tsv == []
    page = pgq("dlq", "ls", "--limit", "2")
    assert [row["id"] for row in page.tsv] == ["1", "2"]
    assert "--after 2" in page.err
    assert [row["id"] for row in pgq("dlq", "ls", "--after", "2").tsv] == ["3"]
    shown = pgq("dlq", "show", "2", "--json").json
    assert (shown["data"], shown["attempts"], shown["event_id"]) == ("data 2", 1, "2")
    assert shown["reason"] == "Traceback ...\nKeyError: 'colour'"
    assert pgq("dlq", "show", "2").tsv[0]["reason"] == r"Traceback ...\nKeyError: 'colour'"
    assert "Traceback" not in terminal("dlq", "ls").plain
    assert "Traceback" in terminal("dlq", "show", "2").plain
    gone = pgq("dlq", "show", "99")
    assert (gone.status, gone.out) == (1, "")
    assert "pgq dlq ls" in gone.err


def test_replay(pgq: Run, db: Database) -> None:
    assert pgq("dlq", "replay", "1", "99").status == 1
    assert _left(db) == [1, 2, 3]  # all or none
    assert pgq("dlq", "replay", "2").err == "replayed 1 dead letter\n"
    assert pgq("dlq", "replay", "--all", "--queue", "orders", "--type", "mail", "--json").json == {"replayed": 2}
    assert _left(db) == []
    db.rows("select pgq.ticker('orders')")
    events = db.rows("select ev_data from pgq.receive('orders', 'mailer') order by ev_id")
    assert [row[0] for row in events] == ["data 1", "data 2", "data 3"]


def test_purge_asks_or_needs_yes(pgq: Run, terminal: Run, db: Database) -> None:
    assert pgq("dlq", "purge", "1").status == 2
    asked = terminal("dlq", "purge", "--all", "--queue", "orders", "--older-than", "7d", typed="n\n")
    assert asked.status == 1
    assert "Drop all dead letters of queue orders older than 7d for good?" in asked.plain
    assert pgq("dlq", "purge", "1", "--yes", "--json").json == {"purged": 1}
    assert pgq("dlq", "purge", "--all", "--older-than", "7d", "--yes", "--json").json == {"purged": 0}
    assert pgq("dlq", "purge", "--all", "--type", "call", "--yes").err == "dropped 1 dead letter\n"
    assert _left(db) == [3]
    assert terminal("dlq", "purge", "3", typed="y\n").status == 0
    assert _left(db) == []


@pytest.mark.parametrize(
    "args",
    [
        ("replay",),
        ("replay", "--all"),
        ("replay", "1", "--all"),
        ("replay", "--queue", "orders"),
        ("purge", "--yes"),
        ("purge", "1", "--type", "mail", "--yes"),
        ("purge", "x", "--yes"),
        ("purge", "--all", "--older-than", "long", "--yes"),
    ],
)
def test_wrong_usage(pgq: Run, db: Database, args: tuple[str, ...]) -> None:
    assert pgq("dlq", *args).status == 2
    assert _left(db) == [1, 2, 3]
