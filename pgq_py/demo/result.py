"""What goes into the demo and what comes out of it, for whoever shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pgq_py.demo.proof import Promise

__all__ = ["Options", "Result", "Sample"]


@dataclass(frozen=True)
class Options:
    """`seconds` of traffic from so many pgbench `clients`; without `dsn` on an embedded server."""

    seconds: int = 15
    clients: int = 4
    dsn: str | None = None

    @property
    def scale(self) -> int:
        """pgbench's: as many branches as clients, or they would wait for each other's row locks."""
        return self.clients

    @property
    def rotation_period(self) -> float:
        """Seconds: often enough to be seen. In production it is hours."""
        return min(1.0, self.seconds / 6)


@dataclass(frozen=True, slots=True)
class Sample:
    """How things are at one moment. `stage` says what is going on; the numbers are for the display."""

    stage: str
    elapsed: float = 0.0
    seconds: float = 0.0
    mirrored: int = 0
    counted: int = 0
    events_per_second: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    rotations: int = 0
    log_bytes: int = 0
    dead_tuples: int = 0
    horizon_age: int = 0
    worked: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome. `seconds` is how long the traffic took, `transactions` what pgbench says it committed, `events` what
    the mirror has applied, `jobs` those that took effect, latencies are from the `send` in the transaction to the
    handler, the commit included.
    """

    postgresql: str
    seconds: float
    clients: int
    transactions: int
    events: int
    events_per_second: float
    latency_ms: Mapping[str, float]
    rotations: int
    dead_tuples: int
    dead_tuples_elsewhere: int
    mirror_equal: bool
    consumers: Mapping[str, int]
    horizon_age: int
    promises: tuple[Promise, ...]
    jobs: int = 0

    @property
    def held(self) -> bool:
        """Whether every promise held."""
        return all(promise.held for promise in self.promises)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "ok": self.held,
            "events": self.events,
            "events_per_second": self.events_per_second,
            "latency_ms": dict(self.latency_ms),
            "rotations": self.rotations,
            "dead_tuples": self.dead_tuples,
            "mirror_equal": self.mirror_equal,
            "transactions": self.transactions,
            "jobs": self.jobs,
            "seconds": self.seconds,
            "clients": self.clients,
            "consumers": dict(self.consumers),
            "dead_tuples_elsewhere": self.dead_tuples_elsewhere,
            "horizon_age": self.horizon_age,
            "postgresql": self.postgresql,
            "promises": [{"name": p.name, "held": p.held, "text": p.text} for p in self.promises],
        }
