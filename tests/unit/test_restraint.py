"""Claims that bring little: rare ones follow at once, and a stream of them takes half of the time."""

from __future__ import annotations

import pytest

from pgq_py.jobs.worker.restraint import AHEAD, LONGEST, SHARE, Restraint


def claims_within(restraint: Restraint, seconds: float, took: float, start: float = 100.0) -> int:
    """So many claims of a worker that is told of the next job before the last claim has ended."""
    now, claims = start, 0
    while True:
        now = max(now, now + restraint.left(now))
        if now >= start + seconds:
            return claims
        restraint.claimed(now, now + took)
        now += took
        claims += 1


def test_the_first_claim_waits_for_nothing() -> None:
    assert Restraint().left(0.0) <= 0
    assert Restraint(gather=1).left(0.0) <= 0


def test_claims_that_come_close_together_by_chance_do_not_wait() -> None:
    restraint, now = Restraint(), 100.0
    for _ in range(12):
        assert restraint.left(now) <= 0
        restraint.claimed(now, now + 0.002)
        now += 0.002


@pytest.mark.parametrize("took", [0.0005, 0.002, 0.005])
def test_a_stream_of_claims_takes_its_share_of_the_time(took: float) -> None:
    ahead = AHEAD / took
    assert 10 * SHARE / took <= claims_within(Restraint(), 10, took) <= 10 * SHARE / took + ahead + 1


def test_rest_earns_no_more_than_what_may_follow_at_once() -> None:
    restraint = Restraint()
    claims_within(restraint, 1, 0.002)
    assert claims_within(restraint, 1, 0.002, start=1000.0) <= SHARE / 0.002 + AHEAD / 0.002 + 1


def test_a_claim_that_had_to_wait_is_paid_once() -> None:
    restraint = Restraint()
    restraint.claimed(100.0, 101.0)
    assert restraint.left(101.0) <= 0
    restraint.claimed(101.0, 101.0 + LONGEST)
    assert restraint.left(101.0 + LONGEST) <= 0


def test_gathering_keeps_claims_apart() -> None:
    restraint = Restraint(gather=0.25)
    restraint.claimed(100.0, 100.001)
    assert restraint.left(100.001) == pytest.approx(0.249)
    assert restraint.left(100.25) <= 0
    assert claims_within(Restraint(gather=0.25), 10, 0.002) == 40
