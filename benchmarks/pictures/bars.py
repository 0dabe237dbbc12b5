"""Bars: a panel for each figure, a bar for each peer, the spread as a whisker, the median in digits at its end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.shows import pretty
from benchmarks.pictures.style import INK, figure, look, order, save, title_of

__all__ = ["draw_bars", "panels"]

_LOGARITHMIC_FROM: Final = 30.0
"""When the largest is so many times the smallest, the axis is logarithmic, and says so."""
_PER_ROW: Final = 3


def panels(result: dict[str, Any], figures: Sequence[str]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Those of the figures that somebody has, each with its entries in the order in which peers are shown."""
    found = []
    for name in figures:
        entries = {entry["peer"]: entry for entry in result["figures"] if entry["figure"] == name}
        if entries:
            found.append((name, [entries[peer] for peer in order(list(entries))]))
    return found


def draw_bars(result: dict[str, Any], figures: Sequence[str], path: Path, title: str) -> Path | None:
    """None when nobody has any of the figures."""
    chosen = panels(result, figures)
    if not chosen:
        return None
    columns = min(_PER_ROW, len(chosen))
    rows = math.ceil(len(chosen) / columns)
    most = max(len(entries) for _, entries in chosen)
    with figure(rows, columns, (4.6 * columns, rows * (1.1 + 0.3 * most))) as (found, axes):
        found.suptitle(title, fontsize=12, fontweight="bold")
        for nth, axis in enumerate(axes.flat):
            if nth < len(chosen):
                _panel(result, axis, *chosen[nth])
            else:
                axis.set_visible(False)
        return save(found, path)


def _panel(result: dict[str, Any], axis: Any, name: str, entries: list[dict[str, Any]]) -> None:
    medians = [entry["median"] for entry in entries]
    for place, entry in enumerate(entries):
        seen = look(entry["peer"])
        axis.barh(
            place, entry["median"], color=seen.colour, hatch=seen.hatch, edgecolor=INK, linewidth=0.4, height=0.72
        )
        spread = [[entry["median"] - entry["low"]], [entry["high"] - entry["median"]]]
        axis.errorbar(entry["median"], place, xerr=spread, color=INK, capsize=2, linewidth=0.9)
        axis.annotate(
            pretty(entry["median"]), (entry["high"], place), xytext=(4, 0), textcoords="offset points", va="center"
        )
    axis.set_yticks(range(len(entries)), [title_of(result, entry["peer"]) for entry in entries])
    axis.invert_yaxis()
    axis.grid(visible=False, axis="y")
    scale = _scale(axis, medians, max(entry["high"] for entry in entries))
    better = "more is better" if entries[0]["better"] == "higher" else "less is better"
    axis.set_xlabel(f"{entries[0]['unit']}{scale} - {better}")
    axis.set_title(name, fontsize=10)


def _scale(axis: Any, medians: Sequence[float], highest: float) -> str:
    """Room for the digits at the right; logarithmic when linear bars would vanish."""
    positive = [value for value in medians if value > 0]
    if len(positive) == len(medians) and max(positive) / min(positive) >= _LOGARITHMIC_FROM:
        axis.set_xscale("log")
        low = 10 ** math.floor(math.log10(min(positive)) - 0.3)
        axis.set_xlim(low, max(highest, low * 10) * (highest / low) ** 0.22)
        return ", logarithmic"
    axis.set_xlim(0, max(highest, 1e-9) * 1.25)
    axis.locator_params(axis="x", nbins=4)
    axis.xaxis.set_major_formatter(lambda value, _: pretty(value) if value else "0")
    return ""
