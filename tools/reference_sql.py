"""docs/reference/sql.md: the public functions, tables and views of schema pgq, from an installed database.

A function's section is its signature, the header of its body (purpose, parameters, results, errors, tables touched) and
who may call it. Its comment is its line in the table of contents, and its text where the body has no header.

Which chapter a function is in follows from the file that it is in (`CHAPTERS`); one in a file that is not listed stops
the tool.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import psycopg
from psycopg.rows import class_row

from pgq_py import schema

__all__ = ["page"]

INTRO = """\
# SQL functions

All functions are in schema `pgq`, but those of the optional parts. Names that begin with `_`, and tables that are not
listed at the end, are internal and may change. Errors are [listed here](errors.md) by their SQLSTATE.

Functions that change the position of a consumer, or the state of a queue, need READ COMMITTED and raise `PQ007`
elsewhere; producing works at every isolation level.

*Callable by* names the role that has the right. `pgq_admin` may call everything; everybody may call what is marked
*everybody*. Rights for a single queue are handed out with [`grant_produce` and `grant_consume`](#rights).
"""

CHAPTERS = (
    ("Queues", ("70_queue_admin",)),
    ("Producing", ("30_produce", "31_send", "58_send_later")),
    ("Changes of tables", ("35_capture", "34_triggers", "33_trigger_plan")),
    ("Registering and moving consumers", ("53_register",)),
    ("Consuming", ("51_next_batch", "50_open", "50_batch_events", "52_receive_ack")),
    ("Retries", ("56_nack", "55_retry", "54_delay")),
    ("Dead letters", ("57_dead_letters",)),
    ("Ticking", ("41_ticker_api", "42_wake")),
    ("Job queues", ("62_job_queue",)),
    ("Enqueueing jobs", ("64_enqueue", "63_keys", "69_cancel")),
    (
        "Working jobs",
        (
            *("65_claim", "65_claimed", "66_finish", "66_again", "66_note"),
            *("66_work_once", "66_take_once", "67_workers", "68_held"),
        ),
    ),
    ("Looking at jobs", ("71_job_status", "72_sweep", "74_job_watch")),
    ("Recurring jobs", ("73_schedule",)),
    ("Maintenance", ("60_maintenance",)),
    ("Information", ("80_info",)),
    ("Rights", ("90_grants", "91_rights")),
    ("For PgQ's programs", ("82_pgq_helpers",)),
)

PARTS = {"pgq_coop": "Cooperative consumers", "pgq_ext": "Remote tracking"}
"""Chapters of the optional parts, by their schemas."""

FUNCTIONS = r"""
select case n.nspname when 'pgq' then p.proname else n.nspname || '.' || p.proname end as name,
       pg_get_function_identity_arguments(p.oid) as identity,
       (select coalesce(array_agg(concat_ws(' ', a.name, format_type(a.type, null),
                   'default ' || pg_get_function_arg_default(p.oid, a.nth::int)) order by a.nth), '{}')
        from unnest(p.proargnames[:p.pronargs], p.proargtypes::oid[]) with ordinality a(name, type, nth)) as inputs,
       (select coalesce(array_agg(concat_ws(' ', a.name, format_type(a.type, null)) order by a.nth), '{}')
        from unnest(p.proallargtypes, p.proargmodes, p.proargnames) with ordinality a(type, mode, name, nth)
        where a.mode in ('o', 't')) as outputs,
       p.proretset as many, format_type(p.prorettype, null) as result,
       obj_description(p.oid, 'pg_proc') as comment, p.prosrc as body,
       array(select role from unnest('{pgq_writer,pgq_reader}'::text[]) role
             where has_function_privilege(role, p.oid, 'execute')) as roles,
       has_function_privilege('public', p.oid, 'execute') as everybody
from pg_proc p join pg_namespace n on n.oid = p.pronamespace
where n.nspname in ('pgq', 'pgq_coop', 'pgq_ext') and p.proname !~ '^_'
  and p.proname !~ '^(produce|enqueue|next_jobs|job_rows|work)_[0-9]+_'
order by n.nspname, p.proname, p.pronargs, identity
"""

RELATIONS = r"""
select c.relname as name, case c.relkind when 'v' then 'view' else 'table' end as kind,
       obj_description(c.oid, 'pg_class') as comment,
       array(select attname::text from pg_attribute where attrelid = c.oid and attnum > 0 and not attisdropped
             order by attnum) as columns,
       array(select role from unnest('{pgq_reader,pgq_admin}'::text[]) role
             where has_table_privilege(role, c.oid, 'select')) as roles
from pg_class c
where c.relnamespace = 'pgq'::regnamespace and c.relkind in ('r', 'v')
  and has_table_privilege('pgq_admin', c.oid, 'select')
  and not exists (select from pgq.ring r where c.relname like r.ring_name || '%')
order by c.relname
"""


@dataclass(frozen=True)
class Function:
    """One row of FUNCTIONS. Inputs and outputs are `name type`; roles leave pgq_admin out."""

    name: str
    identity: str
    inputs: list[str]
    outputs: list[str]
    many: bool
    result: str
    comment: str
    body: str
    roles: list[str]
    everybody: bool


@dataclass(frozen=True)
class Relation:
    """One row of RELATIONS."""

    name: str
    kind: str
    comment: str
    columns: list[str]
    roles: list[str]


def page(conn: psycopg.Connection[Any]) -> str:
    """The page, from the schema in the connection's database, with the optional parts whether it has them or not."""
    with conn.transaction(force_rollback=True), conn.cursor(row_factory=class_row(Function)) as cursor:
        schema.install(conn, parts=[name.removeprefix("pgq_") for name in PARTS])
        functions = cursor.execute(FUNCTIONS).fetchall()
    with conn.cursor(row_factory=class_row(Relation)) as reading:
        relations = reading.execute(RELATIONS).fetchall()
    where = _chapter_of_each()
    chapters: dict[str, list[Function]] = {title: [] for title in (*(title for title, _ in CHAPTERS), *PARTS.values())}
    for function in functions:
        part = function.name.rpartition(".")[0]
        chapters[PARTS[part] if part else where[function.name]].append(function)
    return INTRO + "".join(_chapter(title, chapters[title]) for title in chapters) + _relations(relations)


def _chapter_of_each() -> dict[str, str]:
    """Function name -> chapter, by the file that creates it."""
    titles = {stem: title for title, stems in CHAPTERS for stem in stems}
    found: dict[str, str] = {}
    for path in sorted((schema.installer.ROOT / "functions").glob("*.sql")):
        for name in re.findall(r"^create or replace function pgq\.([a-z]\w*)\(", path.read_text("utf-8"), re.MULTILINE):
            found[name] = titles[path.stem]
    return found


def _chapter(title: str, functions: list[Function]) -> str:
    """A table of contents, then a section per name; overloads share one, in the order of their number of arguments."""
    sections = {name: list(overloads) for name, overloads in groupby(functions, key=lambda function: function.name)}
    contents = "\n".join(
        f"| [`{name}`](#{name.replace('.', '')}) | {overloads[0].comment} |" for name, overloads in sections.items()
    )
    return f"\n## {title}\n\n| | |\n|---|---|\n{contents}\n" + "".join(map(_section, sections.values()))


def _section(overloads: list[Function]) -> str:
    text = f"\n### {overloads[0].name}\n"
    for function in overloads:
        text += f"\n```text\n{_signature(function)}\n```\n"
        text += "".join(f"\n{paragraph}\n" for paragraph in _contract(function.body) or [function.comment])
    return text + f"\n*Callable by {_callers(overloads[0])}.*\n"


def _callers(function: Function) -> str:
    if function.everybody:
        return "everybody"
    return ", ".join(f"`{role}`" for role in (*function.roles, "pgq_admin"))


def _signature(function: Function) -> str:
    result = f"({', '.join(function.outputs)})" if len(function.outputs) > 1 else function.result
    if len(function.outputs) == 1:
        result = function.outputs[0]
    arrow = "" if result == "void" else f"\n    -> {'setof ' if function.many else ''}{result}"
    name = function.name if "." in function.name else f"pgq.{function.name}"
    line = f"{name}({', '.join(function.inputs)})"
    if len(line) > 110:
        line = f"{name}(\n        " + ",\n        ".join(function.inputs) + ")"
    line = re.sub(r"default (.*?)::[a-z ]+(\[\])?(?=[,)\n]|$)", r"default \1", line) + arrow
    return line.replace("timestamp with time zone", "timestamptz").replace("NULL", "null")


def _contract(body: str) -> list[str]:
    """The header in the body, below the function's name, as paragraphs of Markdown; empty where there is none."""
    lines = [line.strip() for line in body.strip().splitlines()]
    if not lines[0].startswith("-- ---"):
        return []
    end = next(nr for nr, line in enumerate(lines[1:], 1) if line.startswith("-- ---"))
    paragraphs: list[str] = []
    for part in re.split(r"\n(?= [A-Z][a-z]+(?: [a-z]+)?:$)", "\n".join(_texts(lines[2:end])), flags=re.MULTILINE):
        heading, _, rest = part.partition("\n") if re.match(r" \S", part) else ("", "", part)
        found = [entry for block in re.split(r"\n\s*\n", rest.strip()) for entry in _list_or_text(block.splitlines())]
        if heading:
            title = f"**{heading.strip()}**"
            found = [title, *found] if found[0].startswith("- ") else [f"{title} {found[0]}", *found[1:]]
        paragraphs += found
    return paragraphs


def _texts(lines: Iterable[str]) -> Iterator[str]:
    """Comment lines without their dashes. A heading keeps one space of indentation, by which it is known."""
    for line in lines:
        text = line.removeprefix("--")
        yield text.rstrip() if re.match(r" \S", text) else text.strip()


def _list_or_text(lines: list[str]) -> list[str]:
    """A block of a header: lines `name - text` become a list, what stands before them is a paragraph."""
    text = ""
    items: list[str] = []
    for line in lines:
        item = re.fullmatch(r"(\w[^-]*?)\s+- (.+)", line)
        if item:
            items.append(f"- `{item[1]}` {item[2]}")
        elif re.match(r"\d\. ", line):
            items.append(line)
        elif items:
            items[-1] += f" {line}"
        else:
            text = f"{text} {line}".strip()
    return [part for part in (text, "\n".join(items)) if part]


def _relations(relations: list[Relation]) -> str:
    text = "\n## Tables and views\n\nTo be read, with the rights of the named roles; configured through functions.\n"
    for relation in relations:
        columns = ", ".join(f"`{column}`" for column in relation.columns)
        roles = ", ".join(f"`{role}`" for role in relation.roles)
        text += (
            f"\n### pgq.{relation.name}\n\n{relation.comment} ({relation.kind}). *Readable by {roles}.*\n\n{columns}\n"
        )
    return text
