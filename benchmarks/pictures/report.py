"""The report: pictures beside the results, and one HTML file that carries them all within itself."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.shows import pretty
from benchmarks.pictures.bars import draw_bars
from benchmarks.pictures.lines import draw_scale, draw_series, scenarios
from benchmarks.workloads import QUESTIONS

__all__ = ["draw", "read_results", "write_report"]

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1080px; margin: 2em auto; padding: 0 1em; color: #222 }
img { max-width: 100%; height: auto } table { border-collapse: collapse; font-size: 13px; margin: 1em 0 }
th, td { border-bottom: 1px solid #ddd; padding: 3px 9px; text-align: right } th { border-bottom-color: #888 }
th:first-child, td:first-child, td.text, th.text { text-align: left } .missed { font-weight: bold }
small, .quiet { color: #666 } details { margin: .6em 0 } .wrong { border-left: 4px solid #D55E00; padding-left: .8em }
.scroll { overflow-x: auto }
"""


def write_report(directory: Path) -> Path:
    """Read all results in `directory`, draw them into its `pictures`, and write `report.html`; the path of that."""
    results = read_results(directory)
    body = "\n".join(part for result in results for part in _section(result, directory / "pictures"))
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>pgq-py beside its peers</title>
<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>
<body><h1>pgq-py beside its peers</h1>
{"".join(_opening(results))}
{body}
</body></html>
"""
    path = directory / "report.html"
    path.write_text(page)
    return path


def read_results(directory: Path) -> list[dict[str, Any]]:
    """The results in a directory, in the order of the questions; other files are left alone."""
    found = [json.loads(path.read_text()) for path in directory.glob("*.json")]
    results = [result for result in found if result.get("kind") == "peers"]
    return sorted(results, key=lambda result: list(QUESTIONS).index(result["workload"]))


def draw(result: dict[str, Any], directory: Path) -> Iterator[Path]:
    """The pictures of one result, as far as there is something to show."""
    name, names = result["workload"], list(dict.fromkeys(entry["figure"] for entry in result["figures"]))
    if name == "scale":
        found = [
            draw_scale(result, along, directory / f"scale-{along}") for along in ("queues", "consumers", "backlog")
        ]
        yield from (path for path in found if path)
        return
    if name == "bloat":
        for scenario in scenarios(result):
            yield draw_series(result, scenario, directory / f"bloat-{scenario.replace(' ', '-')}")
    if name == "latency":
        names = [figure for figure in names if figure.startswith(("p50", "p99"))]
    if name == "bloat":
        names = [figure for figure in names if figure.startswith(("dead tuples at most", "p99 late", "received late"))]
    if (path := draw_bars(result, names, directory / name, QUESTIONS[name])) is not None:
        yield path


def _opening(results: list[dict[str, Any]]) -> Iterator[str]:
    yield (
        "<p>Every figure is the median of several turns, taken alternately; whiskers and brackets show the lowest and "
        "the highest. Figures of one section were measured in one run on one server and may be compared with each "
        "other, and with nothing else. Who is absent was not measured, which says nothing about it.</p>"
    )
    yield from _aims(results)
    if results:
        facts = {**results[0]["machine"], "server": results[0]["server"]["version"]}
        yield _details("The machine", _pairs(facts))
        yield _details("Settings of the server", _pairs(results[0]["server"]["settings"]))
    peers: dict[str, dict[str, Any]] = {}
    for result in results:
        for name, peer in result["peers"].items():
            if peer["present"] or name not in peers:
                peers[name] = peer
    rows = [_peer(name, peer) for name, peer in peers.items()]
    yield _details("Who was measured, and how", _table(["peer", "versions", "use"], rows, text=3), opened=True)


def _peer(name: str, peer: dict[str, Any]) -> list[str]:
    if not peer["present"]:
        return [name, "absent", peer["reason"]]
    versions = ", ".join(f"{what} {version}" for what, version in peer["versions"].items())
    return [f"{name}: {peer['title']}", versions, peer["practice"]]


def _aims(results: list[dict[str, Any]]) -> Iterator[str]:
    rows = []
    for result in results:
        for ratio in result["ratios"]:
            if "aim" in ratio:
                bound = f"{'at least' if ratio['at_least'] else 'at most'} {ratio['aim']:g}"
                spread = f"{ratio['median']:.2f} [{ratio['low']:.2f} - {ratio['high']:.2f}]"
                verdict = "reached" if ratio["reached"] else "MISSED"
                rows.append([ratio["figure"], f"{ratio['ours']} / {ratio['theirs']}", spread, bound, verdict])
    if rows:
        yield "<h2>What this project aims at</h2>" + _table(["figure", "ratio of", "measured", "aim", ""], rows, text=2)


def _section(result: dict[str, Any], pictures: Path) -> Iterator[str]:
    name = result["workload"]
    yield f"<h2 id='{name}'>{html.escape(name)}</h2><p>{html.escape(QUESTIONS[name])}</p>"
    yield from _complaints(result)
    for path in draw(result, pictures):
        data = base64.b64encode(path.read_bytes()).decode()
        yield f"<p><img alt='{html.escape(path.stem)}' src='data:image/png;base64,{data}'></p>"
    yield _details("All figures", _figures(result))
    if result["ratios"]:
        rows = [
            [
                ratio["figure"],
                ratio["ours"],
                ratio["theirs"],
                f"{ratio['median']:.2f}",
                f"{ratio['low']:.2f}",
                f"{ratio['high']:.2f}",
            ]
            for ratio in result["ratios"]
            if "aim" not in ratio
        ]
        yield _details("All ratios", _table(["figure", "ours", "theirs", "ratio", "low", "high"], rows))
    yield _details("Parameters", _pairs(result["parameters"]))
    sent = sum(check["sent"] for check in result["checks"])
    good = sum(check["ok"] for check in result["checks"])
    yield f"<p class='quiet'>{good} of {len(result['checks'])} checks hold: {sent:,} messages sent and looked for.</p>"


def _complaints(result: dict[str, Any]) -> Iterator[str]:
    for check in result["checks"]:
        if not check["ok"]:
            counts = ", ".join(f"{check[what]:,} {what}" for what in ("missing", "doubled", "foreign"))
            text = f"{check['peer']}, {check['what']}: of {check['sent']:,} sent: {counts}"
            yield f"<p class='wrong'>{html.escape(text)}</p>"
    for failure in result["failures"]:
        line = (failure["error"].strip().splitlines() or [""])[0]
        text = f"{failure['peer']} failed in {failure['what']}: {line}"
        yield f"<p class='wrong'>{html.escape(text)}</p>"
    for note in result["notes"]:
        yield f"<p class='wrong'>{html.escape(note)}</p>"


def _figures(result: dict[str, Any]) -> str:
    peers = [name for name, peer in result["peers"].items() if peer["present"]]
    entries = {(entry["figure"], entry["peer"]): entry for entry in result["figures"]}
    rows = []
    for name in dict.fromkeys(entry["figure"] for entry in result["figures"]):
        found = [entries.get((name, peer)) for peer in peers]
        unit = next(entry["unit"] for entry in found if entry)
        rows.append([f"{name}, {unit}", *(_spread(entry) for entry in found)])
    return f"<div class='scroll'>{_table(['figure', *peers], rows)}</div>"


def _spread(entry: dict[str, Any] | None) -> str:
    if entry is None:
        return ""
    if len(entry["runs"]) == 1:
        return pretty(entry["median"])
    return f"{pretty(entry['median'])} [{pretty(entry['low'])} - {pretty(entry['high'])}]"


def _table(head: list[str], rows: list[list[str]], text: int = 1) -> str:
    """The first `text` columns are words, the others digits."""

    def cells(tag: str, row: list[str]) -> str:
        marks = [" class='text'" if nth < text else "" for nth in range(len(row))]
        return "".join(f"<{tag}{mark}>{html.escape(cell)}</{tag}>" for mark, cell in zip(marks, row, strict=True))

    body = "".join(f"<tr{_row_class(row)}>{cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{cells('th', head)}</tr></thead><tbody>{body}</tbody></table>"


def _row_class(row: list[str]) -> str:
    return " class='missed'" if row[-1] == "MISSED" else ""


def _pairs(facts: dict[str, Any]) -> str:
    return _table(["", ""], [[str(name), str(value)] for name, value in facts.items()], text=2)


def _details(title: str, content: str, *, opened: bool = False) -> str:
    return f"<details{' open' if opened else ''}><summary>{html.escape(title)}</summary>{content}</details>"
