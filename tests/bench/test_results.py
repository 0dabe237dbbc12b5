"""The harness itself: turns, spreads, promises. No server."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from pgq_py.bench.machine import Machine, Server
from pgq_py.bench.payloads import copy_chunks, payloads, texts
from pgq_py.bench.reader import peak_bytes
from pgq_py.bench.results import Line, Promise, Result, Run, Spread
from pgq_py.bench.rounds import alternate, silent

RUN = Run(
    benchmark="none",
    started_at=datetime(2030, 1, 1, tzinfo=UTC),
    seconds=1.5,
    parameters={"rounds": 2},
    machine=Machine("system", "cpu", 2, None, None, "python", "psycopg", "libpq", "0"),
    server=Server("PostgreSQL 18", 180000, True, {"fsync": "on"}),
)


def test_a_spread_is_the_median_with_its_neighbours() -> None:
    spread = Spread.of([3, 1, 2.00000049])
    assert spread == Spread(2.0, 1.0, 3.0, (3.0, 1.0, 2.0))
    with pytest.raises(ValueError, match="no measurement"):
        Spread.of([])


def test_a_ratio_is_of_pairs_not_of_medians() -> None:
    """Both of the second pair met a machine half as fast."""
    assert Spread.of_ratio([90, 45, 90], [100, 50, 100]) == Spread(0.9, 0.9, 0.9, (0.9, 0.9, 0.9))
    with pytest.raises(ValueError, match="zip"):
        Spread.of_ratio([1], [1, 2])


def test_ways_run_in_turns_and_the_first_turn_does_not_count() -> None:
    order: list[str] = []
    stages: list[tuple[str, int, int]] = []

    def way(name: str) -> float:
        order.append(name)
        return float(len(order))

    taken = alternate({"a": lambda: way("a"), "b": lambda: way("b")}, 2, "stage", lambda *report: stages.append(report))
    assert order == ["a", "b"] * 3
    assert taken == {"a": [3.0, 5.0], "b": [4.0, 6.0]}
    assert stages[0] == ("stage", 0, 6)
    assert stages[-1] == ("stage", 6, 6)
    silent("stage", 1, 2)


@pytest.mark.parametrize(
    ("measured", "bound", "at_least", "kept"),
    [(0.8, 0.8, True, True), (0.79, 0.8, True, False), (1.2, 1.2, False, True), (1, 0, False, False)],
)
def test_a_promise_is_a_bound(measured: float, bound: float, at_least: bool, kept: bool) -> None:
    promise = Promise("a share", measured, bound, at_least, "because")
    assert promise.kept is kept
    assert str(promise) == (
        f"a share: {measured:g}, promised is {'at least' if at_least else 'at most'} {bound:g} (because)"
    )


class Bare(Result):
    """A result without figures of its own."""

    def lines(self) -> list[Line]:
        return []


def test_a_result_is_one_json_object_with_its_circumstances() -> None:
    result = Bare(RUN, promises=(Promise("kept", 1, 1, True), Promise("broken", 2, 1, False)))
    found = json.loads(json.dumps(result.as_json()))
    assert found["format"] == 1
    assert found["benchmark"] == "none"
    assert found["started_at"] == "2030-01-01T00:00:00+00:00"
    assert found["parameters"] == {"rounds": 2}
    assert found["machine"]["cpus"] == 2
    assert found["server"]["settings"] == {"fsync": "on"}
    assert [promise["kept"] for promise in found["promises"]] == [True, False]
    assert found["ok"] is False
    assert "run" not in found


def test_a_line_shows_the_spread() -> None:
    assert Line.of("rate", Spread(2, 1, 3, (1, 2, 3)), "events/s") == Line("rate", 2, "events/s", 1, 3)


def test_payloads_are_the_same_for_the_same_seed() -> None:
    assert payloads(3, 1) == payloads(3, 1) != payloads(3, 2)
    chunks = copy_chunks(texts(payloads(5, 1)), 2)
    assert [chunk.count(b"\n") for chunk in chunks] == [2, 2, 1]
    assert json.loads(chunks[0].split(b"\n")[0].split(b"\t")[1])["id"] == 0


def test_the_peak_is_that_of_this_process() -> None:
    before = peak_bytes()
    block = bytearray(64 * 2**20)
    block[::4096] = b"x" * len(block[::4096])
    assert 1 * 2**20 < before < peak_bytes() < 4 * 2**30
