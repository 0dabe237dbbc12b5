"""Install, upgrade and uninstall the schema pgq.

Everything happens in one transaction under an advisory lock: an install is there as a whole or not at all, and of ten
at the same time one does the work and nine find it done. What is to be done is first a Plan of named steps, pure SQL
text; applying it, showing it (`--dry-run`) and printing it for psql (`--sql`) are three uses of that one list.

It needs the right to create a schema in the database, nothing more: no superuser, no extension. The roles pgq_reader,
pgq_writer and pgq_admin are made by grants.sql where the installing role may create roles; else a notice says so, and
an upgrade after they have been made hands out the grants.

Optional parts (`coop`, `ext`) have schemas of their own. Once installed they are in the ledger: upgrades apply them
anew, and uninstall drops them too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.errors import Diagnostic
from psycopg.pq import TransactionStatus
from psycopg.rows import class_row

from pgq_py.errors import ForeignSchema, PgqError, SchemaMissing, SchemaOutdated
from pgq_py.schema._ledger import (
    FOREIGN_PARTS_SQL,
    LEDGER_SQL,
    PARTS,
    REPLACEABLE,
    STATE_SQL,
    Applied,
    State,
    parts_of,
    pending,
    require_ours,
)
from pgq_py.schema._source import Migration, Part, Source, load

__all__ = ["Plan", "Step", "acheck", "check", "install", "parts", "plan", "script", "uninstall", "upgrade"]

ROOT = Path(__file__).parent
Notify = Callable[[str], None]
Connection = psycopg.Connection[Any]

# "pgq" in ASCII. Whoever holds it can delay an installation, nothing else.
_LOCK = "select pg_catalog.pg_advisory_xact_lock(7366513)"
_PATH = "set local search_path = pg_catalog, pg_temp"


@dataclass(frozen=True)
class Step:
    """One file with its ledger entry: what it is, and its SQL (several statements, no parameters)."""

    title: str
    sql: str


@dataclass(frozen=True)
class Plan:
    """What would bring a database up to date. Empty when it is."""

    steps: tuple[Step, ...]

    def __bool__(self) -> bool:
        return bool(self.steps)

    def script(self) -> str:
        """One transaction that psql can run on the database that the plan was made for."""
        body = "\n\n".join(f"-- {step.title}\n{step.sql.strip()}" for step in self.steps)
        return f"begin;\n{_LOCK};\n{_PATH};\n\n{body}\n\ncommit;\n"


def install(conn: Connection, *, parts: Sequence[str] = (), notify: Notify | None = None, root: Path = ROOT) -> Plan:
    """Bring the schema to this package's version, creating it where there is none, with these optional parts beside
    those it has; return what was done.

    Notices of the SQL (skipped roles) go to `notify`. Raises InvalidArgument for an unknown part, ForeignSchema and
    SchemaOutdated (database newer than the package, or a migration changed after it had been applied); nothing is
    changed then.
    """
    with locked(conn, notify):
        return apply(conn, plan(conn, parts=parts, root=root))


def upgrade(conn: Connection, *, notify: Notify | None = None, root: Path = ROOT) -> Plan:
    """As install, but the schema must be there. Raises SchemaMissing where it is not."""
    with locked(conn, notify):
        require_ours(_state(conn))
        return apply(conn, plan(conn, root=root))


def plan(conn: Connection, *, parts: Sequence[str] = (), root: Path = ROOT) -> Plan:
    """What install would do now. Changes nothing; raises what install would raise."""
    state = _state(conn)
    source = load(root)
    ledger: list[Applied] = []
    if state is not None:
        require_ours(state)
        ledger = _ledger(conn)
    chosen, due = parts_of(ledger, source, parts)
    _refuse_foreign(conn, [part for part in chosen if PARTS[part.name] not in {row.version for row in ledger}])
    if state is None:
        return _plan(list(source.migrations), source, chosen)
    todo, differs = pending(ledger, source)
    if todo or differs:
        return _plan(todo, source, chosen)
    steps = _part_steps(due)
    if due or state.grants_due:
        steps += [Step(item.name, item.sql) for item in source.grants]
    return Plan(tuple(steps))


def script(*, parts: Sequence[str] = (), root: Path = ROOT) -> str:
    """The whole installation as one script for an empty database. Raises InvalidArgument for an unknown part."""
    source = load(root)
    return _plan(list(source.migrations), source, parts_of([], source, parts)[0]).script()


def parts(conn: Connection) -> list[str]:
    """Names of the optional parts that a database has, whoever asks."""
    found = _rows(conn, "select nspname from pg_catalog.pg_namespace where obj_description(oid) like 'pgq-py%'")
    return sorted({str(row[0]).removeprefix("pgq_") for row in found} & PARTS.keys())


def check(conn: Connection, *, root: Path = ROOT) -> None:
    """Raise SchemaMissing, ForeignSchema or SchemaOutdated unless the schema has exactly this package's migrations.

    Replaceable parts may differ: while a fleet is upgraded, old and new processes share the database. A role that may
    not read the ledger learns only whether the schema is there and ours.
    """
    state = require_ours(_state(conn))
    _judge(_ledger(conn) if state.readable else None, load(root))


async def acheck(conn: psycopg.AsyncConnection[Any], *, root: Path = ROOT) -> None:
    """check() for an asynchronous connection."""
    async with conn.cursor(row_factory=class_row(State)) as cur:
        state = require_ours(await (await cur.execute(STATE_SQL)).fetchone())
    async with conn.cursor(row_factory=class_row(Applied)) as cur:
        ledger = await (await cur.execute(LEDGER_SQL)).fetchall() if state.readable else None
    _judge(ledger, load(root))


def uninstall(conn: Connection, *, force: bool = False, notify: Notify | None = None) -> bool:
    """Drop the schema; return whether there was one. The roles stay: they belong to the cluster, and other databases
    may use them.

    Unless forced, it is refused while queues may hold events, or while tables and views elsewhere depend on the schema.
    Raises PgqError for both, ForeignSchema for a schema that is not ours.
    """
    with locked(conn, notify):
        state = _state(conn)
        if state is None:
            return False
        require_ours(state)
        if not force:
            _refuse_loss(conn)
        for part in parts(conn):
            conn.execute(f"drop schema pgq_{part} cascade".encode())
        conn.execute("drop schema pgq cascade")
        return True


def _plan(migrations: list[Migration], source: Source, chosen: Sequence[Part]) -> Plan:
    steps = []
    for migration in migrations:
        entry = _entry(migration.version, migration.name, migration.checksum)
        steps.append(Step(f"migration {migration.version:04d} {migration.name}", f"{migration.sql}\n{entry}"))
    steps += [Step(item.name, item.sql) for item in source.replaceable if item not in source.grants]
    steps += _part_steps(chosen)
    steps += [Step(item.name, item.sql) for item in source.grants]
    steps.append(Step("ledger functions", _entry(REPLACEABLE, "functions", source.checksum)))
    return Plan(tuple(steps))


def _part_steps(chosen: Sequence[Part]) -> list[Step]:
    steps = []
    for part in chosen:
        steps += [Step(item.name, item.sql) for item in part.scripts]
        steps.append(Step(f"ledger {part.name}", _entry(PARTS[part.name], part.name, part.checksum)))
    return steps


def _refuse_foreign(conn: Connection, new: Sequence[Part]) -> None:
    """Raise ForeignSchema where somebody else has the schema of a part that is to be installed."""
    for (name,) in _rows(conn, FOREIGN_PARTS_SQL, [[f"pgq_{part.name}" for part in new]]):
        raise ForeignSchema(
            f"this database has a schema {name} that pgq-py did not create",
            advice=f"Nothing was changed. Move it away: `alter schema {name} rename to {name}_old`.",
        )


def _entry(version: int, name: str, checksum: str) -> str:
    """Names are [a-z0-9_] and checksums hexadecimal, so nothing needs quoting; a script has no parameters."""
    return (
        f"insert into pgq.migration as m (version, name, checksum) values ({version}, '{name}', '{checksum}')\n"
        "on conflict (version) do update\n"
        "set checksum = excluded.checksum, applied_at = now(), applied_by = current_user;"
    )


def apply(conn: Connection, todo: Plan) -> Plan:
    for step in todo.steps:
        conn.execute("set local client_min_messages = notice")  # one file's `set local` must not hush the next
        # Bytes without parameters: the simple protocol, which takes several statements and leaves % alone.
        conn.execute(step.sql.encode())
    return todo


@contextmanager
def locked(conn: Connection, notify: Notify | None) -> Iterator[None]:
    """A transaction of our own, or a savepoint in the caller's, holding the lock.

    Every read inside sees the newest state.
    """

    def forward(diag: Diagnostic) -> None:
        # What SQL raises on purpose; the server's own "already exists, skipping" is noise.
        if notify is not None and diag.source_function == "exec_stmt_raise":
            notify(diag.message_primary or "")

    fresh = conn.info.transaction_status == TransactionStatus.IDLE
    conn.add_notice_handler(forward)
    try:
        with conn.transaction():
            if fresh:  # a default of REPEATABLE READ would show the state from before the lock
                conn.execute("set transaction isolation level read committed")
            conn.execute(_LOCK)
            conn.execute(_PATH)
            yield
    except psycopg.errors.InsufficientPrivilege as exc:
        raise _not_allowed(conn, exc) from exc
    finally:
        conn.remove_notice_handler(forward)


def _not_allowed(conn: Connection, exc: psycopg.Error) -> PgqError:
    return PgqError(
        exc.diag.message_primary or str(exc),
        advice="Nothing was changed. Installing needs the right to create a schema; an installed schema belongs to the "
        "role that installed it. Run it as that role or as the database's owner, who can also "
        f'`grant create on database "{conn.info.dbname}" to "{conn.info.user}"`.',
        sqlstate=exc.sqlstate,
    )


def _state(conn: Connection) -> State | None:
    with conn.cursor(row_factory=class_row(State)) as cur:
        return cur.execute(STATE_SQL).fetchone()


def _ledger(conn: Connection) -> list[Applied]:
    with conn.cursor(row_factory=class_row(Applied)) as cur:
        return cur.execute(LEDGER_SQL).fetchall()


def _judge(ledger: list[Applied] | None, source: Source) -> None:
    if ledger is None:
        return
    if not ledger:
        raise SchemaMissing("the schema pgq has an empty ledger: an installation was tampered with")
    todo, _ = pending(ledger, source)
    if todo:
        lacking = f"{todo[0].version:04d} ({todo[0].name})"
        raise SchemaOutdated(f"the schema pgq is older than this package: it lacks migration {lacking}")


# Slots are named ring_queue_slot. A slot of size 0 is empty for certain; others may hold events that nobody has read.
_QUEUES_WITH_DATA = """
select distinct q.queue_name
  from pgq.queue q
  join pg_catalog.pg_class c on c.relname ~ ('^[a-z]+_' || q.queue_id || '_[0-9]+$')
 where c.relnamespace = 'pgq'::regnamespace and c.relkind = 'r' and pg_catalog.pg_relation_size(c.oid) > 0
 order by 1
"""

_DEPENDENTS = """
select 'trigger ' || t.tgname || ' on ' || t.tgrelid::regclass::text
  from pg_catalog.pg_trigger t
  join pg_catalog.pg_proc p on p.oid = t.tgfoid and p.pronamespace = 'pgq'::regnamespace
  join pg_catalog.pg_class c on c.oid = t.tgrelid
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace and n.nspname not in ('pgq', 'pgq_coop', 'pgq_ext')
 where not t.tgisinternal
 union
select 'view ' || v.oid::regclass::text
  from pg_catalog.pg_depend d
  join pg_catalog.pg_rewrite r on d.classid = 'pg_catalog.pg_rewrite'::regclass and r.oid = d.objid
  join pg_catalog.pg_class v on v.oid = r.ev_class
  join pg_catalog.pg_namespace n on n.oid = v.relnamespace and n.nspname not in ('pgq', 'pgq_coop', 'pgq_ext')
 where (d.refclassid = 'pg_catalog.pg_class'::regclass
        and d.refobjid in (select oid from pg_catalog.pg_class where relnamespace = 'pgq'::regnamespace))
    or (d.refclassid = 'pg_catalog.pg_proc'::regclass
        and d.refobjid in (select oid from pg_catalog.pg_proc where pronamespace = 'pgq'::regnamespace))
 order by 1
"""


def _refuse_loss(conn: Connection) -> None:
    queues = [str(row[0]) for row in _rows(conn, _QUEUES_WITH_DATA)]
    if queues:
        raise PgqError(
            f"queues may hold unread events: {', '.join(queues)}",
            advice="Nothing was dropped. Drop these queues first, or use --yes to drop them with all their events.",
        )
    others = [str(row[0]) for row in _rows(conn, _DEPENDENTS)]
    if others:
        raise PgqError(
            f"other schemas use pgq: {', '.join(others)}",
            advice="Nothing was dropped. Drop them first, or use --yes to drop them as well.",
        )


def _rows(conn: Connection, query: Any, params: Any = None) -> list[tuple[Any, ...]]:
    with conn.cursor(row_factory=psycopg.rows.tuple_row) as cur:
        return cur.execute(query, params).fetchall()
