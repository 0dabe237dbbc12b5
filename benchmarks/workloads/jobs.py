"""How fast are jobs done that do nothing?

Jobs are enqueued in bulk before any worker runs. Then one worker process, or two, drain them, each claiming 1, 10 or
100 at a time (frameworks that claim one by one: as many at once). The clock runs from the moment at which every worker
has been handed its first job to the one at which the database has no unfinished job any more, and counts the jobs
handed over in between. Every job must have reached a handler exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from time import monotonic, sleep
from typing import Any

from benchmarks.harness.aims import ratios
from benchmarks.harness.arena import Arena, Contestant, Request, arena, turns
from benchmarks.harness.numbers import Numbers
from benchmarks.harness.outcome import Check, Outcome
from benchmarks.harness.process import PeerFailed, PeerProcess
from benchmarks.harness.sizing import Sizing

__all__ = ["Parameters", "run"]

_LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Parameters:
    """`jobs` are drained at the largest claim; at 1 and 10 a share of them, for those are slower. `seconds` is how long
    a drain may take: a slower peer gets fewer jobs, found out in its warm-up."""

    jobs: int = 20_000
    processes: tuple[int, ...] = (1, 2)
    claims: tuple[int, ...] = (1, 10, 100)
    rounds: int = 3
    seconds: float = 5.0

    def of(self, claim: int) -> int:
        share = {1: 0.1, 10: 0.5}.get(claim, 1.0)
        return max(10, int(self.jobs * share))


def run(parameters: Parameters, request: Request) -> Outcome:
    """Every number of processes with every size of claim; `best` is the best size of each turn."""
    with arena("jobs", ("jobs",), request, asdict(parameters)) as found:
        drains = _Drains(found, parameters)
        for processes in parameters.processes:
            for claim in parameters.claims:
                label = _label(processes, claim)
                turns(found, parameters.rounds, label, "jobs", drains.turn(processes, claim))
            _add_best(found.outcome, parameters, processes)
        found.outcome.ratios.extend(ratios(found.outcome))
        return found.outcome


def _label(processes: int, claim: int) -> str:
    return f"drain, {processes} process{'es' if processes > 1 else ''}, n = {claim}"


def _add_best(outcome: Outcome, parameters: Parameters, processes: int) -> None:
    labels = [_label(processes, claim) for claim in parameters.claims]
    for peer in dict.fromkeys(peer for label in labels for peer in outcome.measured(label)):
        runs = [outcome.runs(peer, label) for label in labels if outcome.runs(peer, label)]
        for turn in zip(*runs, strict=False):
            label = f"drain, best, {processes} process{'es' if processes > 1 else ''}"
            outcome.add(peer, label, max(turn), "jobs/s", "higher")


class _Drains:
    def __init__(self, found: Arena, parameters: Parameters) -> None:
        self._found, self._parameters = found, parameters
        self._numbers = Numbers()
        self._sizing = Sizing(parameters.seconds)

    def turn(self, processes: int, claim: int) -> Any:
        label = _label(processes, claim)

        def run_turn(contestant: Contestant, nth: int) -> None:
            count = self._sizing.count(contestant.name, label, self._parameters.of(claim))
            rate = self._drain(contestant, processes, claim, count)
            self._sizing.measured(contestant.name, label, rate)
            if nth:
                self._found.outcome.add(contestant.name, label, rate, "jobs/s", "higher")

        return run_turn

    def _drain(self, contestant: Contestant, processes: int, claim: int, count: int) -> float:
        first = self._numbers.take(count)
        contestant.control.ask("make", first=first, count=count, seed=self._found.request.seed)
        with ExitStack() as stack:
            workers = [stack.enter_context(contestant.process()) for _ in range(processes)]
            for worker in workers:
                worker.ask("versions")  # its interpreter and libraries are loaded then
            contestant.control.ask("send", first=first, how="bulk")
            rate, summaries = drain(contestant, workers, claim)
        what = f"{_label(processes, claim)}, {count} jobs"
        self._found.outcome.checks.append(Check.of(contestant.name, what, first, count, *summaries))
        return rate


def drain(
    contestant: Contestant, workers: Sequence[PeerProcess], claim: int, patience: float = 60
) -> tuple[float, list[dict[str, Any]]]:
    """Have workers do `count` jobs that wait; jobs a second, and what each was handed.

    Raises PeerFailed when jobs are unfinished after `patience` seconds.
    """
    begin = asked = monotonic()
    starting = list(workers)
    for worker in workers:
        worker.tell("work", batch=claim)
    while contestant.control.ask("unfinished"):
        if monotonic() - begin > patience:
            raise PeerFailed(f"{contestant.name} still has unfinished jobs after {patience:g} s")
        for worker in [one for one in starting if one.has_answer]:
            worker.answer("work")  # one that could not start says why
            starting.remove(worker)
        sleep(_LOOK_SECONDS)
        asked = monotonic()
    end = asked  # what the answer is about; with some peers it takes a while
    for worker in starting:
        worker.answer("work")
    summaries = []
    for worker in workers:
        worker.ask("stop")
        summaries.append(worker.ask("received"))
    return rate_of([[at for _, at in summary["times"]] for summary in summaries], end), summaries


def rate_of(handled: Sequence[Sequence[float]], end: float) -> float:
    """Jobs a second from the moment at which all workers were at work: starting up is not part of it.

    When most was done before the last of them came, the moment is that of the first instead.
    """
    starts = [min(times) for times in handled if times]
    if not starts:
        return 0.0
    total = sum(len(times) for times in handled)
    for begin in (max(starts), min(starts)):
        done = sum(at > begin for times in handled for at in times)
        if done * 4 >= total:
            return done / (end - begin)
    return total / (end - min(starts))
