"""Two ways to keep jobs: the log, and beside it the table that everybody builds first.

The table is as good as such a table gets: claimed by `for update skip locked` over a partial index in the order of
priority, n rows at a time, and deleted when they are done. What it cannot do is leave the row alone: a claim is an
update and an end a delete, so each job leaves two dead rows and their index entries behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, LiteralString

from pgq_py.bench.live import QUEUE

__all__ = ["BASELINE", "LOG", "WAYS", "Way"]

_TABLE: Final = """
create table public.jobs (
    id          bigint generated always as identity primary key,
    priority    smallint not null default 100,
    status      text not null default 'pending',
    visible_at  timestamptz not null default now(),
    attempts    int not null default 0,
    locked_by   text,
    locked_at   timestamptz,
    type        text not null,
    payload     jsonb not null
);
create index on public.jobs (priority desc, visible_at, id) where status = 'pending'
"""


@dataclass(frozen=True, slots=True)
class Way:
    """Statements of one way. `claim` takes a worker's name and a number and returns claims: an id, a token or null, and
    payloads; `complete` takes id and token, or for a table the ids of the jobs as its id."""

    name: str
    prepare: LiteralString
    enqueue: LiteralString
    claim: LiteralString
    complete: LiteralString
    dead: LiteralString


LOG: Final = Way(
    "log",
    f"select pgq.create_job_queue('{QUEUE}')",
    f"select id from pgq.enqueue('{QUEUE}', 'bench', %s::jsonb)",
    f"select c.claim_id, c.token, array(select j.payload from pgq.claimed(c.claim_id, c.token) j)"
    f" from pgq.claim('{QUEUE}', %s, %s) c where c.claim_id is not null",
    "select pgq.complete(%s, %s)",
    "select relname, n_dead_tup from pg_stat_user_tables where schemaname = 'pgq'",
)

BASELINE: Final = Way(
    "table",
    _TABLE,
    "insert into public.jobs (type, payload) values ('bench', %s::jsonb) returning id",
    "with taken as (update public.jobs"
    " set status = 'running', locked_by = %s, locked_at = now(), attempts = attempts + 1"
    " where id in (select id from public.jobs where status = 'pending' and visible_at <= now()"
    " order by priority desc, visible_at, id limit %s for update skip locked) returning id, payload)"
    " select array_agg(id), null, array_agg(payload::text) from taken having count(*) > 0",
    "with gone as (delete from public.jobs where id = any (%s) and %s::bigint is null returning 1)"
    " select count(*) from gone",
    "select relname, n_dead_tup from pg_stat_user_tables where schemaname = 'public'",
)

WAYS: Final = {way.name: way for way in (LOG, BASELINE)}
