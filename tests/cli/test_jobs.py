"""`pgq jobs ...`, `pgq worker ls`, and what `status`, `doctor` and `dlq` say of jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from tests.cli.driving import Run
from tests.clusters import Database
from tests.waiting import wait_until

pytestmark = pytest.mark.newest


@pytest.fixture(autouse=True)
def emails(pgq: Run) -> None:
    assert pgq("queue", "create", "emails", "--jobs").err == "created queue emails\n"


def take(db: Database, n: int = 1) -> list[tuple[Any, ...]]:
    """claim_id, token and job_id of the next jobs, claimed by w."""
    return db.rows("select claim_id, token, job_id from pgq.take('emails', 'w', %s)", [n])


def all_that_wait(db: Database) -> list[int]:
    """Claimed: each call gets those of one window at most."""
    found: list[int] = []
    while claimed := take(db, 9):
        found += [job for _, _, job in claimed]
    return found


def give_up(db: Database, error: str = "Traceback ...\nKeyError: 'to'") -> int:
    """The next job becomes a dead letter; its id."""
    ((claim, token, job),) = take(db)
    db.rows("select pgq.fail(%s, %s, %s, %s, null, false)", [claim, token, job, error])
    return int(job)


@contextmanager
def finished_when_seen(db: Database, claim: int, token: int) -> Iterator[None]:
    """The claim is completed when the only other session has been seen in a dozen states: it has listed the jobs that
    run by then, for that is its fourth transaction."""
    query = "select state_change from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    states: set[Any] = set()

    def is_under_way() -> bool:
        states.update(row[0] for row in db.rows(query))
        return len(states) >= 12

    def finish() -> None:
        wait_until(is_under_way, 60)
        db.rows("select pgq.complete(%s, %s)", [claim, token])

    with ThreadPoolExecutor() as pool:
        done = pool.submit(finish)
        yield
    done.result()


def test_a_job_queue_with_priorities_of_ones_own(pgq: Run, db: Database) -> None:
    assert pgq("queue", "create", "reports", "--priorities", "9, 5", "--json").json["created"]
    assert db.rows("select priority from pgq.get_lane_info('reports')") == [(9,), (5,), (0,)]
    assert not pgq("queue", "create", "emails", "--jobs", "--json").json["created"]
    assert pgq("queue", "set", "emails", "lease", "30 seconds").status == 0
    assert pgq("queue", "set", "emails", "max_losses", "9", "--json").json["settings"] == {"max_losses": "9"}
    assert db.rows("select lease, max_losses from pgq.job_queue j join pgq.queue using (queue_id) "
                   "where queue_name = 'emails'") == [(timedelta(seconds=30), 9)]  # fmt: skip
    for wrong in (("--priorities", "high"), ("--priorities", "0"), ("--jobs", "--slots", "4")):
        assert pgq("queue", "create", "other", *wrong).status in (1, 2)
    assert pgq("queue", "create", "plain").status == 0
    refused = pgq("queue", "set", "plain", "lease", "30 seconds")
    assert (refused.status, "not a job queue" in refused.err) == (1, True)


def test_the_right_to_work_a_queue(pgq: Run) -> None:
    granted = pgq("queue", "grant", "emails", "pgq_writer", "--work", "--json").json
    assert granted == {"queue": "emails", "role": "pgq_writer", "rights": ["work"], "granted": True}
    assert pgq("queue", "show", "emails", "--json").json["grants"] == [
        {"role": "pgq_writer", "may": "work", "consumer": None}
    ]
    assert pgq("queue", "revoke", "emails", "pgq_writer", "--work").err.endswith("no longer work on queue emails\n")
    assert pgq("queue", "show", "emails", "--json").json["grants"] == []


def test_enqueue_ls_and_show(pgq: Run, terminal: Run) -> None:
    assert pgq("jobs", "enqueue", "emails", "send", '{"to": "a@b.c"}').err == "enqueued job 1\n"
    more = ("--priority", "150", "--key", "k", "--max-attempts", "3", "--timeout", "1m", "--tag", "x", "--tag", "y")
    assert pgq("jobs", "enqueue", "emails", "send", *more, "--json").json == {
        "queue": "emails", "id": "2", "created": True,
    }  # fmt: skip
    again = pgq("jobs", "enqueue", "emails", "send", "--key", "k")
    assert (again.status, again.err) == (0, "job 2 has this key; nothing was enqueued\n")
    assert pgq("jobs", "enqueue", "emails", "later", "--in", "1h").status == 0
    listed = pgq("jobs", "ls", "emails").tsv
    assert [(row["type"], row["state"], row["priority"]) for row in listed] == [
        ("later", "scheduled", "100"), ("send", "pending", "150"), ("send", "pending", "100"),
    ]  # fmt: skip
    assert [row["id"] for row in pgq("jobs", "ls", "emails", "--state", "pending", "--json").json] == ["2", "1"]
    assert pgq("jobs", "ls", "emails", "--type", "nothing").tsv == []
    page = pgq("jobs", "ls", "emails", "--limit", "1")
    assert len(page.tsv) == 1
    last = page.tsv[0]["id"]
    assert f"--before {last}" in page.err
    assert [row["id"] for row in pgq("jobs", "ls", "emails", "--before", last).tsv] == ["2", "1"]
    shown = pgq("jobs", "show", "emails", "2", "--json").json
    assert shown["options"] == {"max_attempts": 3, "timeout": 60, "tags": ["x", "y"]}
    assert (shown["key"], shown["max_attempts"], shown["progress"]) == ("k", 3, None)
    assert pgq("jobs", "show", "emails", "1").tsv[0]["payload"] == '{"to": "a@b.c"}'
    assert "a@b.c" in terminal("jobs", "show", "emails", "1").plain


@pytest.mark.parametrize(
    ("args", "status", "says"),
    [
        (("show", "emails", "99"), 1, "no trace of job 99"),
        (("ls", "missing"), 1, "no such queue"),
        (("stats", "missing"), 1, "no such queue"),
        (("ls", "emails", "--state", "odd"), 2, "odd"),
        (("enqueue", "emails", "send", "{"), 2, "not JSON"),
        (("enqueue", "emails", "send", "--in", "1h", "--at", "2099-01-01"), 2, "--in"),
        (("enqueue", "emails", ""), 1, "job type"),
        (("retry", "emails"), 2, "--all"),
        (("retry", "emails", "1", "--all"), 2, "--all"),
        (("cancel", "emails"), 2, "ID"),
    ],
)
def test_wrong_usage(pgq: Run, args: tuple[str, ...], status: int, says: str) -> None:
    answer = pgq("jobs", *args)
    assert (answer.status, answer.out) == (status, "")
    assert says.casefold() in answer.err.casefold()


def test_retry_all_or_none(pgq: Run, db: Database, terminal: Run) -> None:
    for _ in range(3):
        pgq("jobs", "enqueue", "emails", "send")
    dead = [give_up(db), give_up(db)]
    assert [row["id"] for row in pgq("jobs", "ls", "emails", "-s", "failed", "--json").json] == ["2", "1"]
    failed = pgq("jobs", "show", "emails", "1", "--json").json
    assert failed["error"] == "Traceback ...\nKeyError: 'to'"
    assert "Traceback" not in terminal("jobs", "ls", "emails").plain
    refused = pgq("jobs", "retry", "emails", "1", "3")
    assert (refused.status, "only 1" in refused.err) == (1, True)
    assert db.value("select count(*) from pgq.dead_letter") == 2
    assert pgq("jobs", "retry", "emails", str(dead[0]), "--json").json == {"queue": "emails", "retried": 1}
    assert pgq("jobs", "retry", "emails", "--all").err == "1 jobs run again\n"
    assert sorted(all_that_wait(db)) == [1, 2, 3]


def test_a_retry_whose_key_is_taken_is_refused(pgq: Run, db: Database) -> None:
    pgq("jobs", "enqueue", "emails", "send", "--key", "k")
    give_up(db)
    pgq("jobs", "enqueue", "emails", "send", "--key", "k")
    refused = pgq("jobs", "retry", "emails", "1")
    assert (refused.status, "another one with key" in refused.err) == (1, True)
    assert db.value("select count(*) from pgq.dead_letter") == 1


def test_cancel(pgq: Run, db: Database) -> None:
    for _ in range(2):
        pgq("jobs", "enqueue", "emails", "send")
    ((claim, token, _),) = take(db)
    done = pgq("jobs", "cancel", "emails", "1", "2")
    assert done.status == 0
    assert [(row["id"], row["outcome"]) for row in done.tsv] == [("1", "cancel_requested"), ("2", "cancelled")]
    assert pgq("jobs", "show", "emails", "1", "--json").json["cancel_requested"]
    db.rows("select pgq.complete(%s, %s)", [claim, token])
    late = pgq("jobs", "cancel", "emails", "1", "99", "--json")
    assert late.status == 1
    assert late.json == [{"id": "1", "outcome": "completed"}, {"id": "99", "outcome": "unknown"}]


def test_stats(pgq: Run, db: Database) -> None:
    for _ in range(4):
        pgq("jobs", "enqueue", "emails", "send")
    pgq("jobs", "enqueue", "emails", "send", "--in", "1h")
    give_up(db)
    ((claim, token, _),) = take(db)
    db.rows("select pgq.complete(%s, %s)", [claim, token])
    take(db)
    (found,) = pgq("jobs", "stats", "--json").json
    names = ("pending", "running", "scheduled", "completed", "failed", "dead_letters")
    assert {name: found[name] for name in names} == dict.fromkeys(names, 1)
    assert found["pending_exact"]
    assert found["oldest_pending_seconds"] >= 0
    assert pgq("jobs", "stats", "emails").tsv[0]["pending"] == "1"


def test_watch_has_a_bar_for_each_job_that_says_how_far_it_is(pgq: Run, terminal: Run, db: Database) -> None:
    for _ in range(2):
        pgq("jobs", "enqueue", "emails", "send")
    claim, token, job = take(db, 2)[0]
    db.rows("select pgq.progress(%s, %s, %s, 40, 'rendering')", [claim, token, job])
    command = ("jobs", "watch", "emails", "0.05", "--until-done")
    with finished_when_seen(db, claim, token):
        shown = terminal(*command)
    assert shown.status == 0
    assert "rendering" in shown.plain
    assert "40 %" in shown.plain
    assert "1 more" in shown.plain
    (line,) = pgq(*command, "--json").out.splitlines()
    assert (json.loads(line)["completed"], json.loads(line)["jobs"]) == (2, [])


def test_worker_ls(pgq: Run, db: Database) -> None:
    assert pgq("worker", "ls").tsv == []
    db.rows("select pgq.heartbeat('host:1:a', '{}', '1 minute', '{\"queues\": [\"emails\"]}')")
    db.rows("select pgq.heartbeat('host:2:b'), pgq.end_worker('host:2:b')")
    found = pgq("worker", "ls", "--json").json
    assert [(row["worker"], row["state"], row["lease_seconds"]) for row in found] == [
        ("host:1:a", "alive", 60), ("host:2:b", "stopped", 60),
    ]  # fmt: skip
    assert found[0]["info"] == {"queues": ["emails"]}
    assert pgq("worker", "ls").tsv[0]["info"] == '{"queues": ["emails"]}'


def test_dlq_shows_and_replays_jobs(pgq: Run, db: Database) -> None:
    for _ in range(3):
        pgq("jobs", "enqueue", "emails", "send", '{"n": 1}')
    give_up(db)
    give_up(db)
    listed = pgq("dlq", "ls", "emails", "--consumer", "(jobs)", "--json").json
    assert [(row["id"], row["consumer"], row["type"]) for row in listed] == [
        ("1", "(jobs)", "send"), ("2", "(jobs)", "send"),
    ]  # fmt: skip
    assert pgq("dlq", "ls", "emails", "--consumer", "mailer").tsv == []
    assert pgq("dlq", "show", "1", "--json").json["data"] == '{"n": 1}'
    assert pgq("dlq", "replay", "1", "--json").json == {"replayed": 1}
    assert pgq("dlq", "replay", "--all", "-q", "emails", "-c", "(jobs)", "--json").json == {"replayed": 1}
    assert sorted(all_that_wait(db)) == [1, 2, 3]


def test_status_and_doctor_say_that_nobody_works_a_queue(pgq: Run, db: Database) -> None:
    pgq("jobs", "enqueue", "emails", "send")
    db.rows("select pgq.force_tick('emails'), pgq.ticker('emails')")
    healthy = pgq("status", "--json")
    assert (healthy.status, healthy.json["jobs"][0]["pending"]) == (0, 1)
    assert [lane["next_job"] for lane in healthy.json["lanes"]] == [None, "1", None, None]
    sick = pgq("status", "--jobs-waiting", "0", "--ticker-lag", "0.05", "--json")
    assert (sick.status, [problem["kind"] for problem in sick.json["problems"]]) == (1, ["jobs"])
    assert sick.json["problems"][0]["mend"] == "pgq run MODULE:OBJECT"
    found = pgq("doctor", "--jobs-waiting", "0", "--ticker-lag", "0.05", "--json").json
    (finding,) = [finding for finding in found if finding["check"] == "jobs"]
    assert (finding["severity"], finding["subject"]) == ("error", "queue emails")
    pgq("queue", "pause", "emails")
    assert pgq("status", "--jobs-waiting", "0", "--ticker-lag", "0.05").status == 0


def test_doctor_names_lanes_that_starve_lost_workers_and_what_was_given_up(pgq: Run, db: Database) -> None:
    pgq("jobs", "enqueue", "emails", "low", "--priority", "30")
    pgq("jobs", "enqueue", "emails", "high", "--priority", "150")
    pgq("jobs", "enqueue", "emails", "high", "--priority", "150")
    give_up(db)
    db.rows("update pgq.event_1 set ev_time = now() - interval '1 hour' where ev_type = 'low'")
    take(db)
    db.rows("select pgq.heartbeat('host:1:a', '{}', '1 second'), pgq.heartbeat('host:2:b', '{}', '1 hour')")
    db.rows("update pgq.worker set lost = true, ended_at = now() where worker = 'host:1:a'")
    found = {finding["check"]: finding for finding in pgq("doctor", "--json").json}
    assert found["lane"]["subject"] == "queue emails, priority 30"
    assert (found["worker"]["severity"], found["worker"]["subject"]) == ("info", "worker host:1:a")
    assert found["dead_letters"]["mend"] == "pgq jobs ls emails --state failed"
    assert "jobs" not in found
