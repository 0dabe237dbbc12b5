"""Every statement of the demo, named and described in one place."""

from __future__ import annotations

from typing import Final

from psycopg.sql import SQL

QUEUE: Final = "transfers"
JOBS: Final = "receipts"

TRANSACTION: Final = f"""\
\\set aid random(1, 100000 * :scale)
\\set bid random(1, :scale)
\\set tid random(1, 10 * :scale)
\\set delta random(-5000, 5000)
begin;
update pgbench_accounts set abalance = abalance + :delta where aid = :aid;
select abalance from pgbench_accounts where aid = :aid;
update pgbench_tellers set tbalance = tbalance + :delta where tid = :tid;
update pgbench_branches set bbalance = bbalance + :delta where bid = :bid;
insert into pgbench_history (tid, bid, aid, delta, mtime) values (:tid, :bid, :aid, :delta, current_timestamp);
select pgq.send('{QUEUE}', 'transfer', jsonb_build_object('aid', :aid::int, 'bid', :bid::int, 'tid', :tid::int,
    'delta', :delta::int, 'sent', extract(epoch from clock_timestamp())));
select case when :aid::int % 10 = 0 then
    (pgq.enqueue('{JOBS}', 'receipt', jsonb_build_object('aid', :aid::int, 'delta', :delta::int))).id end;
end;
"""
"""pgbench's own TPC-B-like transaction, and in it the event that tells of it, and for a tenth of the accounts a job:
all are committed, or none."""

CREATE_TABLES: Final = """
create schema demo;
create table demo.mirror as select aid, abalance as balance from public.pgbench_accounts;
alter table demo.mirror add primary key (aid);
create table demo.applied (consumer text not null, events int not null);
create table demo.receipts (job bigint not null, aid int not null, delta int not null)
"""
"""The other side: the mirror starts as a copy of pgbench's accounts; `applied` has a row per batch, `receipts` one per
job, without a key that would hide a second one."""

SETTING_COUNTED: Final = "select n_tup_upd > 0 from pg_stat_user_tables where relid = 'pgq.queue'::regclass"
"""Whether the statistics know of the changed setting: a session reports with a delay, at the latest at its end."""

VACUUM_SETTINGS: Final = "vacuum pgq.queue"
"""Settings are ordinary rows, and changing one leaves a dead version: remove it before the horizon is pinned."""

APPLY_TRANSFERS: Final = """
update demo.mirror m
   set balance = m.balance + t.delta
  from (select aid, sum(delta) as delta from unnest(%s::int[], %s::int[]) transfer (aid, delta) group by aid) t
 where m.aid = t.aid
"""
"""A whole batch into the mirror: accounts, and as many deltas. Doing it twice, or not at all, would show for ever."""

NOTE_APPLIED: Final = "insert into demo.applied (consumer, events) values (%s, %s)"
"""A consumer and the number of events of a batch, in the batch's transaction."""

NOTE_RECEIPT: Final = "insert into demo.receipts (job, aid, delta) values (%s, %s, %s)"
"""What a job does, in the transaction that completes it."""

COUNT_RECEIPTS: Final = "select count(*) from demo.receipts"
"""How many jobs have done it."""

COUNT_RECEIPT_DIFFERENCES: Final = """
with history as (select aid, delta from public.pgbench_history where aid % 10 = 0),
     receipts as (select aid, delta from demo.receipts)
select (select count(*) from (table history except all table receipts) missing)
     + (select count(*) from (table receipts except all table history) surplus)
"""
"""Transfers that should have a receipt and have none, and receipts without a transfer of their own."""

NOW: Final = "select extract(epoch from clock_timestamp())::float8"
"""The database's clock, which also stamped the events: the client's may differ."""

PIN_HORIZON: Final = "select count(*) from public.pgbench_branches"
"""In a REPEATABLE READ transaction: from now on its snapshot keeps every dead row of the database where it is."""

HORIZON: Final = "select backend_xmin::text, age(backend_xmin) from pg_stat_activity where pid = %s"
"""The horizon that a session pins, and how many transactions ago that was."""

DEAD_TUPLES: Final = """
select coalesce(sum(n_dead_tup) filter (where schemaname = 'pgq' and relname <> 'worker'), 0)::bigint,
       coalesce(sum(n_dead_tup) filter (where schemaname <> 'pgq'), 0)::bigint
  from pg_stat_user_tables
"""
"""Dead rows in schema pgq, and in the tables of pgbench and the mirror beside it. A worker that ends notes that in its
row of pgq.worker: once per life of a process, so it is not counted."""

COUNT_TRANSFERS: Final = "select count(*) from public.pgbench_history"
"""How many transactions pgbench has committed, as its own table tells."""

COUNT_APPLIED: Final = "select consumer, sum(events)::bigint from demo.applied group by consumer"
"""How many events each consumer has committed."""

COUNT_DIFFERENCES: Final = """
with accounts as (select aid, abalance from public.pgbench_accounts),
     mirror as (select aid, balance from demo.mirror)
select (select count(*) from (table accounts except all table mirror) missing)
     + (select count(*) from (table mirror except all table accounts) surplus)
"""
"""Rows of pgbench's table that are not in the mirror, and rows of the mirror that are not in pgbench's table."""

COUNT_ACCOUNTS: Final = "select count(*) from public.pgbench_accounts"

COUNT_LEFT: Final = SQL("select count(*) from pgq.{}")
"""Rows in all slots of a ring (template: its name)."""

CREATE_DATABASE: Final = SQL("create database {}")
DROP_DATABASE: Final = SQL("drop database if exists {} with (force)")
"""A database of the demo's own, on a server of the user's (template: its name)."""
