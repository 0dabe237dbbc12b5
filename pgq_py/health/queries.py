"""The statements behind `pgq status`, `pgq doctor` and the `show` verbs, beside those of the client. All only read."""

from __future__ import annotations

from typing import Final

NOW: Final = "select clock_timestamp()"
"""The database's clock."""

# -- the log -----------------------------------------------------------------------------------------------------------

TICKER: Final = """
select l.pid, a.application_name
  from pg_locks l
  left join pg_stat_activity a on a.pid = l.pid
 where l.locktype = 'advisory' and l.granted and l.objsubid = 1
   and l.database = (select oid from pg_database where datname = current_database())
   and (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended('pgq ticker', 0)
"""
"""Who leads the ticking of this database, by the lock that it holds: at most one row."""

EVICTIONS: Final = """
select q.queue_name, e.consumer_name, e.evicted_at, e.last_tick, e.lag
  from pgq.eviction e
  join pgq.queue q using (queue_id)
 order by 1, 2
"""
"""Consumers that were removed for lagging, and have not come back."""

FOREIGN_QUEUES: Final = """
select q.queue_name
  from pgq.queue q
 cross join lateral (
       select t.tick_snapshot from pgq.tick t where t.tick_queue = q.queue_id order by t.tick_id desc limit 1) last
 where pg_snapshot_xmax(last.tick_snapshot) > pg_snapshot_xmax(pg_current_snapshot())
 order by 1
"""
"""Queues whose last tick has transaction ids from the future of this cluster: what a ticker refuses with PQ010."""

QUEUE_SETTINGS: Final = """
select q.queue_rotation_period as rotation_period, q.queue_retention as retention,
       q.queue_disable_insert as disable_insert, q.queue_ticker_paused as ticker_paused,
       q.queue_external_ticker as external_ticker, q.queue_ticker_max_count as ticker_max_count,
       q.queue_ticker_max_lag as ticker_max_lag, q.queue_ticker_idle_period as ticker_idle_period,
       q.queue_max_consumer_lag as max_consumer_lag, coalesce(p.max_retries, 5) as max_retries
  from pgq.queue q
  left join pgq.retry_policy p on p.queue_id = q.queue_id and p.consumer_name = ''
 where q.queue_name = %s
"""
"""A queue's settings as they were given; null: on demand, never or off."""

RETRY_POLICIES: Final = """
select p.consumer_name, p.max_retries, p.kind, p.base, p.cap, p.jitter, p.delays
  from pgq.retry_policy p
  join pgq.queue q using (queue_id)
 where q.queue_name = %s
 order by 1
"""
"""The retry policies of a queue; '' is for every consumer without one of its own."""

GRANTS: Final = """
select r.rolname::text as role, 'produce' as may, null::text as consumer
  from pgq.queue q
  join pg_proc p on p.pronamespace = 'pgq'::regnamespace
       and p.proname = 'produce_' || q.queue_id || '_' || left(md5(q.queue_name), 8)
 cross join lateral aclexplode(p.proacl) acl
  join pg_roles r on r.oid = acl.grantee
 where q.queue_name = %s and acl.grantee <> p.proowner and r.rolname not in ('pgq_writer', 'pgq_admin')
 union all
select g.role_name, case when g.consumer_name = '' then 'work' else 'consume' end, nullif(g.consumer_name, '')
  from pgq.consume_grant g
  join pgq.queue q using (queue_id)
 where q.queue_name = %s
 order by 1, 2, 3
"""
"""Rights for this queue alone, beside the members of pgq_reader, pgq_writer and pgq_admin."""

WAITING_RETRIES: Final = """
select count(*)
  from pgq.retry_queue r
  join pgq.queue q on q.queue_id = r.ev_queue
  join pgq.registration s on s.sub_id = r.ev_owner
  join pgq.consumer c on c.co_id = s.sub_consumer
 where q.queue_name = %s and c.co_name = %s
"""
"""How many events wait to come again to a consumer."""

DEAD_LETTER_COUNT: Final = "select count(*) from pgq.dead_letter where queue_name = %s and consumer_name = %s"
"""How many a consumer has given up."""

RELEASES_OVERDUE: Final = """
select i.queue_name, i.next_due
  from pgq.delay_info() i
  join pgq.releases_due() r using (queue_name)
  join pgq.queue q using (queue_name)
 where r.wait_ms = 0 and i.next_due < clock_timestamp() and not q.queue_ticker_paused and not q.queue_external_ticker
"""
"""Queues with delayed events whose time has come, and since when."""

# -- the server around it ----------------------------------------------------------------------------------------------

XMIN_HOLDERS: Final = """
(select 'session' as kind, pid::text as name, datname::text, application_name, age(backend_xmin) as transactions,
        clock_timestamp() - xact_start as age
   from pg_stat_activity
  where backend_xmin is not null and pid <> pg_backend_pid() and backend_type = 'client backend'
  order by age(backend_xmin) desc, xact_start limit 1)
 union all
(select 'prepared', gid, database::text, null, age(transaction), clock_timestamp() - prepared
   from pg_prepared_xacts order by age(transaction) desc limit 1)
 union all
(select 'slot', slot_name::text, database::text, case when active then 'active' else 'inactive' end,
        greatest(age(xmin), age(catalog_xmin)), null
   from pg_replication_slots where coalesce(xmin, catalog_xmin) is not null
  order by greatest(age(xmin), age(catalog_xmin)) desc limit 1)
"""
"""Whose snapshot is the oldest: of sessions, of prepared transactions, of replication slots."""

MISSING_ROLES: Final = """
select name from unnest('{pgq_reader,pgq_writer,pgq_admin}'::text[]) name
 where not exists (select from pg_roles where rolname = name)
"""
"""Roles of ours that the cluster lacks."""

DEAD_CATALOG_ROWS: Final = """
select n_dead_tup, n_live_tup from pg_stat_sys_tables where relid = 'pg_catalog.pg_class'::regclass
"""
"""Dead and live rows of pg_class, as the statistics have them."""

IS_STANDBY: Final = "select pg_is_in_recovery()"
"""Whether this is a standby."""

UNPINNED_FUNCTIONS: Final = """
select oid::regprocedure::text
  from pg_proc
 where pronamespace = 'pgq'::regnamespace and prosecdef
   and not coalesce('search_path=pg_catalog, pgq, pg_temp' = any (proconfig), false)
 order by 1
"""
"""Functions of ours that run with their owner's rights and have lost the search_path that they are made with."""

PATH_SETTINGS: Final = """
select r.rolname::text, d.datname::text, substr(setting, length('search_path=') + 1)
  from pg_db_role_setting s
  left join pg_roles r on r.oid = s.setrole
  left join pg_database d on d.oid = s.setdatabase
 cross join lateral unnest(s.setconfig) setting
 where setting ~ '^search_path=' and (s.setdatabase = 0 or d.datname = current_database())
   and (s.setrole = 0 or r.oid is not null)
 order by 1, 2
"""
"""Role, database (null: all) and search_path, of every setting that counts in this database."""

NAMESAKES: Final = """
select nspname::text, min(name)
  from (select pronamespace, proname::text from pg_proc union all select relnamespace, relname::text from pg_class)
       other(namespace, name)
  join pg_namespace n on n.oid = namespace
 where n.nspname !~ '^(pg_|pgq$|information_schema$)'
   and name in (select proname from pg_proc where pronamespace = 'pgq'::regnamespace and proname !~ '^_'
                union all
                select relname from pg_class where relnamespace = 'pgq'::regnamespace and relkind in ('r', 'v'))
 group by 1
"""
"""Schemas with a function or table that is named like one of ours, and the name."""
