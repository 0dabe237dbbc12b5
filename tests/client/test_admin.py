"""Queues, ticks, rotation and information: each call's answer as a Python value."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from pgq_py import (
    BatchNotFound,
    ConsumerNotRegistered,
    ConsumersAttached,
    InvalidArgument,
    QueueNotFound,
    QueuePaused,
)
from pgq_py.app import PgQ
from tests.clusters import Database


def test_queues(pgq: PgQ) -> None:
    assert not pgq.create_queue("orders")
    assert pgq.create_queue("returns")
    assert [info.queue_name for info in pgq.queues()] == ["orders", "returns"]
    info = pgq.queue_info("orders")
    assert info.queue_ntables == 3
    assert isinstance(info.queue_switch_time, datetime)
    pgq.drop_queue("returns")
    with pytest.raises(QueueNotFound):
        pgq.queue_info("returns")


def test_a_queue_with_consumers_is_dropped_by_force_alone(pgq: PgQ) -> None:
    with pytest.raises(ConsumersAttached):
        pgq.drop_queue("orders")
    pgq.drop_queue("orders", force=True)
    assert pgq.queues() == []


def test_settings_of_a_queue(pgq: PgQ) -> None:
    pgq.set_queue_config("orders", "rotation_period", "10 minutes")
    assert pgq.queue_info("orders").queue_rotation_period == timedelta(minutes=10)
    pgq.set_queue_config("orders", "ticker_max_count", 7)
    assert pgq.queue_info("orders").queue_ticker_max_count == 7
    for parameter, value in [("no_such_parameter", "1"), ("ticker_max_count", "0"), ("rotation_period", "-1 hour")]:
        with pytest.raises(InvalidArgument):
            pgq.set_queue_config("orders", parameter, value)


def test_pause_and_resume(pgq: PgQ) -> None:
    assert pgq.pause_queue("orders")
    assert not pgq.pause_queue("orders")
    pgq.send("orders", "kept")
    with pytest.raises(QueuePaused):
        pgq.tick("orders")
    assert pgq.poke("orders") is None
    assert pgq.queues_due() == []
    assert pgq.resume_queue("orders")
    assert not pgq.resume_queue("orders")
    assert pgq.queues_due() == ["orders"]
    assert pgq.tick("orders") is not None
    assert pgq.tick("orders") is None


def test_ticks(pgq: PgQ) -> None:
    first = pgq.force_tick("orders")
    assert pgq.force_tick("orders") == first + 1
    assert pgq.tick_all() == 0
    pgq.send("orders", "x")
    assert pgq.tick_all() == 1
    pgq.send("orders", "x")
    assert pgq.poke("orders") == first + 3


def test_consumers_and_batches(pgq: PgQ) -> None:
    pgq.create_queue("returns")
    pgq.register_consumer("returns", "mailer")
    assert [(info.queue_name, info.consumer_name) for info in pgq.consumers()] == [
        ("orders", "mailer"),
        ("returns", "mailer"),
    ]
    assert [info.queue_name for info in pgq.consumers("returns")] == ["returns"]
    pgq.send("orders", "x")
    pgq.tick("orders")
    with pgq.batches("orders", "mailer", wait=0) as batches:
        batch = next(batches)
        info = pgq.batch_info(batch.id)
        assert (info.queue_name, info.consumer_name, info.tick_id) == ("orders", "mailer", batch.info.cur_tick_id)
        assert pgq.consumer_info("orders", "mailer").current_batch == batch.id
    with pytest.raises(BatchNotFound):
        pgq.batch_info(batch.id)
    with pytest.raises(ConsumerNotRegistered):
        pgq.consumer_info("orders", "nobody")


def test_rotation_and_rings(pgq: PgQ, db: Database) -> None:
    pgq.send("orders", "x")
    pgq.tick("orders")
    pgq.receive("orders", "mailer")
    (ring,) = [ring for ring in pgq.rings() if ring.ring == "event_1"]
    assert ring.queue_name == "orders"
    assert ring.bytes > 0
    assert pgq.rotate_queue("orders") == "switched"
    conn = db.connect(autocommit=False)
    conn.execute("select from pgq.event_1")
    blockers = [blocker for blocker in pgq.ring_blockers() if blocker.pid == conn.info.backend_pid]
    assert blockers
    assert blockers[0].datname == db.name
    assert {ring.queue_name for ring in pgq.rings() if ring.queue_name} == {"orders"}
