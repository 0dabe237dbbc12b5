"""Data to text: exact or refused, and COPY's text format against an independent reading of it."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgq_py import Event, InvalidArgument, NewEvent
from pgq_py.client.copytext import copy_block
from pgq_py.client.encoding import data_text, event_row

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
NASTY = st.sampled_from(["\\N", "\\.", "\t", "\n", "\r\n", "\\", "a\\tb", "", "\u2028", "\N{GRINNING FACE}", "NULL"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("value", ["", "plain", "{}", "NaN", "\\u0000 spelled out", "tab\tand\nnewline"])
def test_text_passes_as_it_is(value: str) -> None:
    assert data_text(value) == value


@given(JSON.filter(lambda value: value is not None and not isinstance(value, str)))
def test_other_values_become_compact_json(value: Any) -> None:
    text = data_text(value)
    assert text is not None
    assert json.loads(text) == value
    assert text == json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        {"a": [math.inf]},
        {"a": "\0"},
        {"\0": 1},
        "\0",
        "\ud800",
        {"a": "\udfff"},
        b"bytes",
        {"a": b"bytes"},
        {"a": type},
        {("tuple", "key"): 1},
    ],
    ids=repr,
)
def test_what_would_not_come_back_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArgument):
        data_text(value)
    with pytest.raises(InvalidArgument):
        copy_block([value], None)


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(InvalidArgument):
        data_text(value)


def test_an_escaped_backslash_before_u0000_is_no_nul() -> None:
    assert data_text({"path": "\\u0000"}) == r'{"path":"\\u0000"}'


def test_large_integers_are_exact() -> None:
    assert data_text({"n": 2**63 - 1}) == '{"n":9223372036854775807}'


@pytest.mark.parametrize("item", [(), ("type",), ("t", "d", "1", "2", "3", "4", "5"), (1, "d"), ("t", "d", 7)])
def test_malformed_event_tuples_are_refused(item: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidArgument):
        event_row(item, None)


def read_copy_text(text: str) -> list[list[str | None]]:
    """COPY's text format by its documentation: one pass over the characters, no string replacement."""
    rows: list[list[str | None]] = []
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        fields: list[str | None] = []
        for field in line.split("\t"):
            if field == "\\N":
                fields.append(None)
                continue
            rest = iter(field)
            meant = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\"}
            fields.append("".join(meant[next(rest)] if char == "\\" else char for char in rest))
        rows.append(fields)
    return rows


DATA = st.none() | TEXT | NASTY | JSON
FIELD = st.none() | TEXT | NASTY
ITEMS = st.lists(
    st.one_of(
        DATA,
        st.tuples(FIELD, DATA),
        st.builds(NewEvent, FIELD, DATA, FIELD, FIELD, FIELD, FIELD),
    ),
    min_size=1,
    max_size=8,
)


@given(st.one_of(ITEMS, st.lists(TEXT | NASTY, min_size=1), st.lists(st.tuples(FIELD, DATA), min_size=1)), FIELD)
def test_copy_blocks_are_read_back(items: list[Any], default_type: str | None) -> None:
    block = copy_block(items, default_type)
    expected = [list(event_row(item, default_type)) for item in items]
    if not block.extras:
        assert all(row[2:] == [None] * 4 for row in expected)
        expected = [row[:2] for row in expected]
    assert read_copy_text(block.text) == expected
    assert block.rows == len(items)


def test_received_events_are_sent_on_with_their_extras() -> None:
    event = Event(1, None, 7, None, "kind", "data", "x")  # type: ignore[arg-type]
    assert event_row(event, "ignored") == ("kind", "data", "x", None, None, None)
