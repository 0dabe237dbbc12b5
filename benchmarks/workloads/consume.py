"""How fast do messages get out?

A log is filled, then one process reads it for each of 1, 3 or 10 consumers, one after the other, and acknowledges. A
queue without consumers of its own has a copy for each, which is why filling is measured as well: `sent and read` counts
deliveries over the time of both.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.harness.aims import ratios
from benchmarks.harness.arena import Arena, Contestant, Request, arena, turns
from benchmarks.harness.numbers import Numbers
from benchmarks.harness.outcome import Check, Outcome

__all__ = ["Parameters", "run"]


@dataclass(frozen=True, slots=True)
class Parameters:
    """Messages a turn, for one consumer; with more of them, so many that deliveries are about the same."""

    messages: int = 200_000
    consumers: tuple[int, ...] = (1, 3, 10)
    rounds: int = 5

    def of(self, consumers: int) -> int:
        return max(1, self.messages // consumers)


def run(parameters: Parameters, request: Request) -> Outcome:
    """An arena for each number of consumers, all in one result."""
    outcome: Outcome | None = None
    for consumers in parameters.consumers:
        needs = ("read",) if consumers == 1 else ("fanout",)
        with arena("consume", needs, request, asdict(parameters), consumers) as found:
            outcome = _join(found, outcome)
            _read_all(found, parameters, consumers)
    assert outcome is not None
    outcome.ratios.extend(ratios(outcome))
    return outcome


def _join(found: Arena, outcome: Outcome | None) -> Outcome:
    """Go on in the first arena's result."""
    if outcome is None:
        return found.outcome
    for name, facts in found.outcome.peers.items():
        outcome.peers.setdefault(name, facts)
    outcome.failures += found.outcome.failures
    found.outcome = outcome
    return outcome


def _read_all(found: Arena, parameters: Parameters, consumers: int) -> None:
    ability = "read" if consumers == 1 else "fanout"
    count, label = parameters.of(consumers), f"{consumers} consumer{'s' if consumers > 1 else ''}"
    numbers = Numbers()

    def turn(contestant: Contestant, nth: int) -> None:
        filling, reading = _turn(found, contestant, numbers.take(count), count, consumers)
        if nth:
            deliveries = count * consumers
            found.outcome.add(contestant.name, f"read, {label}", deliveries / reading, "messages/s", "higher")
            found.outcome.add(
                contestant.name, f"sent and read, {label}", deliveries / (filling + reading), "messages/s", "higher"
            )

    turns(found, parameters.rounds, label, ability, turn)


def _turn(found: Arena, contestant: Contestant, first: int, count: int, consumers: int) -> tuple[float, float]:
    """Seconds of filling and of reading."""
    control = contestant.control
    control.ask("make", first=first, count=count, seed=found.request.seed)
    filling: float = control.ask("send", first=first, how="bulk")
    control.ask("seal")
    reading = 0.0
    for nr in range(consumers):
        answer: dict[str, Any] = control.ask("read", consumer=nr)
        reading += answer["seconds"]
        found.outcome.checks.append(Check.of(contestant.name, f"consumer {nr} of {consumers}", first, count, answer))
    if contestant.peer.adapter.kind == "limit":
        control.ask("contents")
    return filling, reading
