"""From Python values to the text that the log stores, checked before anything is sent.

An event's data is text: a str passes as it is, everything that JSON knows becomes compact JSON, None stays NULL. What
would come back changed, or would not come back at all, is refused: NaN and infinities (not JSON), NUL characters (not
in PostgreSQL's text; inside JSON not in its jsonb), lone surrogates (not in UTF-8), bytes (nobody could tell how to
read them).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, TypeAlias

from pgq_py.errors import InvalidArgument
from pgq_py.types import Event

__all__ = ["Data", "Row", "check_text", "data_text", "event_columns", "event_row", "json_text", "plain_text"]

Data: TypeAlias = str | int | float | dict[str, Any] | list[Any] | None
"""What an event can carry: text, or a JSON value, or nothing."""

Row: TypeAlias = tuple[str | None, str | None, str | None, str | None, str | None, str | None]
"""ev_type, ev_data, ev_extra1 .. ev_extra4"""

_ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def _not_json(value: object) -> None:
    raise InvalidArgument(f"data of type {type(value).__name__} is neither text nor JSON")


def _json_encoder() -> Callable[[Any], str]:
    """`JSONEncoder.encode` without its detour: it builds a new C encoder for every value.

    The C encoder is not in json's documentation, so the documented way stands behind it. It keeps no list of what it
    is inside of; a value that contains itself ends in a RecursionError.
    """
    encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_not_json)
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    escape: Any = getattr(json.encoder, "encode_basestring", None)
    if make is None or escape is None:
        return encoder.encode
    encode = make(None, _not_json, escape, None, ":", ",", False, False, False)
    return lambda value: "".join(encode(value, 0))


_encode = _json_encoder()


def json_text(value: Any) -> str:
    """Compact JSON. Raises InvalidArgument for what JSON, or PostgreSQL's, does not know."""
    try:
        text = _encode(value)
    except InvalidArgument:
        raise
    except (TypeError, ValueError, RecursionError) as exc:
        raise InvalidArgument(f"data is not JSON: {exc}") from exc
    if r"\u0000" in text and _ESCAPED_NUL.search(text):
        raise InvalidArgument("data contains a NUL character, which PostgreSQL's JSON cannot hold")
    return text


def check_text(text: str, what: str) -> str:
    """The text itself, unless PostgreSQL could not store it."""
    if "\0" in text:
        raise InvalidArgument(f"{what} contains a NUL character, which PostgreSQL cannot store")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as exc:
            raise InvalidArgument(f"{what} contains a lone surrogate at character {exc.start}") from exc
    return text


def plain_text(value: str | None, what: str) -> str | None:
    """An event's type, an extra or a name: text as it is, or None."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidArgument(f"{what} must be str or None, not {type(value).__name__}")
    return check_text(value, what)


def data_text(value: Data) -> str | None:
    """An event's data as the text that is stored."""
    if value is None:
        return None
    return check_text(value if isinstance(value, str) else json_text(value), "data")


def event_columns(  # noqa: PLR0917 - they are columns, in their order
    event_type: str | None,
    data: Data,
    extra1: str | None = None,
    extra2: str | None = None,
    extra3: str | None = None,
    extra4: str | None = None,
) -> Row:
    """The checked columns of one outgoing event."""
    return (
        plain_text(event_type, "type"),
        data_text(data),
        # mostly there are none, and a call for nothing is a tenth of what a send costs in a pipeline
        None if extra1 is None else plain_text(extra1, "extra1"),
        None if extra2 is None else plain_text(extra2, "extra2"),
        None if extra3 is None else plain_text(extra3, "extra3"),
        None if extra4 is None else plain_text(extra4, "extra4"),
    )


def event_row(item: Any, default_type: str | None) -> Row:
    """The same for an element of a bulk send: data alone, a tuple (type, data, extra1 ..), or an Event to send on."""
    if isinstance(item, Event):
        item = item[4:]
    elif not isinstance(item, tuple):
        return event_columns(default_type, item)
    if not 2 <= len(item) <= 6:
        raise InvalidArgument(f"an event tuple is (type, data, extra1 .. extra4), not {len(item)} long")
    event_type, data, *extras = item
    return event_columns(default_type if event_type is None else event_type, data, *extras)
