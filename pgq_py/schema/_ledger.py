"""What a database says about its schema pgq: whether it is there, whether it is ours, and what has been applied to it.

The ledger is the table pgq.migration, one row per migration; row 0 has the checksum of everything replaceable, and rows
below 0 are the optional parts that are installed. A schema is ours when it has a ledger, its comment starts with
`pgq-py`, and no extension owns it. Every other schema pgq, PgQ's own included, is foreign.

State is read with plain catalog queries, because a role without privileges on the schema must be able to ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgq_py.errors import ForeignSchema, InvalidArgument, SchemaMissing, SchemaOutdated
from pgq_py.schema._source import Migration, Part, Source

__all__ = [
    "FOREIGN_PARTS_SQL",
    "LEDGER_SQL",
    "PARTS",
    "REPLACEABLE",
    "STATE_SQL",
    "Applied",
    "State",
    "parts_of",
    "pending",
    "require_ours",
]

REPLACEABLE = 0
"""The ledger's row for everything replaceable."""

PARTS = {"coop": -1, "ext": -2}
"""The ledger's rows for the optional parts; each has the schema pgq_<name> for itself."""

STATE_SQL = """
select coalesce(obj_description(n.oid, 'pg_namespace') like 'pgq-py%', false) as commented,
       exists (select from pg_catalog.pg_class c
                where c.relnamespace = n.oid and c.relname = 'migration' and c.relkind = 'r') as has_ledger,
       (select e.extname from pg_catalog.pg_depend d join pg_catalog.pg_extension e on e.oid = d.refobjid
         where d.classid = 'pg_catalog.pg_namespace'::regclass and d.objid = n.oid
           and d.refclassid = 'pg_catalog.pg_extension'::regclass and d.deptype = 'e') as extension,
       (select has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select')
          from pg_catalog.pg_class c
         where c.relnamespace = n.oid and c.relname = 'migration' and c.relkind = 'r') as readable,
       exists (select from pg_catalog.pg_roles r
                where r.rolname in ('pgq_reader', 'pgq_writer', 'pgq_admin')
                  and not exists (select from pg_catalog.pg_shdepend d join pg_catalog.pg_proc p on p.oid = d.objid
                                   where d.dbid = (select oid from pg_catalog.pg_database
                                                    where datname = current_database())
                                     and d.classid = 'pg_catalog.pg_proc'::regclass and p.pronamespace = n.oid
                                     and d.refclassid = 'pg_catalog.pg_authid'::regclass and d.refobjid = r.oid
                                     and d.deptype = 'a')) as grants_due
  from pg_catalog.pg_namespace n
 where n.nspname = 'pgq'
"""

FOREIGN_PARTS_SQL = """
select s.nspname::text
  from pg_catalog.pg_namespace s
 where s.nspname = any (%s) and coalesce(obj_description(s.oid, 'pg_namespace'), '') not like 'pgq-py%%'
 order by 1
"""
"""Of the schemas of optional parts, those that somebody else made."""

LEDGER_SQL = "select version, name, checksum from pgq.migration order by version"


@dataclass(frozen=True)
class State:
    """One row of STATE_SQL; where there is no schema pgq, there is no row.

    `grants_due`: a role of ours is in no access list of our functions. The installation could not make it, and somebody
    has made it since.
    """

    commented: bool
    has_ledger: bool
    extension: str | None
    readable: bool | None
    grants_due: bool


@dataclass(frozen=True)
class Applied:
    """One row of LEDGER_SQL."""

    version: int
    name: str
    checksum: str


def require_ours(state: State | None) -> State:
    """The state of a schema of ours. Raises SchemaMissing or ForeignSchema."""
    if state is None:
        raise SchemaMissing("this database has no schema pgq")
    if state.extension is not None:
        raise ForeignSchema(
            f"the schema pgq belongs to the extension {state.extension}",
            advice=f"{ForeignSchema.default_advice} PgQ's own is taken over by `pgq adopt`.",
        )
    if not (state.commented and state.has_ledger):
        raise ForeignSchema("this database has a schema pgq that pgq-py did not create")
    return state


def pending(ledger: Sequence[Applied], source: Source) -> tuple[list[Migration], bool]:
    """Migrations still to apply, and whether the replaceable part differs.

    Raises SchemaOutdated when the database is ahead of this package, or has another text of a migration that both have.
    """
    applied = {row.version: row for row in ledger}
    known = {migration.version for migration in source.migrations}
    if ahead := sorted(version for version in applied.keys() - known if version > REPLACEABLE):
        raise _newer(f"migration {ahead[-1]}, the package ends at {max(known, default=0)}")
    for migration in source.migrations:
        _refuse_changed(migration, applied.get(migration.version))
    todo = [migration for migration in source.migrations if migration.version not in applied]
    replaceable = applied.get(REPLACEABLE)
    return todo, replaceable is None or replaceable.checksum != source.checksum


def parts_of(ledger: Sequence[Applied], source: Source, wanted: Sequence[str] = ()) -> tuple[list[Part], list[Part]]:
    """The optional parts that are installed or wanted, and those of them that are still to be applied.

    Raises InvalidArgument for a wanted part that there is not, SchemaOutdated for an installed one.
    """
    known = {part.name: part for part in source.parts}
    if strange := sorted(set(wanted) - known.keys()):
        raise InvalidArgument(
            f"there is no optional part {strange[0]}",
            advice=f"Nothing was changed. Parts are: {', '.join(known) or 'none'}.",
        )
    applied = {row.name: row.checksum for row in ledger if row.version < REPLACEABLE}
    if ahead := sorted(applied.keys() - known.keys()):
        raise _newer(f"the part {ahead[0]}, which the package has not")
    there = [part for part in source.parts if part.name in applied or part.name in wanted]
    return there, [part for part in there if applied.get(part.name) != part.checksum]


def _newer(what: str) -> SchemaOutdated:
    return SchemaOutdated(
        f"the schema pgq is newer than this package: it has {what}",
        advice="Nothing was changed. Upgrade the package: `pip install --upgrade pgq-py`.",
    )


def _refuse_changed(migration: Migration, row: Applied | None) -> None:
    if row is None or row.checksum == migration.checksum:
        return
    raise SchemaOutdated(
        f"migration {migration.version:04d} ({migration.name}) is not the one that was applied to this database",
        advice="Nothing was changed. Migrations are append-only: use the release that applied it, or a later one; "
        "a changed copy of the package cannot be installed over it.",
    )
