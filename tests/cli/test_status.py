"""`pgq status`: what it shows, and who it blames. What no ticker or consumer does here stays undone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.driving import Run
from tests.clusters import Database

pytestmark = pytest.mark.newest


@pytest.fixture
def queue(db: Database) -> None:
    db.rows("select pgq.create_queue('orders'), pgq.register_consumer('orders', 'mailer')")


def _problems(pgq: Run, *options: str) -> list[dict[str, Any]]:
    answer = pgq("status", "--json", *options)
    found: list[dict[str, Any]] = answer.json["problems"]
    assert answer.status == (1 if found else 0)
    assert answer.json["healthy"] is not bool(found)
    return found


def test_a_healthy_log(pgq: Run, terminal: Run, db: Database, queue: None) -> None:
    answer = pgq("status", "--json")
    assert answer.status == 0
    sections = ["queues", "consumers", "jobs", "lanes", "workers", "rings", "blockers", "evictions", "problems"]
    assert list(answer.json) == ["healthy", "version", "parts", *sections]
    (shown,), (consumer,) = answer.json["queues"], answer.json["consumers"]
    assert (shown["queue"], shown["events_waiting"], shown["tick_due"], shown["last_tick"]) == ("orders", 0, False, "1")
    assert (consumer["consumer"], consumer["pending_events"]) == ("mailer", 0)
    assert {"orders", None} == {ring["queue"] for ring in answer.json["rings"]}

    text = pgq("status").out
    assert [line[2:] for line in text.splitlines() if line.startswith("# ")] == sections
    assert "orders\tmailer\t" in text

    screen = terminal("status", env={"TERM": "dumb"})
    assert screen.status == 0
    assert ": healthy" in screen.out


def test_nobody_ticks(pgq: Run, db: Database, queue: None) -> None:
    db.rows("select pgq.insert_event('orders', 't', 'x')")
    (problem,) = _problems(pgq, "--ticker-lag", "0.2")
    assert problem["kind"] == "ticker"
    assert "orders" in problem["problem"]
    assert "pgq ticker" in problem["advice"]
    assert pgq("ticker", "--once", "--json").json == {"ticks": 1}
    assert _problems(pgq) == []


def test_a_paused_queue_is_not_a_problem(pgq: Run, db: Database, queue: None) -> None:
    db.rows("select pgq.insert_event('orders', 't', 'x'), pgq.pause_queue('orders')")
    answer = pgq("status", "--json").json
    assert answer["healthy"]
    assert answer["queues"][0]["events_waiting"] == 1


def test_a_consumer_that_does_not_keep_up(pgq: Run, db: Database, queue: None) -> None:
    db.rows("select pgq.insert_event('orders', 't', 'x')")
    db.rows("select pgq.ticker('orders')")
    assert _problems(pgq) == []
    lagging = ("--consumer-lag", "0.01", "--ticker-lag", "0.1")
    (problem,) = _problems(pgq, *lagging)
    assert problem["kind"] == "consumer"
    assert "orders/mailer" in problem["problem"]
    batch = db.value("select pgq.next_batch('orders', 'mailer')")
    (still,) = _problems(pgq, *lagging)
    assert "orders/mailer" in still["problem"]
    db.rows("select pgq.finish_batch(%s)", [batch])
    assert _problems(pgq, *lagging) == []


def test_who_holds_up_rotation(pgq: Run, private_db: Database) -> None:
    from tests.cli.driving import run

    db = private_db
    db.rows("select pgq.create_queue('orders')")
    writer = db.connect(autocommit=False, application_name="slow writer")
    writer.execute("select pgq.insert_event('orders', 't', 'x')")
    prepared = db.connect(autocommit=False)
    prepared.execute("select pgq.insert_event('orders', 't', 'y')")
    prepared.execute("prepare transaction 'forgotten'")
    while db.value("select pgq.rotate_queue('orders')") not in ("blocked", "idle"):
        pass
    answer = run("status", "--json", "--rotation-blocked", "0", "--ticker-lag", "0.1", dsn=db.dsn)
    assert answer.status == 1
    blockers = {(row["pid"], row["prepared"], row["application"]) for row in answer.json["blockers"]}
    assert (writer.info.backend_pid, None, "slow writer") in blockers
    assert (None, "forgotten", None) in blockers
    messages = " ".join(row["problem"] + row["advice"] for row in answer.json["problems"])
    assert f"pg_terminate_backend({writer.info.backend_pid})" in messages
    assert "rollback prepared 'forgotten'" in messages
