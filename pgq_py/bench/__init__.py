"""The harness behind `pgq bench`: measurements that anyone can repeat, each ending in promises that hold or do not.

Rules of the house, so that a figure means something on any machine:

- Absolute figures move with the machine. What counts is a ratio between two ways of doing the same, measured in turns
  (A B A B) in one run; figures of different runs are never compared.
- Every figure comes with its spread. It is the median of several runs, after a warm-up that does not count.
- Durable commits: `synchronous_commit` and `fsync` are on. Settings, machine and versions are in the result.
- Each run has a server or at least a database of its own, gone afterwards.
- What was sent is counted at the other end. A fast loss is no result.
"""

from __future__ import annotations

from pgq_py.bench.consume import ConsumeParameters, ConsumeResult, run_consume
from pgq_py.bench.cycle import CycleParameters, CycleResult, run_cycle
from pgq_py.bench.produce import ProduceParameters, ProduceResult, run_produce
from pgq_py.bench.results import Line, Promise, Result, Spread
from pgq_py.bench.rounds import Progress, silent

__all__ = [
    "ConsumeParameters",
    "ConsumeResult",
    "CycleParameters",
    "CycleResult",
    "Line",
    "ProduceParameters",
    "ProduceResult",
    "Progress",
    "Promise",
    "Result",
    "Spread",
    "run_consume",
    "run_cycle",
    "run_produce",
    "silent",
]
