"""How pictures look: colours that colour-blind readers can tell apart, and a second sign beside each colour.

The colours are those of Okabe and Ito, but for their yellow, which is hard to see on white: two of Paul Tol's stand in.
There are more peers than colours, and some readers print in black, so a peer also has a hatch of its own for bars, and
a marker and a dash for lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.catalog import PEERS

__all__ = ["INK", "Look", "figure", "look", "save", "title_of"]

INK: Final = "#222222"
_BLACK, _ORANGE, _SKY, _GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
_BLUE, _RED, _PURPLE, _GREY = "#0072B2", "#D55E00", "#CC79A7", "#999999"
_WINE, _OLIVE = "#882255", "#999933"


@dataclass(frozen=True, slots=True)
class Look:
    """Colour, hatch of a bar, marker and dash of a line."""

    colour: str
    hatch: str
    marker: str
    dash: str


_LOOKS: Final = {
    "pgq-py": Look(_RED, "", "o", "-"),
    "pgq-py-jobs": Look(_RED, "//", "D", "--"),
    "pgq-py-jobs-sql": Look(_RED, "..", "D", ":"),
    "pgq": Look(_BLUE, "", "s", "-"),
    "pgque": Look(_SKY, "", "^", "-"),
    "pgque-tuned": Look(_SKY, "//", "v", "--"),
    "pgmq": Look(_GREEN, "", "P", "-"),
    "pgmq-notify": Look(_GREEN, "//", "X", "--"),
    "procrastinate": Look(_PURPLE, "", "*", "-"),
    "pgqueuer-asyncpg": Look(_ORANGE, "", "h", "-"),
    "pgqueuer-psycopg": Look(_ORANGE, "//", "H", "--"),
    "awa": Look(_WINE, "", "p", "-"),
    "oban": Look(_OLIVE, "..", "d", ":"),
    "skip-locked": Look(_BLACK, "", "x", "-."),
    "raw": Look(_GREY, "xx", "+", ":"),
}
_STRANGER: Final = Look(_GREY, "..", ".", "-")


def look(peer: str) -> Look:
    """The same for a peer in every picture."""
    return _LOOKS.get(peer, _STRANGER)


def order(peers: Iterator[str] | list[str]) -> list[str]:
    """As they are always shown: in the order of the catalog, others behind."""
    known = list(PEERS)
    return sorted(peers, key=lambda name: known.index(name) if name in known else len(known))


def title_of(result: dict[str, Any], peer: str) -> str:
    """What a peer is called in pictures."""
    title: str = result["peers"].get(peer, {}).get("title", peer)
    return title


@contextmanager
def figure(rows: int, columns: int, size: tuple[float, float]) -> Iterator[tuple[Any, Any]]:
    """A figure and its axes (always two-dimensional), closed afterwards; drawn without a display."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    settings: Any = {
        "font.size": 9,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "text.color": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#dddddd",
        "grid.linewidth": 0.6,
        "axes.axisbelow": True,
        "hatch.linewidth": 0.6,
        "svg.fonttype": "none",
        "svg.hashsalt": "bench",
    }
    with pyplot.rc_context(settings):
        found, axes = pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
        try:
            yield found, axes
        finally:
            pyplot.close(found)


def save(found: Any, path: Path) -> Path:
    """PATH.png and PATH.svg; the former's path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    png = path.with_name(path.name + ".png")
    found.savefig(png, dpi=130)
    found.savefig(path.with_name(path.name + ".svg"), metadata={"Date": None})
    return png
