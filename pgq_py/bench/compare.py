"""Two results of one benchmark side by side, such as before and after a change.

Rates of two runs say as much about the two machines, or the two moments, as about the code, so they are never compared.
What is compared are ratios: each was measured in turns within its own run, against something that did not change, such
as a raw COPY or another queue. Two ratios differ when their spreads do not overlap; else the difference is noise.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pgq_py.errors import InvalidArgument

__all__ = ["Comparison", "compare", "differences", "load"]

Verdict = Literal["same", "better", "worse"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One ratio in both results. `change` is B / A of the medians, less one."""

    figure: str
    a: float
    a_low: float
    a_high: float
    b: float
    b_low: float
    b_high: float
    change: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class _Ratio:
    median: float
    low: float
    high: float
    higher_is_better: bool


def load(path: Path) -> dict[str, Any]:
    """A result that a benchmark has written. Raises InvalidArgument for anything else."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as exc:
        raise InvalidArgument(f"{path} cannot be read: {exc}") from exc
    if not isinstance(found, dict) or "machine" not in found or not _name(found):
        raise InvalidArgument(f"{path} is not the result of a benchmark", advice="Write one with --json.")
    return found


def compare(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Comparison]:
    """The ratios that both have. Raises InvalidArgument for different benchmarks, and when there is none in common."""
    if _name(a) != _name(b):
        raise InvalidArgument(f"a result of {_name(a)} cannot be compared with one of {_name(b)}")
    first, second = dict(_ratios(a)), dict(_ratios(b))
    common = [name for name in first if name in second]
    if not common:
        raise InvalidArgument("the results have no ratio in common", advice="Rates of two runs are never compared.")
    return [_compared(name, first[name], second[name]) for name in common]


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """What else was different, and may be the cause: parameters, machine, versions, settings."""
    found = []
    for part in ("parameters", "machine", "server"):
        for name in dict.fromkeys([*a[part], *b[part]]):
            left, right = a[part].get(name), b[part].get(name)
            if left != right and name not in ("load", "settings"):
                found.append(f"{part}: {name}: {left} / {right}")
    for name, setting in a["server"]["settings"].items():
        if (other := b["server"]["settings"].get(name)) != setting:
            found.append(f"setting {name}: {setting} / {other}")
    return found


def _name(result: Mapping[str, Any]) -> str:
    return str(result.get("workload") or result.get("benchmark") or "")


def _ratios(result: Mapping[str, Any]) -> Iterator[tuple[str, _Ratio]]:
    """Of the benchmarks beside peers, a list; of our own, a table, and the promises where there is none."""
    if result.get("kind") == "peers":
        better = {(entry["figure"], entry["peer"]): entry["better"] == "higher" for entry in result["figures"]}
        for entry in result["ratios"]:
            name = f"{entry['figure']}: {entry['ours']} / {entry['theirs']}"
            higher = better.get((entry["figure"], entry["ours"]), True)
            yield name, _Ratio(entry["median"], entry["low"], entry["high"], higher)
        return
    for name, spread in result.get("ratios", {}).items():
        yield name, _Ratio(spread["median"], spread["low"], spread["high"], True)
    if "ratios" not in result:
        for promise in result["promises"]:
            measured = promise["measured"]
            yield promise["name"], _Ratio(measured, measured, measured, promise["at_least"])


def _compared(name: str, a: _Ratio, b: _Ratio) -> Comparison:
    change = b.median / a.median - 1 if a.median else 0.0
    verdict: Verdict = "same"
    if b.low > a.high:
        verdict = "better" if b.higher_is_better else "worse"
    elif b.high < a.low:
        verdict = "worse" if b.higher_is_better else "better"
    return Comparison(name, a.median, a.low, a.high, b.median, b.low, b.high, round(change, 4), verdict)
