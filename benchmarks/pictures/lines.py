"""Lines: what happened second by second while a horizon was held, and what things cost as they grow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

from benchmarks.pictures.style import figure, look, order, save, title_of

__all__ = ["draw_scale", "draw_series", "scenarios"]

_PANELS: Final = (
    ("dead_tuples", "dead tuples", 1.0, "symlog"),
    ("bytes", "size, MiB", 2**20, "linear"),
    ("received", "received a second", 1.0, "linear"),
    ("p99_ms", "p99, ms", 1.0, "log"),
    ("bystander_p99_ms", "bystander p99, ms", 1.0, "log"),
)
_SMOOTH: Final = 5
"""Medians of so many seconds, means of the throughput, which comes in bursts: single seconds are too noisy."""


def scenarios(result: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(series["scenario"] for series in result["series"]))


def draw_series(result: dict[str, Any], scenario: str, path: Path) -> Path:
    """All peers of one scenario over time, a panel for each column; the time in which it was held is grey."""
    chosen = {series["peer"]: series for series in result["series"] if series["scenario"] == scenario}
    with figure(len(_PANELS), 1, (10, 2.1 * len(_PANELS) + 1.4)) as (found, axes):
        found.suptitle(f"{result['parameters']['rate']:g} messages/s, horizon: {scenario}", fontsize=12, weight="bold")
        for (column, label, unit, scale), axis in zip(_PANELS, axes.flat, strict=True):
            for peer in order(list(chosen)):
                _line(result, axis, chosen[peer], column, unit)
            _dress(axis, label, scale)
            _shade(result, axis, scenario)
            axis.set_xlim(0, _end(result))
        axes.flat[-1].set_xlabel(f"seconds since the first message; every point stands for {_SMOOTH} seconds around it")
        handles, labels = axes.flat[0].get_legend_handles_labels()
        found.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
        return save(found, path)


def _line(result: dict[str, Any], axis: Any, series: dict[str, Any], column: str, unit: float) -> None:
    place = series["columns"].index(column)
    points = [(row[0], row[place] / unit) for row in series["rows"] if row[place] is not None]
    if not points:
        return
    seconds, values = zip(*points, strict=True)
    seen = look(series["peer"])
    width = 2.0 if result["peers"][series["peer"]]["kind"] == "ours" else 1.2
    every = max(1, len(seconds) // 12)
    style = {"color": seen.colour, "linestyle": seen.dash, "marker": seen.marker, "markersize": 4, "markevery": every}
    smooth = fmean if column == "received" else median
    axis.plot(seconds, _smoothed(values, smooth), label=title_of(result, series["peer"]), linewidth=width, **style)


def _smoothed(values: Sequence[float], smooth: Callable[[Sequence[float]], float]) -> list[float]:
    half = _SMOOTH // 2
    return [smooth(values[max(0, nth - half) : nth + half + 1]) for nth in range(len(values))]


def _dress(axis: Any, label: str, scale: str) -> None:
    if scale == "symlog":
        axis.set_yscale("symlog", linthresh=10)
        axis.set_ylim(bottom=0)
    elif scale == "log":
        axis.set_yscale("log")
    else:
        axis.set_ylim(bottom=0)
    axis.set_ylabel(label if scale == "linear" else f"{label}\n(logarithmic)")


def _end(result: dict[str, Any]) -> float:
    parameters = result["parameters"]
    return float(parameters["before"] + parameters["during"] + parameters["after"])


def _shade(result: dict[str, Any], axis: Any, scenario: str) -> None:
    if scenario != "free":
        before = result["parameters"]["before"]
        axis.axvspan(before, before + result["parameters"]["during"], color="#eeeeee", zorder=0, label="held")


def draw_scale(result: dict[str, Any], along: str, path: Path) -> Path | None:
    """What each step costs, along one axis; None when it was not measured."""
    points: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for entry in result["figures"]:
        step, _, where = entry["figure"].rpartition(", ")
        value, _, name = where.partition(" ")
        if name == along:
            points.setdefault(step, {}).setdefault(entry["peer"], []).append((int(value), entry["median"]))
    if not points:
        return None
    with figure(1, len(points), (4.2 * len(points), 3.6)) as (found, axes):
        found.suptitle(f"cost of a step against {along}", fontsize=12, fontweight="bold")
        for axis, (step, peers) in zip(axes.flat, points.items(), strict=True):
            for peer in order(list(peers)):
                values, costs = zip(*sorted(peers[peer]), strict=True)
                seen = look(peer)
                axis.plot(values, costs, color=seen.colour, linestyle=seen.dash, marker=seen.marker, label=peer)
            axis.set_title(step, fontsize=10)
            axis.set_xscale("symlog", linthresh=1)
            axis.set_ylim(bottom=0)
            axis.set_xlabel(f"{along} (logarithmic)")
            axis.set_ylabel("ms")
        handles, labels = axes.flat[0].get_legend_handles_labels()
        found.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
        return save(found, path)
