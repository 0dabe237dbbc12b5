"""Do what a page says, in its order, in one fresh database: its blocks are one scenario.

- `python` runs in this process, all blocks of a page in one namespace. A block whose first line is `# name.py` is a
  file that the reader saves: it is written, not run. So is `toml`.
- `sql` runs statement by statement in one session, as psql would do it.
- `console` has commands behind `$ `. `pgq` runs on a terminal and must end with status 0, unless `$ echo $?` comes
  next. What runs until it is stopped (`pgq ticker`, `pgq run` and so on) does so until the end of the page, and must
  then end well.
- What is shown below a command, or as `text` right below another block, must be what came: spaces do not count, and
  `...` stands for anything.

The database is where libpq's environment says; `postgresql:///shop` and `database shop`, as readers write it, are the
same one.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from pgq_py.client import Client
from tests.cli.driving import command, environment, run_on_terminal
from tests.clusters import Database
from tests.docs.markdown import Block, Page
from tests.docs.psql import Session
from tests.waiting import wait_until

__all__ = ["Scenario", "database_environment"]

RUN = ("python", "sql", "console", "wait", "toml")

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\]8;[^\x1b]*\x1b\\|\r")
_RULE = re.compile(r"^[ \-+─━|]+$", re.MULTILINE)
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def database_environment(db: Database) -> dict[str, str]:
    """The variables by which libpq, and so everything here, finds the page's database."""
    target = conninfo_to_dict(db.dsn)
    names = {"PGHOST": "host", "PGPORT": "port", "PGUSER": "user", "PGDATABASE": "dbname"}
    return {name: str(target[key]) for name, key in names.items()} | {"PYTHONUNBUFFERED": "1"}


def same(wanted: str, got: str) -> bool:
    """Whether an output is the one that the page shows."""
    plain = _RULE.sub("", _ESCAPES.sub("", got)).replace("|", " ")
    return doctest.OutputChecker().check_output(_RULE.sub("", wanted).replace("|", " "), plain, _FLAGS)


@dataclass(frozen=True)
class Command:
    """One command of a console block, and what is shown below it."""

    words: list[str]
    shown: str

    @property
    def runs_on(self) -> bool:
        words = set(self.words)
        return bool({"ticker", "run", "dev", "tail", "--watch"} & words) and not {"--once", "--no-follow"} & words


class Scenario:
    """One page on one database, in the current directory. Use as a context manager, `play` it inside."""

    def __init__(self, page: Page, db: Database) -> None:
        self._page, self._db = page, db
        self._session = Session(db.connect())
        self._names: dict[str, Any] = {"__name__": "page"}
        self._running: list[tuple[str, subprocess.Popen[bytes], Path]] = []

    def __enter__(self) -> Scenario:
        return self

    def __exit__(self, *exc: object) -> None:
        for value in self._names.values():
            if isinstance(value, Client | psycopg.Connection):
                value.close()
        for _, process, _ in self._running:
            process.kill()
            process.wait()

    def play(self) -> None:
        """All blocks, then the end of what still runs."""
        blocks = [block for block in self._page.blocks if block.excuse is None]
        for block, following in zip(blocks, [*blocks[1:], None], strict=True):
            shown = following.text if following and following.language == "text" and following.attached else None
            if block.language in RUN:
                self._play(block, shown)
        for line, process, log in self._running:
            process.terminate()
            assert process.wait(20) == 0, f"{line}\n{log.read_text()}"

    def _play(self, block: Block, shown: str | None) -> None:
        where = f"{self._page.name}:{block.line}"
        text = re.sub(r"(postgresql:///|\bdatabase )shop\b", rf"\g<1>{self._db.name}", block.text)
        try:
            got = getattr(self, f"_{block.language}")(text, block.line)
            if shown is not None:
                assert same(shown, got), f"the page shows\n{shown}\nand there came\n{got}"
            elif block.language == "sql":
                assert "ERROR:" not in got, got
        except Exception as exc:
            raise AssertionError(f"{where}: {exc}") from exc

    def _python(self, text: str, line: int) -> str:
        if _saved(text):
            return ""
        tree = ast.increment_lineno(ast.parse(text), line - 1)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(tree, str(self._page.path), "exec"), self._names)
        return out.getvalue()

    def _toml(self, text: str, _: int) -> str:
        _saved(text)
        return ""

    def _sql(self, text: str, _: int) -> str:
        return self._session.run(text)

    def _wait(self, query: str, _: int) -> str:
        def holds() -> bool:
            for line, process, log in self._running:
                assert process.poll() is None, f"{line} ended\n{log.read_text()}"
            return bool(self._session.value(query))

        wait_until(holds, 20, query)
        return ""

    def _console(self, text: str, _: int) -> str:
        for cmd, following in _pairs(list(_commands(text))):
            if cmd.words == ["echo", "$?"]:
                continue
            assert cmd.words[0] == "pgq", f"a console block may only run pgq, not {cmd.words[0]}"
            if cmd.runs_on:
                self._start(cmd)
                continue
            answer = run_on_terminal(*cmd.words[1:])
            out = _ESCAPES.sub("", answer.out)
            status = int(following.shown) if following and following.words == ["echo", "$?"] else 0
            assert answer.status == status, f"{shlex.join(cmd.words)}: status {answer.status}\n{out}"
            assert not cmd.shown.strip() or same(cmd.shown, out), f"there came\n{out}"
        return ""

    def _start(self, cmd: Command) -> None:
        """Start what runs on; with an output below it, wait until that has come."""
        log = Path(f"output-{len(self._running)}.log").absolute()
        with log.open("wb") as out:
            process = subprocess.Popen(
                command(*cmd.words[1:]), env=environment(None), stdout=out, stderr=out, start_new_session=True
            )
        self._running.append((shlex.join(cmd.words), process, log))
        if cmd.shown.strip():
            wait_until(lambda: same(cmd.shown, log.read_text()), 20, f"{cmd.words}: {cmd.shown}")


def _saved(text: str) -> bool:
    """Write a block that is a file."""
    name = re.match(r"# ([\w/]+\.(?:py|toml))\n", text)
    if name:
        Path(name[1]).write_text(text)
    return bool(name)


def _commands(text: str) -> Iterator[Command]:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, _, shown = part.replace("\\\n", " ").partition("\n")
        yield Command(shlex.split(line, comments=True), shown)


def _pairs(commands: Sequence[Command]) -> Iterator[tuple[Command, Command | None]]:
    yield from zip(commands, [*commands[1:], None], strict=True)
