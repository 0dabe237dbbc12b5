"""The forms of an answer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

import pytest

from pgq_py.cli._output import Column, duration, ident, objects, seconds, show_rows, size, tsv


@dataclass(frozen=True)
class Row:
    name: str | None
    number: int | None = None
    at: datetime | None = None
    flag: bool = False


COLUMNS = (
    Column[Row]("name", lambda row: row.name),
    Column[Row]("tick", lambda row: ident(row.number)),
    Column[Row]("number", lambda row: row.number),
    Column[Row]("at", lambda row: row.at),
    Column[Row]("flag", lambda row: row.flag),
)


def test_tsv_escapes_what_would_end_a_field() -> None:
    text = tsv(COLUMNS, [Row("a\tb\nc\\d\re"), Row(None, 7, datetime(2030, 1, 2, tzinfo=UTC), True)])
    assert text == (
        "name\ttick\tnumber\tat\tflag\n"
        "a\\tb\\nc\\\\d\\re\t\t\t\tfalse\n"
        "\t7\t7\t2030-01-02T00:00:00+00:00\ttrue\n"
    )  # fmt: skip


def test_tsv_without_rows_has_the_names() -> None:
    assert tsv(COLUMNS, []) == "name\ttick\tnumber\tat\tflag\n"


def test_json_keeps_64_bits(capsys: pytest.CaptureFixture[str]) -> None:
    huge = 2**63 - 1
    at = datetime(2030, 1, 2, 3, tzinfo=timezone(timedelta(hours=2)))
    show_rows(COLUMNS, [Row("größe", huge, at)], as_json=True)
    text = capsys.readouterr().out
    assert "größe" in text
    (row,) = json.loads(text)
    assert row == {
        "name": "größe",
        "tick": str(huge),
        "number": huge,
        "at": "2030-01-02T03:00:00+02:00",
        "flag": False,
    }
    assert list(objects(COLUMNS, [Row("x")])[0]) == [column.name for column in COLUMNS]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0 s"), (0.25, "0.25 s"), (59.4, "59.4 s"), (600.0, "10 min"), (7200.0, "2 h"), (259_200.0, "3 d")],
)
def test_durations_for_the_eye(value: float, text: str) -> None:
    assert duration(value) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0 B"), (8192, "8 kB"), (163_840, "160 kB"), (5 * 2**40, "5 TB")])
def test_sizes_for_the_eye(value: int, text: str) -> None:
    assert size(value) == text


def test_seconds_are_exact() -> None:
    assert seconds(timedelta(days=1, microseconds=1)) == 86400.000001
    assert seconds(None) is None
