"""Arguments come back as what they were, through PostgreSQL's jsonb, or are refused when they are enqueued."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from pgq_py import InvalidArgument, JobContext
from pgq_py.jobs.arguments import Arguments
from tests.clusters import Database


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


class Address(BaseModel):
    street: str
    number: int = 1
    extra: Any = None


@dataclasses.dataclass
class Order:
    id: int
    address: Address
    lines: list[tuple[str, Decimal]]


def everything(  # noqa: PLR0917
    number: int,
    ratio: float,
    text: str,
    flag: bool,
    when: datetime,
    day: date,
    span: timedelta,
    order: Order,
    size: Size,
    uid: UUID,
    names: set[str],
    by_number: dict[int, str],
    price: Decimal | None = None,
) -> None: ...


def loose(value, *rest, **named) -> None:  # type: ignore[no-untyped-def]
    ...


def simple(address: str, number: int) -> None: ...


def arguments(handler: Callable[..., Any]) -> Arguments:
    return Arguments(handler, handler.__name__, JobContext)


STORABLE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
NAMES = STORABLE.filter(lambda name: name != "value")
INTEGERS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | FLOATS | STORABLE,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(STORABLE, inner, max_size=4),
    max_leaves=12,
)
ORDERS = st.builds(
    Order,
    id=INTEGERS,
    address=st.builds(Address, street=STORABLE, number=INTEGERS, extra=JSON),
    lines=st.lists(st.tuples(STORABLE, st.decimals(allow_nan=False, allow_infinity=False)), max_size=3),
)
EVERYTHING = st.fixed_dictionaries(
    {
        "number": INTEGERS,
        "ratio": FLOATS,
        "text": STORABLE,
        "flag": st.booleans(),
        "when": st.datetimes(timezones=st.just(UTC)),
        "day": st.dates(),
        "span": st.timedeltas(timedelta(-1000), timedelta(1000)),
        "order": ORDERS,
        "size": st.sampled_from(Size),
        "uid": st.uuids(),
        "names": st.sets(STORABLE, max_size=4),
        "by_number": st.dictionaries(INTEGERS, STORABLE, max_size=4),
    },
    optional={"price": st.none() | st.decimals(allow_nan=False, allow_infinity=False)},
)


def test_typed_arguments_come_back(db: Database) -> None:
    conn = db.connect()
    coded = arguments(everything)

    @given(EVERYTHING)
    @settings(max_examples=150)
    def check(values: dict[str, Any]) -> None:
        row = conn.execute("select (%s::jsonb)::text", [coded.encode((), values)]).fetchone()
        assert row is not None
        assert coded.decode(row[0]) == ([], values)

    check()


def test_loose_arguments_come_back_in_value_and_type(db: Database) -> None:
    conn = db.connect()
    coded = arguments(loose)

    @given(JSON, st.lists(JSON, max_size=3), st.dictionaries(NAMES, JSON, max_size=3))
    @settings(max_examples=300)
    def check(value: Any, rest: list[Any], named: dict[str, Any]) -> None:
        row = conn.execute("select (%s::jsonb)::text", [coded.encode((value, *rest), named)]).fetchone()
        assert row is not None
        assert typed(bound(loose, *coded.decode(row[0]))) == typed(bound(loose, [value, *rest], named))

    check()


def typed(value: Any) -> Any:
    """A value in which 1, 1.0 and True are three; of an object, the order does not matter."""
    if isinstance(value, dict):
        return {name: typed(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [typed(part) for part in value]
    return type(value), value


@pytest.mark.parametrize(
    "number", [0, 2**63 - 1, -(2**63), 2**53 + 1, 1e22, 1e23, 1.7976931348623157e308, 5e-324, 0.1, 123456789012345678.0]
)
def test_numbers_keep_value_and_type(db: Database, number: float) -> None:
    coded = arguments(loose)
    again = coded.decode(db.value("select (%s::jsonb)::text", [coded.encode((number,), {})]))
    assert typed(again) == typed(([], {"value": number}))


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (("a",), "number"),
        (("a", 1, 2), "too many"),
        (("a", "x"), "number"),
        ((1, 1), "address"),
        (("a\0b", 1), "NUL"),
        (("\ud800", 1), "surrogate"),
        (("a", 2**63), "64 bits"),
        (("a", -(2**63) - 1), "64 bits"),
    ],
)
def test_refused_by_a_typed_function(args: tuple[Any, ...], complaint: str) -> None:
    with pytest.raises(InvalidArgument, match=complaint) as caught:
        arguments(simple).encode(args, {})
    assert "simple" in caught.value.message
    assert "Nothing was enqueued" in caught.value.advice


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        [1, {"a": -math.inf}],
        (1, 2),
        {1: 2},
        {"a": datetime.now(UTC)},
        {1, 2},
        b"bytes",
        object(),
        2**64,
        {"a": [10**30]},
        "\0",
        {"\0": 1},
        ["\udfff"],
        Address(street="s", extra=math.nan),
        Decimal(1),
        Size.SMALL,
    ],
    ids=lambda value: type(value).__name__,
)
def test_refused_by_a_function_without_annotations(value: Any) -> None:
    with pytest.raises(InvalidArgument):
        arguments(loose).encode((value,), {})


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_no_number_is_refused_however_deep(value: float) -> None:
    def nested(ratio: float, order: Order | None = None, many: list[float] | None = None) -> None: ...

    order = Order(1, Address(street="s", extra={"deep": [value]}), [])
    for call in ((value,), (1.0, order), (1.0, None, [value])):
        with pytest.raises(InvalidArgument):
            arguments(nested).encode(call, {})


def test_a_value_that_contains_itself() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(InvalidArgument):
        arguments(loose).encode((circle,), {})


def test_what_looks_like_an_escape_is_text() -> None:
    text = r"\u0000 and 1e+23 and \ud800"
    assert arguments(simple).decode(arguments(simple).encode((text, 1), {})) == ([], {"address": text, "number": 1})


def test_every_kind_of_parameter() -> None:
    def kinds(first: int, /, second: int = 2, *rest: int, third: int = 3, **named: int) -> None: ...

    coded = arguments(kinds)
    for args, kwargs in (
        ((1,), {}),
        ((1, 5), {}),
        ((1, 5, 6, 7), {"third": 8, "more": 9}),
        ((1,), {"second": 5, "more": 9}),
    ):
        again = coded.decode(coded.encode(args, kwargs))
        assert bound(kinds, *again) == bound(kinds, list(args), kwargs)
    with pytest.raises(InvalidArgument):
        coded.encode((), {"first": 1})


def bound(handler: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    return inspect.signature(handler).bind(*args, **kwargs).arguments


def test_no_arguments_at_all() -> None:
    def nothing() -> None: ...

    assert arguments(nothing).encode((), {}) == "{}"
    assert arguments(nothing).decode("{}") == ([], {})


@pytest.mark.parametrize("payload", ["{}", "[]", "null", "1", "not json", '{"address": "a", "number": "x"}', ""])
def test_a_payload_that_the_function_does_not_take(payload: str) -> None:
    with pytest.raises(InvalidArgument, match="simple"):
        arguments(simple).decode(payload)


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="extra"):
        arguments(simple).decode(json.dumps({"address": "a", "number": 1, "extra": 1}))


def test_signatures_that_cannot_be() -> None:
    class Alien:
        pass

    def unknown(x: Alien) -> None: ...

    def missing(x: Missing) -> None: ...  # type: ignore[name-defined] # noqa: F821

    def twice(a: JobContext, b: JobContext) -> None: ...

    for handler in (unknown, missing, twice):
        with pytest.raises(InvalidArgument):
            arguments(handler)


def test_the_context_stands_anywhere() -> None:
    def last(a: int, *, ctx: JobContext) -> None: ...

    assert arguments(last).context_name == "ctx"
    assert arguments(last).encode((1,), {}) == '{"a":1}'
    assert arguments(simple).context_name is None
