"""Of several consumers that hear of an event, one ticks."""

from __future__ import annotations

from pgq_py.client.turns import Turns


def test_who_is_overtaken_leaves_it_to_the_others_for_longer_and_longer() -> None:
    turns = Turns()
    left = []
    for _ in range(8):
        assert turns.take()
        turns.overtaken()
        left.append(0)
        while not turns.take():
            left[-1] += 1
        turns.found()
        turns.found()
    assert left == [1] * 8
    lost = []
    for _ in range(8):
        turns.take()
        turns.overtaken()
        lost.append(turns._leave)
        while turns._leave:
            assert not turns.take()
    assert lost == [1, 3, 7, 15, 31, 63, 63, 63]


def test_a_tick_of_somebody_else_counts_only_against_who_tried() -> None:
    turns = Turns()
    turns.overtaken()
    assert turns.are_mine
    assert turns.take()
    turns.found()
    turns.overtaken()
    assert turns.take()
    turns.overtaken()
    assert not turns.are_mine
