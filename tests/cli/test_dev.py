"""`pgq dev`: a server, a ticker and an application, and nothing left of them."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.cli.driving import background, run
from tests.cli.shapes import check_shape
from tests.waiting import wait_until

pytestmark = pytest.mark.newest

SHOP = """
from pgq_py import PgQ
pgq = PgQ({dsn})

@pgq.consumer("orders", name="mailer", exactly_once=True)
def mail(event, tx):
    tx.execute("create table mails as select %s as data", [event.data])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_application_on_a_server_of_its_own(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "shop.py").write_text(SHOP.format(dsn=""))
    with background("dev", "shop:pgq", "--json", dsn=None, cwd=tmp_path) as process:
        assert process.stdout
        line = process.stdout.readline()
        check_shape(("dev", "--json"), line)
        dsn = json.loads(line)["dsn"]
        with psycopg.connect(dsn, autocommit=True) as conn:
            wait_until(lambda: conn.execute("select 1 from pgq.get_consumer_info('orders')").fetchone(), 20)
            conn.execute("select pgq.insert_event('orders', 't', 'hello')")
            wait_until(lambda: conn.execute("select to_regclass('mails') is not null").fetchone() == (True,), 20)
            assert run("status", dsn=dsn).status == 0
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert f"export PGQ_DSN='{dsn}'" in err
    assert not Path(str(conninfo_to_dict(dsn)["host"])).exists()


def test_without_an_application_and_over_tcp() -> None:
    with background("dev", "--tcp", dsn=None) as process:
        assert process.stdout
        dsn = process.stdout.readline().strip()
        assert "127.0.0.1" in dsn
        assert run("queue", "create", "orders", dsn=dsn).status == 0
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    assert run("queue", "ls", dsn=dsn).status == 3


def test_an_application_that_names_its_own_database(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP.format(dsn="'host=/elsewhere'"))
    answer = run("dev", "shop:pgq", cwd=tmp_path)
    assert (answer.status, answer.out) == (1, "")
    assert "a database of its own" in answer.err
    assert run("dev", "shop").status == 2
