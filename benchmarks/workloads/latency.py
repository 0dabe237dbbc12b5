"""How long does a message take, from the moment at which it was meant to be sent to its handler in another process?

Sender, receiver and whatever the peer needs in the background are processes of their own, commits are durable. The
sender is an open loop with seeded, independent arrivals: a stall is charged to every message that it kept waiting.

All peers are set up at once, and send for a few seconds each, in turn, again and again: where a machine's speed changes
within a minute, turns as long as that compare what the machine did. While one sends, the others wait for messages, as
they do when nothing happens; `idle` says what that costs.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from math import ceil

from benchmarks.harness.aims import ratios
from benchmarks.harness.arena import Arena, Contestant, Request, arena, attempt
from benchmarks.harness.numbers import Numbers
from benchmarks.harness.outcome import Check, Outcome
from benchmarks.workloads.live import Live
from pgq_py.bench.histogram import Percentiles

__all__ = ["Parameters", "run"]


@dataclass(frozen=True, slots=True)
class Parameters:
    """Messages a second; seconds of each round that are measured, for each peer; rounds.

    At a low rate it takes longer than `seconds`, until there are `messages`: of few, the 99th percentile is one of the
    two or three slowest. A round begins with `warm_up` seconds, and is sent in slices of at most `slice` seconds; what
    is due in the `run_up` of a slice is sent and received, and not counted.
    """

    rates: tuple[float, ...] = (20, 200, 1000)
    seconds: float = 20.0
    warm_up: float = 2.0
    rounds: int = 3
    messages: int = 0
    slice: float = 2.5
    run_up: float = 0.5

    def slices(self, rate: float) -> tuple[int, float]:
        """How many in a round, and the seconds that are measured of each."""
        seconds = max(self.seconds, self.messages / rate)
        count = max(1, ceil(seconds / self.slice))
        return count, seconds / count


@dataclass(slots=True)
class _Course:
    """One peer's round: what it has sent so far, and from when on each slice counts."""

    contestant: Contestant
    live: Live
    first: int
    sent: int = 0
    counted: list[tuple[float, float]] = field(default_factory=list)

    def send(self, rate: float, run_up: float, seconds: float, seed: int) -> None:
        """One slice; returns when all of it has arrived, or in vain after some seconds."""
        sent = self.live.send(self.first + self.sent, rate, run_up + seconds, seed)
        self.live.settle()
        self.sent += sent.count
        if seconds:
            self.counted.append((sent.start + run_up, sent.start + run_up + seconds))

    def counts(self, due: float) -> bool:
        return any(begin <= due < end for begin, end in self.counted)


def run(parameters: Parameters, request: Request) -> Outcome:
    """Every rate in turn; there is no round 0, each has its own warm-up."""
    numbers = Numbers()
    with arena("latency", ("live",), request, asdict(parameters), consumers=1) as found:
        for rate in parameters.rates:
            for nth in range(parameters.rounds):
                _round(found, parameters, rate, nth, numbers)
        found.outcome.ratios.extend(ratios(found.outcome))
        return found.outcome


def _round(found: Arena, parameters: Parameters, rate: float, nth: int, numbers: Numbers) -> None:
    count, seconds = parameters.slices(rate)
    what = f"latency at {rate:g}/s, round {nth + 1} of {parameters.rounds}"
    courses: list[_Course] = []

    def enter(contestant: Contestant) -> None:
        # twice what is expected: arrivals are random
        most = 100 + int(2 * rate * (parameters.warm_up + count * (parameters.run_up + seconds)))
        live = stack.enter_context(Live(contestant))
        courses.append(_Course(contestant, live, numbers.take(most)))
        courses[-1].send(rate, parameters.warm_up, 0, found.request.seed + nth)

    with ExitStack() as stack:
        total = len(found.contestants)
        for place, contestant in enumerate(list(found.contestants)):
            found.request.progress(f"{what}, set up", place, total)
            attempt(found, contestant, what, partial(enter, contestant))
        for number in range(count):
            found.request.progress(what, number, count)
            seed = found.request.seed + parameters.rounds + nth * count + number
            for course in courses:
                if course.contestant in found.contestants:
                    send = partial(course.send, rate, parameters.run_up, seconds, seed)
                    attempt(found, course.contestant, what, send)
        for course in courses:
            if course.contestant in found.contestants:
                attempt(found, course.contestant, what, partial(_collect, found.outcome, course, rate))
        found.request.progress(what, count, count)


def _collect(outcome: Outcome, course: _Course, rate: float) -> None:
    name = course.contestant.name
    spent, received = course.live.collect()
    outcome.checks.append(Check.of(name, f"{rate:g}/s", course.first, course.sent, received))
    found = _percentiles((at - due for due, at in received["times"] if course.counts(due)))
    sending = _percentiles((seconds for due, seconds in spent if course.counts(due)))
    for figure in ("p50", "p90", "p99", "max"):
        outcome.add(name, f"{figure} at {rate:g}/s", found[figure], "ms", "lower")
    outcome.add(name, f"send call p50 at {rate:g}/s", sending["p50"], "ms", "lower")


def _percentiles(seconds: Iterable[float]) -> dict[str, float]:
    found = Percentiles.of(seconds)
    return {"p50": found.p50_ms, "p90": found.p90_ms, "p99": found.p99_ms, "max": found.max_ms}
