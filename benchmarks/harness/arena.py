"""The peers of a run, each with its database installed; and turns among them.

A peer that fails is taken out, with its words in the result, and the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.harness.catalog import Absent, Peer, choose, resolve
from benchmarks.harness.ground import DEBIAN, Ground, ground
from benchmarks.harness.outcome import Outcome
from benchmarks.harness.process import PeerFailed, PeerProcess
from pgq_py.bench.rounds import Progress, silent

__all__ = ["Arena", "Contestant", "Request", "arena", "attempt", "solo", "turns"]


@dataclass(frozen=True)
class Request:
    """What a run was asked for. `peers` None: all that can do it. `options` go to the adapters."""

    peers: Sequence[str] | None = None
    dsn: str | None = None
    bin_dir: Path | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    seed: int = 1
    progress: Progress = silent

    def server_binaries(self) -> Path | None:
        """As given; else Debian's PostgreSQL 15, where it is and PgQ's C code is wanted; else the embedded ones."""
        wanted = self.peers is None or "pgq" in self.peers
        return self.bin_dir or (DEBIAN if wanted and (DEBIAN / "postgres").exists() else None)


@dataclass
class Contestant:
    """One peer at work: its database, and the process that prepares, sends and looks on."""

    peer: Peer
    dsn: str
    control: PeerProcess
    options: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.peer.name

    @property
    def can(self) -> frozenset[str]:
        return self.peer.adapter.can

    def process(self) -> PeerProcess:
        """A further process of this peer, for a `with` block."""
        return PeerProcess(self.peer, self.dsn, self.options)


@dataclass
class Arena:
    """A ground and who is on it."""

    ground: Ground
    outcome: Outcome
    contestants: list[Contestant]
    request: Request


@contextmanager
def arena(
    workload: str, needs: Sequence[str], request: Request, parameters: dict[str, Any], consumers: int = 0
) -> Iterator[Arena]:
    """Peers that can do what is needed, installed and with their queue; all processes end with the block."""
    with ExitStack() as stack:
        place = stack.enter_context(ground(request.dsn, request.server_binaries()))
        outcome = Outcome(workload, {**parameters, "seed": request.seed}, place.facts)
        options = {**request.options, "server_major": place.major}
        names = list(choose(request.peers, needs))
        found = Arena(place, outcome, [], request)
        for nth, name in enumerate(names):
            request.progress("set up", nth, len(names))
            peer = resolve(name, options)
            if isinstance(peer, Absent):
                outcome.absent(peer)
            elif (ready := _enter(stack, place, outcome, peer=peer, options=options, consumers=consumers)) is not None:
                found.contestants.append(ready)
        request.progress("set up", len(names), len(names))
        yield found


def _enter(
    stack: ExitStack, place: Ground, outcome: Outcome, *, peer: Peer, options: Mapping[str, str], consumers: int
) -> Contestant | None:
    dsn = place.database(peer.name)
    control = stack.enter_context(PeerProcess(peer, dsn, options))
    try:
        control.ask("install")
        control.ask("prepare", consumers=consumers)
        outcome.present(peer, control.ask("versions"))
    except PeerFailed as exc:
        outcome.present(peer, {})
        outcome.fail(peer.name, "installation", str(exc))
        return None
    return Contestant(peer, dsn, control, options)


def attempt(found: Arena, contestant: Contestant, what: str, call: Callable[[], None]) -> bool:
    """Do it; a peer that fails is reported and leaves the arena."""
    try:
        call()
    except (PeerFailed, psycopg.Error) as exc:
        found.outcome.fail(contestant.name, what, str(exc))
        found.contestants.remove(contestant)
        return False
    return True


def turns(found: Arena, rounds: int, what: str, ability: str | None, run: Callable[[Contestant, int], None]) -> None:
    """A B A B: every peer in turn, `rounds` times after a round 0 that is a warm-up."""
    taking = [one for one in found.contestants if ability is None or ability in one.can]
    total = len(taking) * (rounds + 1)
    for nth in range(rounds + 1):
        for place, contestant in enumerate(taking):
            found.request.progress(what, nth * len(taking) + place, total)
            if contestant in found.contestants:
                attempt(found, contestant, what, partial(run, contestant, nth))
    found.request.progress(what, total, total)


def solo(
    workload: str,
    ability: str,
    request: Request,
    parameters: dict[str, Any],
    *,
    cases: Mapping[str, Any],
    run: Callable[[Arena, Contestant, Any], None],
) -> Outcome:
    """Every case with every peer, one after the other, each in a database that is dropped before the next."""
    with ground(request.dsn, request.server_binaries()) as place:
        outcome = Outcome(workload, {**parameters, "seed": request.seed}, place.facts)
        options = {**request.options, "server_major": place.major}
        peers = [resolve(name, options) for name in choose(request.peers, (ability,))]
        for nth, label in enumerate(cases):
            for number, peer in enumerate(peers):
                request.progress(workload, nth * len(peers) + number, len(cases) * len(peers))
                if isinstance(peer, Absent):
                    outcome.absent(peer)
                    continue
                dsn = place.database(peer.name)
                with PeerProcess(peer, dsn, options) as control:
                    contestant = Contestant(peer, dsn, control, options)
                    found = Arena(place, outcome, [contestant], request)
                    attempt(found, contestant, label, partial(_case, found, contestant, run, cases[label]))
                place.drop(dsn)
        request.progress(workload, 1, 1)
        return outcome


def _case(found: Arena, contestant: Contestant, run: Callable[[Arena, Contestant, Any], None], case: Any) -> None:
    contestant.control.ask("install")
    found.outcome.present(contestant.peer, contestant.control.ask("versions"))
    run(found, contestant, case)
