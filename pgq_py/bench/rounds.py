"""Turns: the ways to be compared run one after the other, again and again, so that both meet the same machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

__all__ = ["Progress", "alternate", "silent"]


class Progress(Protocol):
    """Told how far a stage of the benchmark is."""

    def __call__(self, stage: str, done: int, total: int) -> None: ...


def silent(stage: str, done: int, total: int) -> None:
    """For whoever does not watch."""


def alternate(
    ways: Mapping[str, Callable[[], float]], rounds: int, stage: str, progress: Progress
) -> dict[str, list[float]]:
    """Run every way `rounds` times in turns, after one round that does not count; what they returned, by way."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    total = len(ways) * (rounds + 1)
    for nth in range(rounds + 1):
        for place, (name, way) in enumerate(ways.items()):
            progress(stage, nth * len(ways) + place, total)
            figure = way()
            if nth > 0:
                taken[name].append(figure)
    progress(stage, total, total)
    return taken
