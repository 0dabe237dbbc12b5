"""`pgq queue ...`."""

from __future__ import annotations

import pytest

from tests.cli.driving import Run, run
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
    answer = terminal("queue", "ls")
    header, line = [text.split() for text in answer.plain.splitlines() if text.strip()]
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
        "settings": {"rotation_period": "10 minutes"},
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


def test_slots_and_settings_from_the_start(pgq: Run, db: Database) -> None:
    options = ("--slots", "5", "--retention", "7 days", "--rotation-period", "null")
    assert pgq("queue", "create", "audit", *options).status == 0
    shown = pgq("queue", "show", "audit", "--json").json
    assert (shown["slots"], shown["rotation_period_seconds"]) == (5, None)
    assert shown["settings"]["retention_seconds"] == 7 * 86_400
    pgq("queue", "create", "audit", "--retention", "1 day")  # it exists: nothing is changed
    assert pgq("queue", "show", "audit", "--json").json["settings"] == shown["settings"]

    wrong = pgq("queue", "create", "other", "--retention", "soon")
    assert (wrong.status, "retention" in wrong.err) == (1, True)
    assert db.value("select count(*) from pgq.queue") == 1  # a queue without its settings is none


def test_several_settings_or_none(pgq: Run, db: Database) -> None:
    db.rows("select pgq.create_queue('orders')")
    pgq("queue", "set", "orders", "--max-retries", "3", "--max-consumer-lag", "2 hours", "--disable-insert", "true")
    settings = pgq("queue", "show", "orders", "--json").json["settings"]
    assert (settings["max_retries"], settings["max_consumer_lag_seconds"]) == (3, 7200)
    assert settings["disable_insert"]
    assert pgq("queue", "set", "orders", "--max-retries", "4", "--retention", "soon").status == 1
    assert pgq("queue", "show", "orders", "--json").json["settings"] == settings
    assert pgq("queue", "set", "orders").status == 2
    assert pgq("queue", "set", "orders", "retention").status == 2


def test_rights_for_one_queue(pgq: Run, db: Database) -> None:
    db.rows("select pgq.create_queue('orders')")
    db.rows("do $$ begin create role clerk login; exception when duplicate_object then null; end $$")
    granted = pgq("queue", "grant", "orders", "clerk", "--produce", "--consume", "mailer")
    assert granted.err == "clerk may produce and consume as mailer on queue orders\n"
    assert run("send", "orders", "x", dsn=db.dsn_for("clerk")).status == 0
    assert run("consumer", "register", "orders", "mailer", dsn=db.dsn_for("clerk")).status == 0
    assert run("consumer", "register", "orders", "other", dsn=db.dsn_for("clerk")).status == 1
    assert run("tail", "orders", "--no-follow", dsn=db.dsn_for("clerk")).tsv[0]["data"] == "x"
    shown = pgq("queue", "show", "orders", "--json").json
    assert [(grant["may"], grant["consumer"]) for grant in shown["grants"]] == [
        ("consume", "mailer"),
        ("produce", None),
    ]
    assert pgq("consumer", "show", "orders", "mailer", "--json").json["roles"] == ["clerk"]

    assert pgq("queue", "revoke", "orders", "clerk", "--produce", "--consume", "mailer").status == 0
    denied = run("send", "orders", "x", dsn=db.dsn_for("clerk"))
    assert (denied.status, denied.out) == (1, "")
    assert "grant" in denied.err
    assert pgq("queue", "grant", "orders", "clerk").status == 2
    assert "does not exist" in pgq("queue", "grant", "orders", "nobody_here", "--produce").err


def test_all_about_a_queue_and_a_consumer(pgq: Run, terminal: Run, db: Database) -> None:
    db.rows("select pgq.create_queue('orders'), pgq.register_consumer('orders', 'mailer')")
    db.rows("select pgq.set_retry_policy('orders', 'mailer', 2, 'list', i_delays => '{1 second,1 minute}')")
    db.rows("select pgq.insert_event('orders', 't', 'x')")
    db.rows("select pgq.ticker('orders')")
    db.rows("select pgq.next_batch('orders', 'mailer')")
    text = pgq("queue", "show", "orders").out
    names = [line[2:] for line in text.splitlines() if line.startswith("# ")]
    assert names == ["queue", "settings", "delays", "consumers", "retry_policies", "grants", "evictions"]
    shown = pgq("consumer", "show", "orders", "mailer", "--json").json
    assert (shown["batch"]["first_tick"], shown["batch"]["last_tick"]) == ("1", "2")
    assert shown["retry_policy"]["delays_seconds"] == [1, 60]
    assert "rotation period" in terminal("queue", "show", "orders").plain
    assert "first tick" in terminal("consumer", "show", "orders", "mailer").plain
    for verb in (("queue", "show", "nosuch"), ("consumer", "show", "orders", "nosuch")):
        assert (pgq(*verb).status, pgq(*verb).out) == (1, "")
