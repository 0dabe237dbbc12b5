"""The tables of `docs/benchmarks.md`, from committed results: figures are never typed by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.harness.shows import pretty

__all__ = ["BEGIN", "END", "replace", "tables"]

BEGIN = "<!-- results: made by `python -m benchmarks report DIR --into docs/benchmarks.md` -->"
END = "<!-- end of results -->"


def tables(results: Sequence[dict[str, Any]]) -> str:
    """The machine, the aims, and the figures of every workload."""
    return "\n".join(line for part in (_machine(results), _aims(results), *map(_figures, results)) for line in part)


def replace(page: str, results: Sequence[dict[str, Any]]) -> str:
    """The page with new tables between its marks. Raises ValueError when it has none."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError("the page has no marks between which results could stand")
    return f"{head}{BEGIN}\n\n{tables(results)}\n{END}{tail}"


def _machine(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    for result in results[:1]:
        machine, memory = result["machine"], (result["machine"]["memory_bytes"] or 0) / 2**30
        yield f"{machine['cpus']} processors ({machine['cpu']}), {memory:.0f} GiB of memory, {machine['system']};"
        yield f"Python {machine['python']}; {result['server']['version'].partition(' on ')[0]}."
        yield ""


def _aims(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield from _head("ratio", "of", "measured", "lowest, highest", "aim", "")
    for result in results:
        for ratio in result["ratios"]:
            if "aim" in ratio:
                bound = f"{'at least' if ratio['at_least'] else 'at most'} {ratio['aim']:g}"
                spread = f"{ratio['low']:.2f}, {ratio['high']:.2f}"
                pair = f"{ratio['ours']} / {ratio['theirs']}"
                verdict = "reached" if ratio["reached"] else "**missed**"
                yield f"| {ratio['figure']} | {pair} | {ratio['median']:.2f} | {spread} | {bound} | {verdict} |"
    yield ""


def _figures(result: dict[str, Any]) -> Iterator[str]:
    """Peers down the side and figures across would be too wide: a figure a row."""
    peers = [name for name, peer in result["peers"].items() if peer["present"]]
    entries = {(entry["figure"], entry["peer"]): entry for entry in result["figures"]}
    yield f"### {result['workload']}"
    yield ""
    yield from _head("figure", *peers)
    for name in dict.fromkeys(entry["figure"] for entry in result["figures"]):
        found = [entries.get((name, peer)) for peer in peers]
        unit = next(entry["unit"] for entry in found if entry)
        cells = " | ".join(pretty(entry["median"]) if entry else "" for entry in found)
        yield f"| {name}, {unit} | {cells} |"
    yield ""
    for name, peer in result["peers"].items():
        if not peer["present"]:
            yield f"Absent: {name}, because {peer['reason']}."
    for failure in result["failures"]:
        yield f"Failed: {failure['peer']} in {failure['what']}."
    yield ""


def _head(*names: str) -> Iterator[str]:
    yield "| " + " | ".join(names) + " |"
    yield "|---" * len(names) + "|"
