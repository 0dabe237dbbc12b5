"""`pgq send` and `pgq tail`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.driving import Run, command, environment
from tests.clusters import Database
from tests.waiting import wait_until

pytestmark = pytest.mark.newest


@pytest.fixture(autouse=True)
def queue(db: Database) -> None:
    db.rows("select pgq.create_queue('orders')")


def _stored(db: Database) -> list[tuple[str | None, str | None]]:
    return db.rows("select ev_type, ev_data from pgq.event_1 order by ev_id")


def test_one_event(pgq: Run, db: Database) -> None:
    answer = pgq("send", "orders", '{"n": 1}', "-t", "created", "--json")
    assert answer.json == {"queue": "orders", "sent": 1, "id": "1"}
    assert pgq("send", "orders", "plain text").err == "sent event 2 to orders\n"
    assert _stored(db) == [("created", '{"n": 1}'), (None, "plain text")]


def test_a_file_is_sent_as_it_stands(pgq: Run, db: Database, tmp_path: Path) -> None:
    lines = ['{"n": 1.10}', "", '  ["größe", 1e400]', '"x"', "null"]
    (tmp_path / "events.ndjson").write_text("\n".join(lines))
    sent = pgq("send", "orders", "-f", str(tmp_path / "events.ndjson"), "-t", "bulk", "--json")
    assert sent.json == {"queue": "orders", "sent": 4, "id": None}
    assert _stored(db) == [("bulk", line.strip()) for line in lines if line]


def test_more_than_a_chunk_and_a_bad_line(pgq: Run, db: Database, tmp_path: Path) -> None:
    path = tmp_path / "events.ndjson"
    path.write_text("".join(f"{number}\n" for number in range(12_000)) + "oops\n1\n")
    answer = pgq("send", "orders", "-f", str(path))
    assert (answer.status, answer.out) == (1, "")
    assert "line 12001 is not JSON" in answer.err
    assert "first 12000 lines (12000 events) were sent and are kept" in answer.err
    assert f"tail -n +12001 {path} | pgq send orders -f -" in answer.err
    assert [data for _, data in _stored(db)] == [str(number) for number in range(12_000)]


@pytest.mark.parametrize("line", ["{", "NaN", '{"a": "\\u0000"}', "1 2", b"\xff"])
def test_a_first_line_that_is_none(pgq: Run, db: Database, line: str | bytes) -> None:
    answer = pgq("send", "orders", "-f", "-", stdin=line if isinstance(line, bytes) else line.encode())
    assert (answer.status, answer.out) == (1, "")
    assert "line 1 is not JSON" in answer.err
    assert "Nothing was sent" in answer.err
    assert _stored(db) == []


def test_a_slow_pipe_is_not_kept_waiting(db: Database) -> None:
    with subprocess.Popen(
        command("send", "orders", "-f", "-"), env=environment(db.dsn), stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin
        process.stdin.write(b"1\n2")
        process.stdin.flush()
        wait_until(lambda: _stored(db) == [(None, "1")], 20)
        _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, b"sent 2 events to orders\n")


def test_for_later(pgq: Run, db: Database) -> None:
    assert pgq("send", "orders", "x", "--in", "1h30m").status == 0
    assert pgq("send", "orders", "y", "--at", "2100-01-01").status == 1  # not within ten years
    assert pgq("send", "orders", "-f", "-", "--in", "10m", stdin=b"1\n2\n").status == 0
    waiting = db.rows("select ev_data, due > now() + interval '80 minutes' from pgq.delayed_event order by ev_id")
    assert waiting == [("x", True), ("1", False), ("2", False)]
    assert pgq("queue", "show", "orders", "--json").json["delays"]["delayed"] == 3
    assert pgq("send", "orders", "now", "--at", "2000-01-01T00:00:00Z").status == 0
    assert _stored(db) == [(None, "now")]


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("x", "-f", "-"),
        ("x", "--in", "soon"),
        ("x", "--in", "10 parsecs"),
        ("x", "--at", "soon"),
        ("x", "--in", "1m", "--at", "2030-01-01"),
        ("-f", "/nonexistent"),
    ],
)
def test_wrong_usage(pgq: Run, args: tuple[str, ...]) -> None:
    assert pgq("send", "orders", *args).status == 2


def test_a_bar_only_on_a_terminal(terminal: Run, pgq: Run, tmp_path: Path) -> None:
    path = tmp_path / "events.ndjson"
    path.write_text("1\n" * 30_000)
    assert "30,000 events" in terminal("send", "orders", "-f", str(path)).plain
    assert pgq("send", "orders", "-f", str(path)).err == "sent 30000 events to orders\n"


def test_what_is_there(pgq: Run, terminal: Run, db: Database) -> None:
    for number in range(12):
        db.rows("select pgq.insert_event('orders', %s, %s)", ["even" if number % 2 == 0 else "odd", str(number)])

    def data(*options: str) -> list[str]:
        return [row["data"] for row in pgq("tail", "orders", "--no-follow", *options).tsv]

    assert data() == [str(number) for number in range(2, 12)]
    assert data("-n", "2") == ["10", "11"]
    assert data("-n", "2", "--type", "even") == ["8", "10"]
    assert data("--since", "earliest") == [str(number) for number in range(12)]
    middle = db.value("select ev_time from pgq.event_1 where ev_data = '7'")
    assert data("--since", middle.isoformat()) == ["7", "8", "9", "10", "11"]
    assert data("--since", middle.isoformat(), "-n", "1") == ["11"]
    assert data("-n", "0") == []
    (line,) = pgq("tail", "orders", "--no-follow", "-n", "1", "--json").out.splitlines()
    assert (json.loads(line)["id"], json.loads(line)["type"], json.loads(line)["data"]) == ("12", "odd", "11")
    assert "odd  11" in terminal("tail", "orders", "--no-follow").plain
    assert pgq("tail", "nosuch", "--no-follow").status == 1
    assert pgq("tail", "orders", "--since", "soon").status == 2
    assert db.value("select count(*) from pgq.registration") == 0
    assert db.value("select last_tick_id from pgq.get_queue_info('orders')") == 1


@contextmanager
def _following(db: Database, *options: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """`pgq tail --json`, and the data that it has shown so far."""
    with subprocess.Popen(
        command("tail", "orders", "--json", *options), env=environment(db.dsn), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        os.set_blocking(process.stdout.fileno(), False)
        shown: list[str] = []
        try:
            yield process, shown
        finally:
            process.kill()


def _more(process: subprocess.Popen[str], shown: list[str]) -> list[str]:
    assert process.stdout
    shown.extend(json.loads(line)["data"] for line in process.stdout)
    return shown


def test_following_shows_late_commits_late_and_each_event_once(db: Database) -> None:
    early, late = db.connect(autocommit=False), db.connect(autocommit=False)
    early.execute("select pgq.insert_event('orders', 't', 'late')")
    late.execute("select pgq.insert_event('orders', 't', 'rolled back')")
    db.rows("select pgq.insert_event('orders', 't', 'first')")
    with _following(db) as (process, shown):
        wait_until(lambda: _more(process, shown) == ["first"], 20)
        db.rows("select pgq.insert_event('orders', 't', 'second')")
        wait_until(lambda: _more(process, shown) == ["first", "second"], 20)
        early.commit()
        late.rollback()
        wait_until(lambda: _more(process, shown) == ["first", "second", "late"], 20)
        db.rows("select pgq.insert_event('orders', 't', 'last')")
        wait_until(lambda: _more(process, shown) == ["first", "second", "late", "last"], 20)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


def test_following_holds_nothing_up(db: Database) -> None:
    """Its reader has stopped reading, the server has all of it, and slots rotate."""
    db.rows("select pgq.insert_event('orders', 't', repeat('x', 1000)) from generate_series(1, 5000)")
    with _following(db, "--since", "earliest") as (process, _):
        wait_until(lambda: db.value("select count(*) from pg_stat_activity where application_name = 'pgq tail'"), 20)
        wait_until(lambda: db.value("select pgq.rotate_queue('orders')") == "closed", 20)
        held = "select count(*) from pg_locks where relation::regclass::text ~ '^pgq.event' and pid <> pg_backend_pid()"
        wait_until(lambda: db.value(held) == 0, 20)
        assert process.poll() is None


def test_a_queue_that_is_dropped_meanwhile(db: Database) -> None:
    with subprocess.Popen(
        command("tail", "orders"), env=environment(db.dsn), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_until(lambda: db.value("select count(*) from pg_stat_activity where application_name = 'pgq tail'"), 20)
        db.rows("select pgq.drop_queue('orders')")
        _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert err.startswith("pgq: queue orders was dropped\n")
