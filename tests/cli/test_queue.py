"""`pgq queue ...`."""

from __future__ import annotations

import pytest

from tests.cli.driving import Run
from tests.clusters import Database

pytestmark = pytest.mark.newest


def test_create_ls_drop(pgq: Run, db: Database) -> None:
    assert pgq("queue", "ls").tsv == []
    created = pgq("queue", "create", "orders")
    assert (created.status, created.out) == (0, "")
    assert created.err == "created queue orders\n"
    assert pgq("queue", "create", "orders", "--json").json == {"queue": "orders", "created": False}

    (row,) = pgq("queue", "ls").tsv
    (same,) = pgq("queue", "ls", "--json").json
    assert list(row) == list(same)
    assert row["queue"] == same["queue"] == "orders"
    assert row["last_tick"] == same["last_tick"] == "1"  # text in JSON too
    assert row["paused"] == "false"
    assert same["paused"] is False
    assert float(row["rotation_period_seconds"]) == same["rotation_period_seconds"] > 0

    assert pgq("queue", "drop", "orders", "--yes").status == 0
    assert pgq("queue", "ls", "--json").json == []


def test_a_table_on_a_terminal(terminal: Run, db: Database) -> None:
    db.rows("select pgq.create_queue('[red]orders')")
    answer = terminal("queue", "ls", env={"TERM": "dumb"})
    header, line = [text.split() for text in answer.out.splitlines() if text.strip()]
    assert header[:3] == ["queue", "last", "tick"]
    assert line[0] == "[red]orders"
    assert "\t" not in answer.out


def test_drop_asks_or_needs_yes(pgq: Run, terminal: Run, db: Database) -> None:
    db.rows("select pgq.create_queue('orders'), pgq.register_consumer('orders', 'mailer')")
    refused = pgq("queue", "drop", "orders")
    assert (refused.status, refused.out) == (2, "")
    assert terminal("queue", "drop", "orders", typed="\n").status == 1
    attached = pgq("queue", "drop", "orders", "--yes")
    assert attached.status == 1
    assert attached.err.startswith("pgq: cannot drop queue, consumers still attached\n")
    assert db.value("select count(*) from pgq.queue") == 1
    assert terminal("queue", "drop", "orders", "--force", typed="y\n").status == 0
    assert db.value("select count(*) from pgq.queue") == 0


def test_settings(pgq: Run, db: Database) -> None:
    db.rows("select pgq.create_queue('orders')")
    assert pgq("queue", "set", "orders", "rotation_period", "10 minutes", "--json").json == {
        "queue": "orders",
        "parameter": "rotation_period",
        "value": "10 minutes",
    }
    assert db.value("select extract(epoch from queue_rotation_period)::int from pgq.queue") == 600
    assert pgq("queue", "set", "orders", "rotation_period", "null").status == 0
    assert db.value("select queue_rotation_period is null from pgq.queue")
    for parameter, value in (("rotation_period", "soon"), ("colour", "red")):
        wrong = pgq("queue", "set", "orders", parameter, value)
        assert wrong.status == 1
        assert parameter in wrong.err


def test_pause_resume(pgq: Run, db: Database) -> None:
    db.rows("select pgq.create_queue('orders')")
    assert pgq("queue", "pause", "orders").err == "paused queue orders\n"
    assert pgq("queue", "pause", "orders", "--json").json == {"queue": "orders", "changed": False}
    assert pgq("queue", "ls", "--json").json[0]["paused"] is True
    assert pgq("queue", "resume", "orders").err == "resumed queue orders\n"
    assert pgq("queue", "resume", "orders").err == "queue orders was not paused\n"


def test_rotate_step_by_step(pgq: Run, db: Database) -> None:
    db.rows("select pgq.create_queue('orders'), pgq.insert_event('orders', 't', 'x')")
    steps = [pgq("queue", "rotate", "orders").tsv[0]["step"] for _ in range(3)]
    assert "switched" in steps
    writer = db.connect(autocommit=False)
    writer.execute("select pgq.insert_event('orders', 't', 'y')")
    states = [pgq("queue", "rotate", "orders") for _ in range(4)]
    blocked = [state for state in states if state.status == 1]
    assert blocked
    assert "pgq status" in blocked[0].err
    assert blocked[0].out == ""
