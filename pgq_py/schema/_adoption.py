"""The statements of adopt.py: what a database of PgQ's looks like, who uses it, and whether the copy is a copy."""

from __future__ import annotations

from typing import Final

SCHEMAS: Final = """
select n.nspname::text,
       (select e.extname::text from pg_catalog.pg_depend d join pg_catalog.pg_extension e on e.oid = d.refobjid
         where d.classid = 'pg_catalog.pg_namespace'::regclass and d.objid = n.oid
           and d.refclassid = 'pg_catalog.pg_extension'::regclass and d.deptype = 'e')
  from pg_catalog.pg_namespace n
 where n.nspname in ('pgq', 'pgq_coop', 'pgq_ext')
   and coalesce(obj_description(n.oid, 'pg_namespace'), '') not like 'pgq-py%'
"""
"""Schemas of those names that are not ours, and the extensions that they belong to."""

MISSING: Final = """
select format('%s.%s', t, c)
  from (values ('queue', '{queue_id,queue_name,queue_ntables,queue_data_pfx,queue_event_seq,queue_ticker_max_count,
                           queue_extra_maint,queue_ticker_paused,queue_disable_insert}'::text[]),
               ('consumer', '{co_id,co_name}'), ('batch_id_seq', '{last_value}'),
               ('subscription', '{sub_id,sub_queue,sub_consumer,sub_last_tick,sub_active,sub_batch,sub_next_tick}'),
               ('tick', '{tick_queue,tick_id,tick_time,tick_snapshot,tick_event_seq}'),
               ('retry_queue', '{ev_retry_after,ev_queue,ev_id,ev_owner,ev_retry}'),
               ('event_template', '{ev_id,ev_txid,ev_owner,ev_extra4}')) known(t, cs), unnest(cs) c
 where not exists (select from pg_catalog.pg_attribute a join pg_catalog.pg_class r on r.oid = a.attrelid
                    where r.relnamespace = 'pgq'::regnamespace and r.relname = t and a.attname = c)
"""
"""What a schema of PgQ 3 has and this one has not."""

UNKNOWN: Final = """
select 'relation pgq.' || relname
  from pg_catalog.pg_class c
 where relnamespace = 'pgq'::regnamespace and relkind not in ('i', 'I', 't', 'c')
   and relname not in ('queue', 'consumer', 'subscription', 'tick', 'retry_queue', 'event_template', 'batch_id_seq',
                       'queue_queue_id_seq', 'consumer_co_id_seq', 'subscription_sub_id_seq')
   and not exists (select from pgq.queue where relname ~ (
                   '^' || split_part(queue_data_pfx, '.', 2) || '(_[0-9]+|_id_seq|_tick_seq)?$'))
 union all
select 'function ' || p.oid::regprocedure::text
  from pg_catalog.pg_proc p
 where pronamespace = 'pgq'::regnamespace
   and proname not in (
       '_grant_perms_from', 'batch_event_sql', 'batch_event_tables', 'batch_retry', 'create_queue',
       'current_event_table', 'drop_queue', 'event_failed', 'event_retry', 'event_retry_raw', 'find_tick_helper',
       'finish_batch', 'force_tick', 'get_batch_cursor', 'get_batch_events', 'get_batch_info', 'get_consumer_info',
       'get_queue_info', 'grant_perms', 'insert_event', 'insert_event_raw', 'jsontriga', 'logutriga',
       'maint_operations', 'maint_retry_events', 'maint_rotate_tables_step1', 'maint_rotate_tables_step2',
       'maint_tables_to_vacuum', 'next_batch', 'next_batch_custom', 'next_batch_info', 'quote_fqname',
       'register_consumer', 'register_consumer_at', 'seq_getval', 'seq_setval', 'set_queue_config', 'sqltriga',
       'ticker', 'tune_storage', 'unregister_consumer', 'upgrade_schema', 'version')
 order by 1
"""
"""What is in the schema pgq and is not PgQ's."""

DEPENDENTS: Final = """
select distinct pg_describe_object(d.classid, d.objid, d.objsubid)
  from pg_catalog.pg_depend d
  left join pg_catalog.pg_proc p on d.refclassid = 'pg_catalog.pg_proc'::regclass and p.oid = d.refobjid
  left join pg_catalog.pg_class c on d.refclassid = 'pg_catalog.pg_class'::regclass and c.oid = d.refobjid
  left join pg_catalog.pg_type t on d.refclassid = 'pg_catalog.pg_type'::regclass and t.oid = d.refobjid
  left join pg_catalog.pg_extension e on d.refclassid = 'pg_catalog.pg_extension'::regclass and e.oid = d.refobjid
  join pg_catalog.pg_namespace n
    on n.oid = coalesce(p.pronamespace, c.relnamespace, t.typnamespace)
    or e.extname in ('pgq', 'pgq_coop', 'pgq_ext') and n.nspname = e.extname
 cross join lateral (select (pg_identify_object_as_address(d.classid, d.objid, d.objsubid)).object_names[1]) o(name)
 where n.nspname in ('pgq', 'pgq_coop', 'pgq_ext') and d.deptype <> 'e'
   and o.name !~ '^"?(pgq|pgq_coop|pgq_ext|pg_toast)"?([.]|$)'
   and not (d.classid = 'pg_catalog.pg_extension'::regclass and o.name in ('pgq', 'pgq_coop', 'pgq_ext'))
   and not (d.classid = 'pg_catalog.pg_trigger'::regclass and p.proname in ('jsontriga', 'logutriga', 'sqltriga'))
 order by 1
"""
"""What others made of it: views, defaults, columns, functions, extensions; not the triggers that we can make anew."""

TRIGGERS: Final = """
select t.tgrelid::regclass::text, t.tgname::text, pg_get_triggerdef(t.oid), t.tgenabled::text, p.proname::text
  from pg_catalog.pg_trigger t
  join pg_catalog.pg_proc p on p.oid = t.tgfoid and p.pronamespace = 'pgq'::regnamespace
  join pg_catalog.pg_class c on c.oid = t.tgrelid and c.relnamespace <> 'pgq'::regnamespace
 where not t.tgisinternal
 order by t.tgrelid, t.tgname
"""
"""Triggers of tables that are captured: table, name, definition, when it fires, function."""

LOST_POSITIONS: Final = """
select format('%s/%s', queue_name, co_name)
  from pgq.subscription join pgq.queue on queue_id = sub_queue join pgq.consumer on co_id = sub_consumer
 where exists (select from unnest(array[sub_last_tick, sub_next_tick]) wanted
                where wanted is not null
                  and not exists (select from pgq.tick where tick_queue = sub_queue and tick_id = wanted))
 order by 1
"""
"""Consumers that stand at a tick that does not exist."""

FOREIGN_QUEUES: Final = """
select distinct queue_name
  from pgq.queue join pgq.tick on tick_queue = queue_id
 where txid_snapshot_xmax(tick_snapshot) > txid_snapshot_xmax(txid_current_snapshot())
 order by 1
"""
"""Queues with ticks from the future of this cluster: the database was restored from a dump of another."""

TABLES: Final = """
select c.oid::regclass::text
  from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
 where n.nspname = any (%s) and c.relkind = 'r'
 order by n.nspname, c.relname <> 'queue', c.relname
"""
"""The tables to be locked, pgq.queue before all others: nearly every call of PgQ reads it first."""

HOLDERS: Final = """
select distinct coalesce('prepared transaction ' || p.gid,
                         format('process %%s (%%s)', l.pid, coalesce(nullif(a.application_name, ''), a.usename))),
       l.pid is null
  from pg_locks l
  left join pg_stat_activity a on a.pid = l.pid
  left join pg_locks x on l.pid is null and x.pid is null and x.locktype = 'transactionid'
       and x.mode = 'ExclusiveLock' and x.virtualtransaction = l.virtualtransaction
  left join pg_prepared_xacts p on p.transaction = x.transactionid
 where l.granted and l.pid is distinct from pg_backend_pid()
   and l.database = (select oid from pg_database where datname = current_database())
   and l.relation in (select unnest(%s::text[])::regclass)
 order by 1
"""
"""Who holds locks on these tables, and whether it is a prepared transaction."""

COUNTS: Final = """
select (select count(*) from {0}.queue)::int, (select count(*) from {0}.subscription)::int,
       (select count(*) from {0}.subscription where sub_batch is not null)::int,
       (select count(*) from {0}.retry_queue)::int
"""

UNREAD_BEFORE: Final = """
do $$
declare
    s  record;
begin
    create temporary table pgq_unread (consumer text, stage text, events bigint, ids numeric) on commit drop;
    for s in
        select q.queue_name || '/' || c.co_name as name, b.sub_id, b.sub_last_tick, q.queue_data_pfx, t.tick_snapshot
        from pgq.subscription b join pgq.queue q on q.queue_id = b.sub_queue
        join pgq.consumer c on c.co_id = b.sub_consumer
        join pgq.tick t on t.tick_queue = b.sub_queue and t.tick_id = b.sub_last_tick
    loop
        execute format('insert into pgq_unread select $1, ''before'', count(*), sum(ev_id) from %s'
                       ' where not txid_visible_in_snapshot(ev_txid, $2) and (ev_owner is null or ev_owner = $3)',
                       s.queue_data_pfx) using s.name, s.tick_snapshot, s.sub_id;
    end loop;
end;
$$
"""
"""How many events are after each consumer's position, and the sum of their ids; of the old schema, under its locks."""

UNREAD_AFTER: Final = """
do $$
declare
    s  record;
begin
    for s in
        select q.queue_name || '/' || c.co_name as name, pgq._owner(b.sub_id) as sub_id, q.queue_data_pfx,
               t.tick_snapshot
        from pgq.subscription b join pgq.queue q on q.queue_id = b.sub_queue
        join pgq.consumer c on c.co_id = b.sub_consumer
        join pgq.tick t on t.tick_queue = b.sub_queue and t.tick_id = b.sub_last_tick
    loop
        execute format('insert into pgq_unread select $1, ''after'', count(*), sum(ev_id) from %s'
                       ' where not pg_visible_in_snapshot(ev_txid, $2) and (ev_owner is null or ev_owner = $3)',
                       s.queue_data_pfx) using s.name, s.tick_snapshot, s.sub_id;
    end loop;
end;
$$
"""
"""The same of ours."""

DIFFERENT: Final = """
select consumer from pgq_unread
 group by consumer having count(*) <> 2 or min(events) <> max(events) or min(ids) is distinct from max(ids)
 order by 1
"""

EVENTS: Final = "select count(*)::int from pgq.event_template"

GRANTEES: Final = """
select distinct r.rolname::text
  from (select proacl as acl, proowner as owner from pg_catalog.pg_proc where pronamespace = 'pgq'::regnamespace
         union all
        select relacl, relowner from pg_catalog.pg_class where relnamespace = 'pgq'::regnamespace) o
 cross join lateral aclexplode(o.acl) a
  join pg_catalog.pg_roles r on r.oid = a.grantee
 where a.grantee <> o.owner and r.rolname not in ('pgq_reader', 'pgq_writer', 'pgq_admin')
 order by 1
"""
"""Roles with rights of their own on the old schema, beside those that PgQ makes."""
