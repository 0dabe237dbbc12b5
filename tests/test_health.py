"""The judgement behind `pgq status`: a moment's appearance is not a problem, a lasting one is."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pgq_py.client import Client
from pgq_py.health import Limits, examine
from tests.clusters import Database

pytestmark = pytest.mark.newest

STRICT = Limits(ticker=0.0, consumer=0.0)


@pytest.fixture
def client(db: Database) -> Iterator[Client]:
    db.rows("select pgq.create_queue('orders'), pgq.register_consumer('orders', 'mailer')")
    with Client(db.dsn) as found:
        yield found


def _nothing(seconds: float) -> None:
    """The second look follows at once."""


def _meanwhile(action: Callable[[], object]) -> Callable[[float], None]:
    return lambda _: (action(), None)[1]


def _kinds(client: Client, wait: Callable[[float], None]) -> list[str]:
    return [problem.kind for problem in examine(client, STRICT, wait=wait).problems]


def test_a_healthy_log_is_judged_at_once(client: Client) -> None:
    def never(seconds: float) -> None:
        raise AssertionError("looked again")

    health = examine(client, STRICT, wait=never)
    assert health.healthy
    assert [health.waiting(queue) for queue in health.queues] == [0]


def test_an_event_that_has_just_come(client: Client) -> None:
    client.send("orders", "x")
    assert _kinds(client, _nothing) == ["ticker"]
    assert _kinds(client, _meanwhile(client.tick_all)) == []


def test_a_queue_that_is_due_again_and_again_moves(client: Client) -> None:
    client.send("orders", "x")

    def tick_and_send() -> None:
        client.tick_all()
        client.send("orders", "y")

    assert "ticker" not in _kinds(client, _meanwhile(tick_and_send))


def test_a_consumer_that_wakes_after_an_idle_night(client: Client) -> None:
    client.send("orders", "x")
    client.tick_all()
    assert _kinds(client, _nothing) == ["consumer"]

    def consume() -> None:
        received = client.receive("orders", "mailer")
        assert received.batch_id is not None
        client.ack("orders", "mailer", received.batch_id)

    assert _kinds(client, _meanwhile(consume)) == []


def test_events_rolled_back_are_not_waiting(client: Client, db: Database) -> None:
    conn = db.connect(autocommit=False)
    client.send("orders", "x", conn=conn)
    conn.rollback()
    (queue,) = (health := examine(client, STRICT, wait=_nothing)).queues
    assert (queue.ev_new or 0) > 0
    assert health.waiting(queue) == 0
