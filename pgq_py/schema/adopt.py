"""Take a database over from PgQ: its schema pgq, an extension or not, becomes ours, with all that is in it.

In one transaction: lock everything of PgQ's, so that whoever is in the middle of something ends first and nobody
begins; move the old schemas aside; install ours; copy queues, settings, consumers, positions, open batches, retries and
the events that some consumer has yet to finish; compare; drop the old ones. Ids are kept, so a consumer that was idle
meanwhile goes on as if nothing had happened, and can even finish the batch that it holds. A producer that had to wait
gets an error, sends again, and has sent once.

Whatever is not understood is a reason to refuse, and then nothing is changed: objects of others that depend on the old
schema, objects in it that are not PgQ's, positions that do not exist, transactions that do not end.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from pgq_py.errors import ForeignCluster, PgqError
from pgq_py.schema import _adoption as queries
from pgq_py.schema.installer import ROOT, Connection, Notify, apply, locked, plan

__all__ = ["Adoption", "adopt", "rehearse"]

_KEPT = "Nothing was changed."


@dataclass(frozen=True)
class Adoption:
    """What was taken over, or would be. `events` are those in the log that some consumer has yet to finish; None in a
    rehearsal, which does not look for them."""

    queues: int
    consumers: int
    open_batches: int
    retries: int
    events: int | None
    triggers: int
    parts: tuple[str, ...]


@dataclass(frozen=True)
class _Found:
    """The schemas that are to be taken over, with the extensions that they belong to, and the triggers to make anew."""

    schemas: dict[str, str | None]
    triggers: tuple[tuple[str, str, str, str, str], ...]
    cooperates: bool

    @property
    def log(self) -> bool:
        return "pgq" in self.schemas

    @property
    def parts(self) -> tuple[str, ...]:
        wanted = {"coop": self.cooperates or "pgq_coop" in self.schemas, "ext": "pgq_ext" in self.schemas}
        return tuple(part for part, needed in wanted.items() if needed)


def adopt(conn: Connection, *, wait: float = 30.0, notify: Notify | None = None) -> Adoption:
    """Take over what PgQ has in this database; return what it was.

    Transactions that use it are waited for at most `wait` seconds; producers and consumers stand still meanwhile, and
    while events are copied. Raises PgqError with the reason where it is refused, or where there is nothing to take
    over; nothing is changed then. Notices, as of roles whose rights are not taken along, go to `notify`.
    """
    with locked(conn, notify):
        found = _examine(conn)
        _lock(conn, found, wait)
        found = _examine(conn)  # what was so before the locks need not be so now
        if notify is not None and found.log:
            for (role,) in _rows(conn, queries.GRANTEES):
                notify(f"role {role} had rights of its own on the old schema: grant it what it needs")
        return _take_over(conn, found)


def rehearse(conn: Connection) -> Adoption:
    """What adopt would take over. Looks for every reason to refuse but locks; changes nothing, waits for nobody."""
    found = _examine(conn)
    return _adoption(conn, found, "pgq", None)


# -- reasons to refuse -------------------------------------------------------------------------------------------------


def _examine(conn: Connection) -> _Found:
    """What there is to take over. Raises PgqError where that cannot be done."""
    schemas = {str(name): extension for name, extension in _rows(conn, queries.SCHEMAS)}
    if not schemas:
        raise PgqError("this database has no schema of PgQ's to take over", advice=f"{_KEPT} See `pgq status`.")
    if schemas.keys() == {"pgq_coop"}:
        raise PgqError("there is a schema pgq_coop, but not its pgq", advice=f"{_KEPT} Drop it, then `pgq install`.")
    strangers = _names(conn, queries.DEPENDENTS)
    if strangers:
        raise PgqError(
            f"others depend on the old schema: {', '.join(strangers)}",
            advice=f"{_KEPT} Drop them, run `pgq adopt`, and create them anew.",
        )
    if "pgq" not in schemas:
        return _Found(schemas, (), cooperates=False)
    _refuse_strange(conn)
    shared = _rows(conn, "select from pgq.subscription group by sub_id having count(*) > 1")
    return _Found(schemas, tuple(_rows(conn, queries.TRIGGERS)), cooperates=bool(shared))


def _refuse_strange(conn: Connection) -> None:
    """Raise PgqError where the schema pgq is not PgQ 3's, or not in order."""
    if missing := _names(conn, queries.MISSING):
        raise PgqError(
            f"the schema pgq is not that of PgQ 3: there is no {', '.join(missing)}",
            advice=f"{_KEPT} Upgrade PgQ to 3.5 first, or move the schema away.",
        )
    if unknown := _names(conn, queries.UNKNOWN):
        raise PgqError(
            f"not of PgQ's, in its schema: {', '.join(unknown)}",
            advice=f"{_KEPT} Move them to another schema: `alter ... set schema`.",
        )
    if lost := _names(conn, queries.LOST_POSITIONS):
        raise PgqError(
            f"consumers stand at ticks that do not exist: {', '.join(lost)}",
            advice=f"{_KEPT} Unregister them, or register them anew with PgQ.",
        )
    if foreign := _names(conn, queries.FOREIGN_QUEUES):
        raise ForeignCluster(
            f"ticks are ahead of this cluster, so the database was restored from a dump: {', '.join(foreign)}",
            advice=f"{_KEPT} Its positions mean nothing here: drop these queues and create them anew.",
        )


# -- locks -------------------------------------------------------------------------------------------------------------


def _lock(conn: Connection, found: _Found, wait: float) -> None:
    """Lock all tables of PgQ's, and those with triggers of its, or raise PgqError naming who has them.

    For the first one we wait as long as we may: we hold nothing yet that anybody could want. For each further one less
    than the deadlock detector does, which would choose a victim between us and a producer: then all are let go, and we
    begin again.
    """
    own = [str(row[0]) for row in _rows(conn, queries.TABLES, [list(found.schemas)])]
    tables = [*sorted({trigger[0] for trigger in found.triggers}), *own]
    deadline = time.monotonic() + wait
    patience = _rows(conn, "select setting::int / 2 from pg_catalog.pg_settings where name = 'deadlock_timeout'")[0][0]
    while True:
        holders = _rows(conn, queries.HOLDERS, [tables])
        left = int((deadline - time.monotonic()) * 1000)
        if left <= 0 or any(prepared for _, prepared in holders):
            names = ", ".join(str(name) for name, _ in holders) or "others, one after the other"
            raise PgqError(
                f"the old schema is in use by {names}",
                advice=f"{_KEPT} End these transactions, or wait longer: `pgq adopt --wait SECONDS`.",
            )
        if _locked_all(conn, tables, left, min(left, int(patience))):
            return
        time.sleep(0.02)  # somebody is to get on


def _locked_all(conn: Connection, tables: Sequence[str], first: int, further: int) -> bool:
    """Lock them all, or none. Times are in ms."""
    try:
        with conn.transaction():
            for number, table in enumerate(tables):
                conn.execute(f"set local lock_timeout = {further if number else first}".encode())
                conn.execute(f"lock table only {table} in access exclusive mode".encode())  # quoted by the server
            conn.execute("set local lock_timeout = 0")
    except psycopg.errors.LockNotAvailable:
        return False
    return True


# -- the work ----------------------------------------------------------------------------------------------------------


def _take_over(conn: Connection, found: _Found) -> Adoption:
    if found.log:
        conn.execute(queries.UNREAD_BEFORE)
    for table, name, *_ in found.triggers:
        conn.execute(psycopg.sql.SQL("drop trigger {} on {}").format(_ident(name), psycopg.sql.SQL(table)))
    _run(conn, "10_aside.sql")
    apply(conn, plan(conn, parts=found.parts))
    if found.log:
        _run(conn, "20_log.sql")
        _compare(conn)
    if "pgq_ext" in found.schemas:
        _run(conn, "30_marks.sql")
    _capture_again(conn, found)
    events = int(_rows(conn, queries.EVENTS)[0][0])
    done = _adoption(conn, found, "pgq_before", events)
    for schema in sorted(found.schemas, reverse=True):  # pgq itself is the last: the others may need it
        extension = found.schemas[schema]
        what = f'extension "{extension}"' if extension else f"schema {schema}_before"
        conn.execute(f"drop {what} cascade".encode())
    return done


def _compare(conn: Connection) -> None:
    """Raise PgqError unless every consumer has as many events before it as it had, with the same ids."""
    conn.execute(queries.UNREAD_AFTER)
    if different := _names(conn, queries.DIFFERENT):
        raise PgqError(
            f"the copy is not complete for {', '.join(different)}",
            advice=f"{_KEPT} That is a fault of this package: please report it.",
        )


def _capture_again(conn: Connection, found: _Found) -> None:
    """Make the triggers of captured tables anew, on our functions. Raises PgqError for a function that we have not."""
    for table, name, definition, enabled, function in found.triggers:
        if _rows(conn, "select to_regprocedure(%s) is null", [f"pgq.{function}()"])[0][0]:
            raise PgqError(
                f"trigger {name} on {table} needs pgq.{function}(), which this version has not",
                advice=f"{_KEPT} Drop the trigger, run `pgq adopt`, and capture the table in another way.",
            )
        conn.execute(definition.encode())
        mode = {"O": "enable", "A": "enable always", "R": "enable replica", "D": "disable"}[enabled]
        conn.execute(f"alter table {table} {mode} trigger".encode() + b" " + _ident(name).as_bytes(conn))


def _adoption(conn: Connection, found: _Found, schema: str, events: int | None) -> Adoption:
    queues = consumers = batches = retries = 0
    if found.log:
        queues, consumers, batches, retries = _rows(conn, queries.COUNTS.format(schema))[0]
    return Adoption(queues, consumers, batches, retries, events if found.log else 0, len(found.triggers), found.parts)


def _run(conn: Connection, name: str) -> None:
    try:
        conn.execute((ROOT / "adoption" / name).read_bytes())
    except psycopg.Error as exc:
        raise PgqError(
            f"this cannot be taken over: {exc.diag.message_primary}",
            advice=f"{_KEPT} {exc.diag.message_detail or ''} {exc.diag.message_hint or ''}".strip(),
            sqlstate=exc.sqlstate,
        ) from exc


def _names(conn: Connection, query: str) -> list[str]:
    return [str(row[0]) for row in _rows(conn, query)]


def _rows(conn: Connection, query: str, params: Any = None) -> list[tuple[Any, ...]]:
    with conn.cursor(row_factory=tuple_row) as cur:
        return cur.execute(query.encode(), params).fetchall()


def _ident(name: str) -> psycopg.sql.Identifier:
    return psycopg.sql.Identifier(name)
