"""`pgq doctor`: each thing that can be wrong is named, and the command that it gives mends it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, LiteralString

import pytest
from psycopg.sql import SQL, Identifier

from pgq_py.health.paths import split_path
from pgq_py.health.surroundings import foreign_script, pooler
from tests.cli.driving import Answer, Run, background, run
from tests.clusters import Cluster, Database
from tests.waiting import wait_until

pytestmark = pytest.mark.newest

QUICK = ("--ticker-lag", "0.1")


def _findings(answer: Answer) -> dict[str, dict[str, Any]]:
    """By kind; at most one of each is expected."""
    found = answer.json
    by_kind = {finding["check"]: finding for finding in found}
    assert len(by_kind) == len(found)
    assert answer.status == (1 if any(finding["severity"] == "error" for finding in found) else 0)
    return by_kind


def _doctor(db: Database, *options: str, user: str = "postgres") -> dict[str, dict[str, Any]]:
    """Without what other tests do in the cluster at the same time."""
    found = _findings(run("doctor", *QUICK, *options, "--json", dsn=db.dsn_for(user)))
    return {kind: finding for kind, finding in found.items() if kind not in ("xmin", "roles", "catalog", "script")}


def _mend(db: Database, finding: dict[str, Any]) -> Answer | None:
    """Do what it says: a command of ours in a shell's words, or a statement."""
    mend = finding["mend"]
    if not mend.startswith("pgq "):
        db.connect().execute(mend)
        return None
    return run(*mend.split()[1:], dsn=db.dsn)


def test_nothing_is_wrong(pgq: Run, terminal: Run, db: Database) -> None:
    assert _doctor(db) == {}
    screen = terminal("doctor", env={"PATH": "/nonexistent"})
    assert screen.status == 0


def test_no_schema_and_an_old_one(empty_db: Database) -> None:
    missing = _doctor(empty_db)["schema"]
    assert missing["mend"] == "pgq install"
    _mend(empty_db, missing)
    assert _doctor(empty_db) == {}
    empty_db.rows("update pgq.migration set checksum = '' where version = 0")
    stale = _doctor(empty_db)["schema"]
    assert (stale["severity"], stale["mend"]) == ("warning", "pgq upgrade")
    _mend(empty_db, stale)
    empty_db.rows("delete from pgq.migration where version = (select max(version) from pgq.migration)")
    old = _doctor(empty_db)["schema"]
    assert (old["severity"], old["mend"]) == ("error", "pgq upgrade")
    empty_db.rows("insert into pgq.migration (version, name, checksum) values (9999, 'future', '')")
    assert _doctor(empty_db)["schema"]["mend"].startswith("pip install --upgrade")


def test_a_foreign_schema(empty_db: Database) -> None:
    empty_db.rows("create schema pgq")
    _mend(empty_db, _doctor(empty_db)["schema"])
    assert _doctor(empty_db)["schema"]["mend"] == "pgq install"


def test_nobody_ticks(pgq: Run, db: Database) -> None:
    db.rows("select pgq.create_queue('orders')")
    idle = _doctor(db)["ticker"]
    assert (idle["severity"], idle["mend"]) == ("warning", "pgq ticker")
    db.rows("select pgq.insert_event('orders', 't', 'x')")
    waiting = _doctor(db)["ticker"]
    assert (waiting["severity"], waiting["subject"]) == ("error", "queue orders")
    with background("ticker", dsn=db.dsn):
        wait_until(lambda: db.value("select last_tick_id from pgq.get_queue_info()") > 1, 20)
        assert _doctor(db) == {}


def test_delayed_events_that_nobody_releases(db: Database) -> None:
    db.rows("select pgq.create_queue('orders')")
    db.rows("select pgq.send('orders', 't', 'x', deliver_in => interval '1 hour')")
    assert _doctor(db)["ticker"]["severity"] == "warning"
    db.rows("select pgq.send('orders', 't', 'x', deliver_in => interval '300 milliseconds')")
    wait_until(lambda: db.value("select wait_ms from pgq.releases_due()") == 0)
    assert "delayed events" in _doctor(db)["ticker"]["what"]


def test_a_consumer_that_lags_or_was_evicted(db: Database) -> None:
    db.rows("select pgq.create_queue('orders'), pgq.register_consumer('orders', 'mail er')")
    db.rows("select pgq.insert_event('orders', 't', 'x')")
    db.rows("select pgq.ticker('orders')")
    lagging = _doctor(db, "--consumer-lag", "0.01")["consumer"]
    assert lagging["subject"] == "consumer orders/mail er"
    assert " behind, since 20" in lagging["what"]
    assert lagging["mend"] == "pgq consumer unregister orders 'mail er'"
    db.rows("insert into pgq.eviction values (1, 'old', now(), 7, '1 hour')")
    evicted = _doctor(db)["evicted"]
    assert "after tick 7" in evicted["what"]
    _mend(db, evicted)
    assert "evicted" not in _doctor(db)


def test_a_paused_queue_and_dead_letters(db: Database) -> None:
    db.rows("select pgq.create_queue('orders'), pgq.register_consumer('orders', 'mailer')")
    db.rows("select pgq.insert_event('orders', 't', 'x')")
    db.rows("select pgq.ticker('orders')")
    batch = db.value("select pgq.next_batch('orders', 'mailer')")
    db.rows("select pgq.nack('orders', 'mailer', %s, '{1}', 'broken', i_dead => true)", [batch])
    db.rows("select pgq.finish_batch(%s), pgq.pause_queue('orders')", [batch])
    db.rows("select pgq.insert_event('orders', 't', 'y')")
    found = _doctor(db)
    assert found["dead_letters"]["what"] == "it has 1 dead letter"
    answer = _mend(db, found["dead_letters"])
    assert answer
    assert answer.tsv[0]["reason"] == "broken"
    assert found["paused"]["severity"] == "warning"
    _mend(db, found["paused"])
    assert "paused" not in _doctor(db)


def test_a_dump_of_another_cluster(db: Database) -> None:
    db.rows("select pgq.create_queue('orders')")
    slot = "select tableoid::regclass::text from pgq.tick_ring where tick_queue = 1 order by tick_id desc limit 1"
    table = db.value(slot)
    with db.connect() as conn:
        future = "(pg_snapshot_xmax(tick_snapshot)::text::bigint + 1000000000)::text"
        conn.execute(
            f"insert into {table} select tick_queue, tick_id + 1, tick_time, "
            f"({future} || ':' || {future} || ':')::pg_snapshot, tick_event_seq, lo, hi, false "
            "from pgq.tick_ring where tick_queue = 1".encode()
        )
    found = _doctor(db)
    assert found["restored"]["severity"] == "error"
    first, second = found["restored"]["mend"].split(" && ")
    assert run(*first.split()[1:], "--yes", dsn=db.dsn).status == 0
    assert run(*second.split()[1:], dsn=db.dsn).status == 0
    assert "restored" not in _doctor(db)


def test_who_is_in_the_way(private_cluster: Cluster) -> None:
    """Of rotation and of vacuum: sessions and prepared transactions, and then nobody."""
    with private_cluster.database() as db:
        db.rows("select pgq.create_queue('orders')")
        writer = db.connect(autocommit=False, application_name="slow writer")
        writer.execute("select pgq.insert_event('orders', 't', 'x')")
        prepared = db.connect(autocommit=False)
        prepared.execute("select pgq.insert_event('orders', 't', 'y')")
        prepared.execute("prepare transaction 'it''s forgotten'")
        reader = db.connect(autocommit=False)
        reader.execute("set transaction isolation level repeatable read")
        reader.execute("select 1")
        wait_until(lambda: db.value("select pgq.rotate_queue('orders')") in ("blocked", "idle"))
        found = run("doctor", *QUICK, "--rotation-blocked", "0", "--json", dsn=db.dsn)
        assert found.status == 1
        culprits = [finding for finding in found.json if finding["check"] in ("rotation", "xmin")]
        assert {f"select pg_terminate_backend({conn.info.backend_pid})" for conn in (writer, reader)} <= {
            finding["mend"] for finding in culprits
        }
        assert {finding["severity"] for finding in culprits if finding["check"] == "xmin"} == {"info"}
        for mend in {finding["mend"] for finding in culprits}:
            _mend(db, {"mend": mend})
        after = run("doctor", *QUICK, "--rotation-blocked", "0", "--json", dsn=db.dsn).json
        assert not [finding for finding in after if finding["check"] == "rotation"]


def test_a_function_that_lost_its_search_path(db: Database) -> None:
    db.rows("alter function pgq.ticker(text) reset all")
    found = _doctor(db)["search_path"]
    assert (found["severity"], found["subject"]) == ("error", "pgq.ticker(text)")
    _mend(db, found)
    assert _doctor(db) == {}


def test_search_paths_in_which_names_mean_something_else(db: Database) -> None:
    """Whose path hides built-in names, or ours; and a path with another schema behind ours is nobody's business."""
    name = db.value("select current_database()")
    db.rows("create schema app")
    db.rows("create function app.send(text) returns int language sql as 'select 1'")
    hiding: tuple[LiteralString, ...] = ("app, pg_catalog", '"$user", app, "pgq"', "pg_catalog, app, pgq")
    for path in hiding:
        db.connect().execute(SQL("alter database {} set search_path = {}").format(Identifier(name), SQL(path)))
        found = _doctor(db)["search_path"]
        assert (found["severity"], found["subject"]) == ("warning", f"database {name}")
        _mend(db, found)
        assert "search_path" not in _doctor(db)
    harmless: tuple[LiteralString, ...] = ("pgq, app", "public, app")
    for path in harmless:
        db.connect().execute(SQL("alter database {} set search_path = {}").format(Identifier(name), SQL(path)))
        assert "search_path" not in _doctor(db)
    assert split_path('"$user", Public,"a ""b"", c"') == ["$user", "public", 'a "b", c']


def test_a_role_that_may_not_look(db: Database) -> None:
    db.rows("do $$ begin create role stranger login; exception when duplicate_object then null; end $$")
    refused = _doctor(db, user="stranger")["rights"]
    assert (refused["severity"], refused["mend"]) == ("error", 'grant pgq_admin to "stranger"')


def test_a_foreign_script_stands_before_ours(tmp_path: Path) -> None:
    for name, text in (("theirs", "import pgqueuer"), ("ours", "from pgq_py.cli import main")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pgq").write_text(text)
        (tmp_path / name / "pgq").chmod(0o755)
    theirs, ours = str(tmp_path / "theirs"), str(tmp_path / "ours")
    (finding,) = foreign_script({"PATH": f"{theirs}:{ours}"})
    assert theirs in finding.what
    assert finding.mend == f'export PATH={ours}:"$PATH"'
    assert list(foreign_script({"PATH": f"/nonexistent:{ours}:{theirs}"})) == []
    assert list(foreign_script({})) == []


def test_a_pooler_is_information() -> None:
    (finding,) = pooler(pooled=True)
    assert finding.severity == "info"
    assert list(pooler(pooled=False)) == []


def test_no_server() -> None:
    assert run("doctor", "--dsn", "host=/nonexistent").status == 3


def test_on_a_terminal_commands_stay_whole(terminal: Run, db: Database) -> None:
    db.rows("select pgq.create_queue('orders'), pgq.insert_event('orders', 't', 'x')")
    screen = terminal("doctor", *QUICK)
    assert screen.status == 1
    assert "error   queue orders: queue orders has events waiting" in screen.plain
    assert "   mend pgq ticker\n" in screen.plain
