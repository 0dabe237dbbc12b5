"""Many events from a file or a pipe: chunk by chunk, each its own transaction, so that it is known what was kept."""

from __future__ import annotations

import json
import os
import select
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from pgq_py.client import Client
from pgq_py.client.encoding import json_text
from pgq_py.errors import InvalidArgument, PgqError, SlotClosed

__all__ = ["send_lines"]

CHUNK_EVENTS = 10_000
CHUNK_BYTES = 8 * 1024 * 1024
READ_BYTES = 256 * 1024
IDLE_SECONDS = 0.2

ATTEMPTS = 10

Advance = Callable[[int, int], None]
"""Told of lines sent and bytes read, in all."""


class _BadLine(InvalidArgument):
    """A line of the input that is not an event."""


def send_lines(
    client: Client, queue: str, file: str, event_type: str | None, due: tuple[datetime | None, timedelta | None]
) -> int:
    """Send each line's JSON value as it stands; empty lines are passed over. Returns how many events.

    Raises PgqError that says up to which line everything was sent, and how to go on from there.
    """
    client.queue_info(queue)
    sent = lines = size = 0
    with _input(file) as stream, _progress(stream) as advance:
        for chunk, through, error in _chunks(stream):
            try:
                sent += _send(client, queue, chunk, event_type, due)
            except PgqError as exc:
                raise _stopped(exc, queue, file, lines, sent) from exc
            lines, size = through, size + sum(map(len, chunk))
            advance(sent, size)
            if error is not None:
                raise _stopped(error, queue, file, lines, sent) from error
    return sent


def _send(
    client: Client,
    queue: str,
    chunk: list[str],
    event_type: str | None,
    due: tuple[datetime | None, timedelta | None],
) -> int:
    """One transaction, run again while its slot was closed meanwhile."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with client.transaction() as conn:
                return client.send_many(queue, chunk, type=event_type, deliver_at=due[0], deliver_in=due[1], conn=conn)
        except SlotClosed:
            if attempt == ATTEMPTS:
                raise
    raise AssertionError("not reached")


def _chunks(stream: BinaryIO) -> Iterator[tuple[list[str], int, _BadLine | None]]:
    """Chunks of checked lines, the number of the last line of each, and what is wrong with the next line."""
    chunk: list[str] = []
    number = size = 0
    for line in _lines(stream):
        if line is not None:
            number += 1
            try:
                text = _checked(line, number)
            except _BadLine as exc:
                yield chunk, number - 1, exc
                return
            size += len(line)
            chunk += [text] if text else []
        if chunk and (line is None or len(chunk) >= CHUNK_EVENTS or size >= CHUNK_BYTES):
            yield chunk, number, None
            chunk, size = [], 0
    yield chunk, number, None


def _lines(stream: BinaryIO) -> Iterator[bytes | None]:
    """The lines, and None where no more has come for a moment: what a slow pipe has brought so far shall not wait."""
    number, rest = stream.fileno(), b""
    while True:
        if not select.select([number], [], [], IDLE_SECONDS)[0]:
            yield None
            continue
        block = os.read(number, READ_BYTES)
        if not block:
            break
        *whole, rest = (rest + block).split(b"\n")
        yield from whole
    if rest:
        yield rest


def _checked(line: bytes, number: int) -> str:
    """The line as it will be stored: what PostgreSQL's jsonb would take, unchanged but for space around it."""
    try:
        text = line.decode().strip()
        if text:
            # numbers are stored as they stand, and PostgreSQL's have no bounds that ours have
            json_text(json.loads(text, parse_constant=_refuse_constant, parse_float=_zero, parse_int=_zero))
    except (ValueError, RecursionError) as exc:
        raise _BadLine(f"line {number} is not JSON: {exc.message if isinstance(exc, PgqError) else exc}") from None
    return text


def _zero(number: str) -> int:  # noqa: ARG001 - json calls it with the number's text
    return 0


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _stopped(exc: PgqError, queue: str, file: str, lines: int, sent: int) -> PgqError:
    """The same error, with what was kept and how to go on."""
    if not lines:
        return type(exc)(exc.message, advice=f"Nothing was sent. {exc.advice}".strip(), sqlstate=exc.sqlstate)
    source = "FILE" if file == "-" else shlex.quote(file)
    advice = (
        f"The first {lines} lines ({sent} events) were sent and are kept, the rest was not. Mend it, and go on, with "
        f"the same options: tail -n +{lines + 1} {source} | pgq send {shlex.quote(queue)} -f -"
    )
    return type(exc)(exc.message, advice=advice, sqlstate=exc.sqlstate)


@contextmanager
def _input(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        stream = Path(file).open("rb")  # noqa: SIM115 - closed below
    except OSError as exc:
        raise typer.BadParameter(f"{file}: {exc.strerror}", param_hint="'--file'") from exc
    with stream:
        yield stream


def _unseen(sent: int, size: int) -> None:
    """Nobody is watching."""


@contextmanager
def _progress(stream: BinaryIO) -> Iterator[Advance]:
    """A bar on stderr, if that is a terminal; a pipe has no end to be measured by."""
    if not sys.stderr.isatty():
        yield _unseen
        return
    total = os.fstat(stream.fileno()).st_size or None
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("sending", total=total)
        yield lambda sent, size: bar.update(task, completed=size, description=f"{sent:,} events")
