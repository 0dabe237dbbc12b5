"""What do a tick, a claim and an acknowledgement cost when there is much of everything?

Each point has a database of its own with so many queues, so many consumers of one of them, and a backlog that another
consumer of that queue has not read. Then one message at a time is sent and brought through, and each step is timed. A
cost that does not depend on the number stays flat.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median
from typing import Final

from benchmarks.harness.arena import Arena, Contestant, Request, solo
from benchmarks.harness.outcome import Outcome

__all__ = ["Parameters", "run"]

_PATIENCE: Final = 900.0


@dataclass(frozen=True, slots=True)
class Parameters:
    """Points along each axis; the other two stay at their first. `steps` messages a point, after `warm_up` others."""

    queues: tuple[int, ...] = (1, 100, 1000)
    consumers: tuple[int, ...] = (1, 10, 100)
    backlog: tuple[int, ...] = (0, 10_000, 100_000, 1_000_000)
    steps: int = 50
    warm_up: int = 5

    def points(self) -> dict[str, tuple[int, int, int]]:
        """Queues, consumers and backlog of each point, by what is said of it."""
        first = self.queues[0], self.consumers[0], self.backlog[0]
        return {
            **{f"{value} queues": (value, first[1], first[2]) for value in self.queues},
            **{f"{value} consumers": (first[0], value, first[2]) for value in self.consumers},
            **{f"{value} backlog": (first[0], first[1], value) for value in self.backlog},
        }


def run(parameters: Parameters, request: Request) -> Outcome:
    """Every point for every peer."""

    def point(found: Arena, contestant: Contestant, case: tuple[str, tuple[int, int, int]]) -> None:
        label, (queues, consumers, backlog) = case
        control = contestant.control
        control.ask("populate", timeout=_PATIENCE, queues=queues, consumers=consumers, backlog=backlog)
        count = parameters.warm_up + parameters.steps
        steps = control.ask("steps", timeout=_PATIENCE, first=0, count=count, seed=request.seed)
        _add(found.outcome, contestant.name, label, steps[parameters.warm_up :])

    points = {label: (label, sizes) for label, sizes in parameters.points().items()}
    return solo("scale", "scale", request, asdict(parameters), cases=points, run=point)


def _add(outcome: Outcome, peer: str, label: str, steps: list[dict[str, float]]) -> None:
    """Three medians for each step of the way, which show the spread."""
    for name in steps[0]:
        for part in (steps[nth::3] for nth in range(3)):
            if part:
                outcome.add(peer, f"{name}, {label}", median(step[name] for step in part), "ms", "lower")
