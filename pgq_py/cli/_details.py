"""How all about one queue, or one consumer, is written: its own fields first, then section by section."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import typer
from rich.console import Console, RenderableType
from rich.text import Text

from pgq_py.cli._output import Column, duration, fields, ident, objects, seconds, table, tsv, write_json
from pgq_py.cli._sections import DELAYS, EVICTIONS, Section
from pgq_py.health.details import ConsumerDetails, Grant, Policy, QueueDetails, QueueSettings
from pgq_py.types import BatchInfo, ConsumerInfo, QueueInfo

__all__ = ["show_consumer", "show_queue"]


def _delays(policy: Policy) -> list[float | None] | None:
    return None if policy.delays is None else [seconds(delay) for delay in policy.delays]


_SETTINGS = (
    Column[QueueSettings]("rotation_period_seconds", lambda s: seconds(s.rotation_period), duration),
    Column[QueueSettings]("retention_seconds", lambda s: seconds(s.retention), duration),
    Column[QueueSettings]("max_consumer_lag_seconds", lambda s: seconds(s.max_consumer_lag), duration),
    Column[QueueSettings]("max_retries", lambda s: s.max_retries),
    Column[QueueSettings]("disable_insert", lambda s: s.disable_insert),
    Column[QueueSettings]("ticker_paused", lambda s: s.ticker_paused),
    Column[QueueSettings]("external_ticker", lambda s: s.external_ticker),
    Column[QueueSettings]("ticker_max_count", lambda s: s.ticker_max_count),
    Column[QueueSettings]("ticker_max_lag_seconds", lambda s: seconds(s.ticker_max_lag), duration),
    Column[QueueSettings]("ticker_idle_period_seconds", lambda s: seconds(s.ticker_idle_period), duration),
)
_POLICIES = (
    Column[Policy]("consumer", lambda p: p.consumer_name or None),
    Column[Policy]("max_retries", lambda p: p.max_retries),
    Column[Policy]("kind", lambda p: p.kind),
    Column[Policy]("base_seconds", lambda p: seconds(p.base), duration),
    Column[Policy]("cap_seconds", lambda p: seconds(p.cap), duration),
    Column[Policy]("jitter", lambda p: p.jitter),
    Column[Policy]("delays_seconds", _delays),
)
_GRANTS = (
    Column[Grant]("role", lambda g: g.role),
    Column[Grant]("may", lambda g: g.may),
    Column[Grant]("consumer", lambda g: g.consumer),
)
_MEMBERS = (
    Column[ConsumerInfo]("consumer", lambda c: c.consumer_name),
    Column[ConsumerInfo]("pending_events", lambda c: c.pending_events),
    Column[ConsumerInfo]("last_seen_seconds", lambda c: seconds(c.last_seen), duration),
    Column[ConsumerInfo]("last_tick", lambda c: ident(c.last_tick)),
)
_BATCH = (
    Column[BatchInfo]("first_tick", lambda b: ident(b.prev_tick_id)),
    Column[BatchInfo]("last_tick", lambda b: ident(b.tick_id)),
    Column[BatchInfo]("from_time", lambda b: b.batch_start),
    Column[BatchInfo]("to_time", lambda b: b.batch_end),
    Column[BatchInfo]("age_seconds", lambda b: seconds(b.lag), duration),
)


def show_queue(columns: Sequence[Column[QueueInfo]], details: QueueDetails, *, as_json: bool) -> None:
    """`columns` are those of `pgq queue ls`."""
    single: list[Section] = [("settings", _SETTINGS, [details.settings]), ("delays", DELAYS[1:], [details.delays])]
    lists: list[Section] = [
        ("consumers", _MEMBERS, details.consumers),
        ("retry_policies", _POLICIES, details.policies),
        ("grants", _GRANTS, details.grants),
        ("evictions", EVICTIONS[1:], details.evictions),
    ]
    _show(("queue", columns, [details.info]), single, lists, {}, as_json=as_json)


def show_consumer(columns: Sequence[Column[ConsumerInfo]], details: ConsumerDetails, *, as_json: bool) -> None:
    """`columns` are those of `pgq consumer ls`."""
    own = (
        *columns,
        Column[ConsumerInfo]("waiting_retries", lambda _: details.waiting_retries),
        Column[ConsumerInfo]("dead_letters", lambda _: details.dead_letters),
    )
    single: list[Section] = [
        ("batch", _BATCH, [] if details.batch is None else [details.batch]),
        ("retry_policy", _POLICIES, [] if details.policy is None else [details.policy]),
    ]
    roles: Section = ("roles", (Column[str]("role", str),), details.roles)
    _show(("consumer", own, [details.info]), single, [roles], {"roles": list(details.roles)}, as_json=as_json)


def _show(
    own: Section, single: list[Section], lists: list[Section], given: Mapping[str, Any], *, as_json: bool
) -> None:
    """`single` sections have at most one row, and are an object or null in JSON; `given` overrides what JSON has."""
    if as_json:
        (facts,) = objects(own[1], own[2])
        ones = {name: next(iter(objects(columns, rows)), None) for name, columns, rows in single}
        many = {name: objects(columns, rows) for name, columns, rows in lists}
        write_json({**facts, **ones, **many, **given})
    elif sys.stdout.isatty():
        _print(own, single, lists)
    else:
        blocks = [f"# {name}\n{tsv(columns, rows)}" for name, columns, rows in (own, *single, *lists)]
        typer.echo("\n".join(blocks), nl=False)


def _print(own: Section, single: list[Section], lists: list[Section]) -> None:
    parts: list[RenderableType] = []
    for name, columns, rows in (own, *single):
        if rows:
            parts += [Text(name.replace("_", " "), "italic"), fields(columns, rows[0]), ""]
    parts += [
        part
        for name, columns, rows in lists
        if rows
        for part in (table(columns, rows, title=name.replace("_", " ")), "")
    ]
    Console().print(*parts[:-1], sep="\n", soft_wrap=True)
