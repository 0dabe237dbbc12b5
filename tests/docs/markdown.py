"""The little of Markdown that the documentation is written in: fenced blocks, headings, links, and our own comments.

<!-- not run: why -->      the next block is not run
<!-- wait: SQL -->         go on when this query answers true
<!-- private server -->    the page needs a server of its own
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ROOT", "Block", "Page", "read_page"]

ROOT = Path(__file__).resolve().parent.parent.parent

_COMMENT = re.compile(r"<!-- (not run|wait|database): (.+) -->")
_LINK = re.compile(r"(?<!!)\[[^\]\n]+\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block, or a query to wait for, whose language is then `wait`.

    `line` is the number of its first line, `excuse` why it is not run. `attached`: there is no prose between it and the
    block before.
    """

    language: str
    text: str
    line: int
    excuse: str | None = None
    attached: bool = False


@dataclass(frozen=True)
class Page:
    """One page, read. `database` is what it says it needs, for example `private, empty`."""

    path: Path
    blocks: tuple[Block, ...]
    links: tuple[str, ...]
    anchors: frozenset[str]
    database: str

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()


def read_page(path: Path) -> Page:
    """Parse a page. An unclosed fence or an unknown comment of ours is an error."""
    blocks: list[Block] = []
    prose: list[str] = []
    database, excuse, attached = "installed", None, False
    lines = iter(enumerate(path.read_text("utf-8").splitlines(), 1))
    for number, line in lines:
        comment = _COMMENT.fullmatch(line.strip())
        if line.startswith("```"):
            body = _body(lines, f"{path}:{number}")
            blocks.append(Block(line.removeprefix("```").strip(), body, number + 1, excuse, attached))
            excuse, attached = None, True
        elif comment and comment[1] == "wait":
            blocks.append(Block("wait", comment[2], number))
        elif comment and comment[1] == "database":
            database = comment[2]
        elif comment:
            excuse = comment[2]
        else:
            prose.append(line)
            attached = attached and not line.strip()
    text = "\n".join(prose)
    return Page(path, tuple(blocks), tuple(_LINK.findall(text)), _anchors(prose), database)


def _body(lines: Iterator[tuple[int, str]], where: str) -> str:
    body: list[str] = []
    for _, line in lines:
        if line.startswith("```"):
            return "\n".join(body) + "\n"
        body.append(line)
    raise AssertionError(f"{where}: the block is not closed")


def _anchors(prose: list[str]) -> frozenset[str]:
    """As GitHub makes them of headings."""
    headings = [line.lstrip("#").strip() for line in prose if re.match(r"#{1,6} ", line)]
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)
