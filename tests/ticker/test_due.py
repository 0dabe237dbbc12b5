"""The ticker's decisions: a grid that neither drifts nor makes up for anything, and patience with broken queues."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgq_py.ticker.due import RETRY_AFTER, next_beat, worth_trying

SECONDS = st.floats(min_value=0, max_value=1e6)


@given(SECONDS, SECONDS, st.floats(min_value=0.001, max_value=60))
def test_the_next_beat_is_ahead_and_no_further_than_one_interval(last: float, passed: float, interval: float) -> None:
    now = last + passed
    beat = next_beat(last, now, interval)
    assert beat == pytest.approx(last + round((beat - last) / interval) * interval)
    assert now - 1e-6 <= beat <= now + interval + 1e-6


def test_a_round_in_time_keeps_the_grid_and_a_late_one_leaves_beats_out() -> None:
    assert next_beat(10.0, 10.03, 0.05) == pytest.approx(10.05)
    assert next_beat(10.0, 10.12, 0.05) == pytest.approx(10.15)


def test_a_clock_that_stood_still_or_went_back() -> None:
    assert next_beat(10.0, 10.0, 0.05) == pytest.approx(10.05)
    assert next_beat(10.0, 9.0, 0.05) == pytest.approx(10.05)


def test_queues_that_have_just_failed_wait_their_turn() -> None:
    failed_at = {"broken": 100.0}
    assert worth_trying(["a", "broken", "b"], failed_at, 100.0 + RETRY_AFTER / 2) == ["a", "b"]
    assert worth_trying(["a", "broken", "b"], failed_at, 100.0 + RETRY_AFTER) == ["a", "broken", "b"]
