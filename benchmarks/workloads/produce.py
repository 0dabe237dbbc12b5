"""How fast do messages get in?

One process of each peer in turn sends messages: one call and one commit each; one call each in a pipeline; through the
bulk API. Messages are rendered before the clock starts. After each turn everything that is stored is compared with what
was sent, and the queue is emptied.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from benchmarks.harness.aims import ratios
from benchmarks.harness.arena import Contestant, Request, arena, turns
from benchmarks.harness.numbers import Numbers
from benchmarks.harness.outcome import Check, Outcome
from benchmarks.harness.sizing import Sizing

__all__ = ["Parameters", "run"]

WAYS: Final = ("bulk", "pipelined", "single")


@dataclass(frozen=True, slots=True)
class Parameters:
    """Messages a turn, by way; turns that count. `seconds` is how long one may take: a slower peer sends fewer, found
    out in its warm-up."""

    bulk: int = 100_000
    pipelined: int = 20_000
    single: int = 1_000
    rounds: int = 5
    seconds: float = 5.0


def run(parameters: Parameters, request: Request) -> Outcome:
    """All ways of all peers."""
    with arena("produce", WAYS, request, asdict(parameters)) as found:
        numbers, sizing = Numbers(), Sizing(parameters.seconds)
        for way in WAYS:

            def turn(contestant: Contestant, nth: int, way: str = way) -> None:
                count = sizing.count(contestant.name, way, getattr(parameters, way))
                seconds, check = _send(contestant, way, numbers.take(count), count, request.seed)
                sizing.measured(contestant.name, way, count / seconds)
                found.outcome.checks.append(check)
                if nth:
                    found.outcome.add(contestant.name, way, count / seconds, "messages/s", "higher")

            turns(found, parameters.rounds, way, way, turn)
        found.outcome.ratios.extend(ratios(found.outcome))
        return found.outcome


def _send(contestant: Contestant, way: str, first: int, count: int, seed: int) -> tuple[float, Check]:
    control = contestant.control
    control.ask("make", first=first, count=count, seed=seed)
    seconds: float = control.ask("send", first=first, how=way)
    stored: dict[str, Any] = control.ask("contents")
    return seconds, Check.of(contestant.name, way, first, count, stored)
