"""Outgoing events as rows of COPY's text format, rendered in blocks.

`Copy.write_row` would do for plain str (98 % of a raw COPY of finished rows), but making JSON costs the client about
what COPY costs the server, so that what is left has to be next to nothing: blocks of plain data, and of (type, data)
pairs, are joined first and then escaped by a few string operations for all rows at once. A character of the data that
the joining itself needs shows in a count, and sends the block the slow way, field by field.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from pgq_py.client.encoding import check_text, data_text, event_row, json_text, plain_text

__all__ = ["Block", "copy_block"]

_NULL = r"\N"
_MARK = "\0"
"""Stands for NULL until everything else is escaped: no text may contain it."""

_SPECIAL = re.compile(r"[\\\t\n\r]")
_PLAIN = frozenset({str, dict, list, int, float, bool})


class Block(NamedTuple):
    """Some rows: of the columns ev_type and ev_data alone, or also of the four extras."""

    text: str
    rows: int
    extras: bool


def copy_block(items: Sequence[Any], default_type: str | None) -> Block:
    """The rows of some outgoing events, each as `event_row` takes it. Raises InvalidArgument as that does."""
    kinds = set(map(type, items))
    if kinds <= _PLAIN:
        return Block(_plain_rows(items, default_type), len(items), False)
    if kinds == {tuple} and set(map(len, items)) == {2} and (text := _pair_rows(items, default_type)):
        return Block(text, len(items), False)
    rows = [event_row(item, default_type) for item in items]
    extras = any(row[2:] != (None, None, None, None) for row in rows)
    return Block("".join(_line(row if extras else row[:2]) for row in rows), len(rows), extras)


def _plain_rows(items: Sequence[Any], default_type: str | None) -> str:
    """Rows of one type: every newline of the joined data but a row's end is in some text, and then none is trusted."""
    texts = [item if item.__class__ is str else json_text(item) for item in items]
    start = _field(default_type) + "\t"
    lines = check_text("\n".join(texts), "data")
    if lines.count("\n") >= len(texts):
        lines = "\n".join(map(_escape, texts))
    else:
        lines = lines.replace("\\", r"\\").replace("\t", r"\t").replace("\r", r"\r")
    return start + lines.replace("\n", f"\n{start}") + "\n"


def _pair_rows(pairs: Sequence[tuple[Any, Any]], default_type: str | None) -> str | None:
    """Rows of (type, data); None when some text contains what separates them."""
    lines = []
    nulls = 0
    for pair_type, data in pairs:
        kind = default_type if pair_type is None else pair_type
        if kind.__class__ is not str:
            kind = plain_text(kind, "type")
        text = data if data.__class__ is str else data_text(data)
        nulls += (kind is None) + (text is None)
        lines.append(f"{_MARK if kind is None else kind}\t{_MARK if text is None else text}\n")
    block = "".join(lines)
    if block.count("\t") + block.count("\n") != 2 * len(lines) or "\r" in block or block.count(_MARK) != nulls:
        return None
    if not block.isascii():
        check_text(block.replace(_MARK, ""), "an event")
    return block.replace("\\", r"\\").replace(_MARK, _NULL)


def _line(row: Sequence[str | None]) -> str:
    return "\t".join(map(_field, row)) + "\n"


def _field(text: str | None) -> str:
    if text is None:
        return _NULL
    return _escape(text) if _SPECIAL.search(text) else text


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\t", r"\t").replace("\n", r"\n").replace("\r", r"\r")
