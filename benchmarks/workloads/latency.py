"""How long does a message take, from the moment at which it was meant to be sent to its handler in another process?

Sender, receiver and whatever the peer needs in the background are processes of their own, commits are durable. The
sender is an open loop with seeded, independent arrivals: a stall is charged to every message that it kept waiting.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from benchmarks.harness.aims import ratios
from benchmarks.harness.arena import Contestant, Request, arena, turns
from benchmarks.harness.numbers import Numbers
from benchmarks.harness.outcome import Check, Outcome
from benchmarks.workloads.live import Live
from pgq_py.bench.histogram import Percentiles

__all__ = ["Parameters", "run"]


@dataclass(frozen=True, slots=True)
class Parameters:
    """Messages a second, seconds that are measured after `warm_up` others, turns. At a low rate it takes longer than
    `seconds`, until there are `messages`: of few, the 99th percentile is one of the two or three slowest."""

    rates: tuple[float, ...] = (20, 200, 1000)
    seconds: float = 20.0
    warm_up: float = 2.0
    rounds: int = 3
    messages: int = 0

    def total(self, rate: float) -> float:
        """Seconds of sending at a rate, with warm-up."""
        return self.warm_up + max(self.seconds, self.messages / rate)


def run(parameters: Parameters, request: Request) -> Outcome:
    """Every rate in turn. There is no round 0: each turn has its own warm-up."""
    numbers = Numbers()
    with arena("latency", ("live",), request, asdict(parameters), consumers=1) as found:
        for rate in parameters.rates:

            def turn(contestant: Contestant, nth: int, rate: float = rate) -> None:
                if nth:
                    _measure(found.outcome, contestant, parameters, rate=rate, seed=request.seed + nth, numbers=numbers)

            turns(found, parameters.rounds, f"latency at {rate:g}/s", "live", turn)
        found.outcome.ratios.extend(ratios(found.outcome))
        return found.outcome


def _measure(
    outcome: Outcome, contestant: Contestant, parameters: Parameters, *, rate: float, seed: int, numbers: Numbers
) -> None:
    with Live(contestant) as live:
        total = parameters.total(rate)
        first = numbers.take(int(rate * total * 2) + 100)
        sent = live.send(first, rate, total, seed)
        report, received = live.collect()
    outcome.checks.append(Check.of(contestant.name, f"{rate:g}/s", first, sent.count, received))
    begin = sent.start + parameters.warm_up
    found = _percentiles((at - due for due, at in received["times"] if due >= begin))
    sending = _percentiles((spent for due, spent in report["spent"] if due >= begin))
    for name in ("p50", "p90", "p99", "max"):
        outcome.add(contestant.name, f"{name} at {rate:g}/s", found[name], "ms", "lower")
    outcome.add(contestant.name, f"send call p50 at {rate:g}/s", sending["p50"], "ms", "lower")


def _percentiles(seconds: Iterable[float]) -> dict[str, float]:
    found = Percentiles.of(seconds)
    return {"p50": found.p50_ms, "p90": found.p90_ms, "p99": found.p99_ms, "max": found.max_ms}
