"""A network that drops packets without a word: neither side is told that the other one is gone (scenario 15).

The consumers run in a network namespace of their own, whose cable is unplugged on the server's side.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO

import psycopg
import pytest

from pgq_py import schema
from pgq_py.app import PgQ
from pgq_py.embedded import Server
from tests.clusters import SETTINGS
from tests.waiting import wait_until

pytestmark = [pytest.mark.newest, pytest.mark.slow, pytest.mark.crash]

CONSUMER = """
import sys
from pgq_py import PgQ
pgq = PgQ()
@pgq.consumer("orders", name=sys.argv[1], exactly_once=True)
def note(event, tx):
    tx.execute("insert into effect values (%s, %s)", [sys.argv[1], event.id])
pgq.run()
"""

NOTICED_WITHIN = 30.0


class Cable:
    """A namespace, and the link between it and this machine. Addresses are of a block reserved for tests."""

    def __init__(self) -> None:
        number = os.getpid() % 0x3FFF
        self.namespace, self._plug = f"pgq-{number}", f"pgqa{number}"
        base = f"198.18.{number >> 6}."
        self.server, self.client = f"{base}{number % 64 * 4 + 1}", f"{base}{number % 64 * 4 + 2}"
        _ip(f"netns add {self.namespace}")
        try:
            _ip(f"link add {self._plug} type veth peer name cable netns {self.namespace}")
            _ip(f"addr add {self.server}/30 dev {self._plug}")
            _ip(f"-n {self.namespace} addr add {self.client}/30 dev cable")
            _ip(f"-n {self.namespace} link set cable up")
            self.plug_in()
        except subprocess.CalledProcessError:
            self.remove()
            raise

    def plug_in(self) -> None:
        _ip(f"link set {self._plug} up")

    def unplug(self) -> None:
        _ip(f"link set {self._plug} down")

    def remove(self) -> None:
        _ip(f"netns del {self.namespace}")


def _ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True, capture_output=True)


@pytest.fixture
def cable() -> Iterator[Cable]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and iproute2, for a network namespace")
    try:
        made = Cable()
    except subprocess.CalledProcessError as exc:
        pytest.skip(f"no network namespaces here: {exc.stderr.decode().strip()}")
    yield made
    made.remove()


@pytest.fixture
def server(cable: Cable) -> Iterator[Server]:
    """A server that listens on the cable, and lets the other end in."""
    with Server(settings={**SETTINGS, "listen_addresses": cable.server}) as started:
        assert started.directory is not None
        with Path(started.directory, "data", "pg_hba.conf").open("a") as hba:
            hba.write(f"host all all {cable.client}/32 trust\n")
        with psycopg.connect(started.dsn(), autocommit=True) as conn:
            conn.execute("select pg_reload_conf()")
            schema.install(conn)
            conn.execute("create table effect (consumer text, ev_id bigint)")
        yield started


def start(cable: Cable, server: Server, name: str, self_tick_after: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
    """A consumer at the other end of the cable."""
    command = ["ip", "netns", "exec", cable.namespace, sys.executable, "-c", CONSUMER, name]
    dsn = f"host={cable.server} port={server.port} user=postgres dbname=postgres"
    environment = {**os.environ, "PGQ_DSN": dsn, "PGQ_SELF_TICK_AFTER": self_tick_after}
    return subprocess.Popen(command, cwd=Path(__file__).parents[2], env=environment, stdout=log, stderr=log)


def test_a_half_open_connection_is_noticed_and_replaced(cable: Cable, server: Server, tmp_path: Path) -> None:
    """One consumer only listens, the other one asks again and again: keepalives save the first, a time-out the second,
    whose statement gets no answer."""
    logs = {"listening": tmp_path / "listening.log", "asking": tmp_path / "asking.log"}
    with ExitStack() as stack, PgQ(server.dsn()) as pgq:
        pgq.create_queue("orders")
        for (name, path), interval in zip(logs.items(), ("3600", "0.05"), strict=True):
            process = start(cable, server, name, interval, stack.enter_context(path.open("wb")))
            stack.callback(process.wait)
            stack.callback(process.kill)
        wait_until(lambda: len(pgq.consumers("orders")) == 2, what="both are registered")
        _deliver(pgq, server, 1)

        unplugged = time.monotonic()
        cable.unplug()
        for name, path in logs.items():
            wait_until(partial(_says, path, "connection lost"), NOTICED_WITHIN, f"{name} noticed")
        assert time.monotonic() - unplugged < NOTICED_WITHIN
        cable.plug_in()
        _deliver(pgq, server, 2)


def _says(path: Path, words: str) -> bool:
    return words in path.read_text("utf-8")


def _deliver(pgq: PgQ, server: Server, total: int) -> None:
    """An event reaches both consumers, whose old sessions own nothing any more."""
    pgq.send("orders", total)
    pgq.force_tick("orders")
    pgq.tick("orders")
    with psycopg.connect(server.dsn(), autocommit=True) as conn:
        query = "select count(*) from effect where ev_id = %s"
        wait_until(lambda: conn.execute(query, [total]).fetchone() == (2,), what=f"event {total} at both consumers")
