"""`pgq capture ...`."""

from __future__ import annotations

import pytest

from tests.cli.driving import Run
from tests.clusters import Database

pytestmark = pytest.mark.newest


def test_add_ls_drop(pgq: Run, db: Database) -> None:
    db.rows("select pgq.create_queue('changes'); create table accounts (id int primary key, secret text)")
    added = pgq("capture", "add", "changes", "accounts", "--ignore", "secret")
    assert (added.status, added.out, added.err) == (0, "", "changes of accounts go into queue changes\n")
    again = pgq("capture", "add", "changes", "public.accounts", "--key", "id, secret", "--json")
    assert again.json == {"queue": "changes", "table": "public.accounts", "added": False}
    (row,) = pgq("capture", "ls").tsv
    assert row == {
        "queue": "changes",
        "table": "public.accounts",
        "key": "id,secret",
        "ignored": "",
        "enabled": "true",
    }
    assert pgq("capture", "ls", "other").tsv == []
    db.rows("insert into accounts values (1, 'x')")
    assert pgq("capture", "drop", "accounts", "--json").json == {"table": "accounts", "dropped": True}
    assert pgq("capture", "drop", "accounts").err == "changes of accounts were no events\n"
    db.rows("insert into accounts values (2, 'x')")
    assert db.value("select count(*) from pgq.event_template") == 1


def test_what_cannot_be_captured(pgq: Run, db: Database) -> None:
    db.rows("select pgq.create_queue('changes'); create table keyless (v text)")
    for args, message in (
        (("changes", "nowhere"), "pgq: no such table: nowhere\n"),
        (("changes", "keyless"), "pgq: no key for the changes of keyless\n"),
        (("changes", "keyless", "--key", "w"), "pgq: no key for the changes of keyless\n"),
        (("none", "keyless"), "pgq: No such queue\n"),
    ):
        refused = pgq("capture", "add", *args)
        assert refused.status == 1
        assert refused.err.startswith(message)
