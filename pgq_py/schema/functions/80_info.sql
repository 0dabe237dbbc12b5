-- Information for people and monitoring. Reads only; a view or function here may show
-- a consumer or tick missing for the instant in which its row is being moved.

create or replace function pgq.version()
returns text language sql immutable as $$ select '3.5.0+pgqpy.0.1.0'::text $$;
comment on function pgq.version() is 'PgQ version whose functions this schema has, and its own.';


create or replace function pgq.get_queue_info(
    in i_queue_name text, out queue_name text, out queue_ntables integer, out queue_cur_table integer,
    out queue_rotation_period interval, out queue_switch_time timestamptz, out queue_external_ticker boolean,
    out queue_ticker_paused boolean, out queue_ticker_max_count integer, out queue_ticker_max_lag interval,
    out queue_ticker_idle_period interval, out ticker_lag interval, out ev_per_sec float8, out ev_new bigint,
    out last_tick_id bigint)
returns setof record language plpgsql security definer
set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.get_queue_info(1)
--
--      State and settings of a queue, or of all (null). Ticker settings that
--      are not given show PgQ's defaults; the queue then ticks on demand.
--
--      ev_new and ev_per_sec come from the event sequence: hints, not counts.
-- ----------------------------------------------------------------------
declare
    q    pgq.queue;
    top  pgq.tick_ring;
    old  pgq.tick_ring;
begin
    for q in select * from pgq.queue t where i_queue_name is null or t.queue_name = i_queue_name
             order by t.queue_name loop
        top := pgq._newest_tick(q.queue_id);
        continue when top.tick_id is null;
        select * into old from pgq.tick_ring t
            where t.tick_queue = q.queue_id and t.tick_id >= top.tick_id - 20 order by t.tick_queue, t.tick_id limit 1;
        queue_name := q.queue_name;
        queue_ntables := q.queue_ntables;
        queue_cur_table := pgq._phase('event_' || q.queue_id) / 2 % q.queue_ntables;
        queue_rotation_period := q.queue_rotation_period;
        queue_switch_time := pgq._switched_at('event_' || q.queue_id);
        queue_external_ticker := q.queue_external_ticker;
        queue_ticker_paused := q.queue_ticker_paused;
        queue_ticker_max_count := coalesce(q.queue_ticker_max_count, 500);
        queue_ticker_max_lag := coalesce(q.queue_ticker_max_lag, interval '3 seconds');
        queue_ticker_idle_period := coalesce(q.queue_ticker_idle_period, interval '1 minute');
        ticker_lag := clock_timestamp() - top.tick_time;
        ev_per_sec := case when old.tick_time < top.tick_time then
            (top.tick_event_seq - old.tick_event_seq) / extract(epoch from top.tick_time - old.tick_time) end;
        ev_new := coalesce(pg_sequence_last_value(q.queue_event_seq::regclass), 0) - top.tick_event_seq;
        last_tick_id := top.tick_id;
        return next;
    end loop;
end;
$$;
comment on function pgq.get_queue_info(text) is 'State and settings of a queue, or of all (null).';


create or replace function pgq.get_queue_info(
    out queue_name text, out queue_ntables integer, out queue_cur_table integer,
    out queue_rotation_period interval, out queue_switch_time timestamptz, out queue_external_ticker boolean,
    out queue_ticker_paused boolean, out queue_ticker_max_count integer, out queue_ticker_max_lag interval,
    out queue_ticker_idle_period interval, out ticker_lag interval, out ev_per_sec float8, out ev_new bigint,
    out last_tick_id bigint)
returns setof record language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- as get_queue_info(1), for all queues
begin
    return query select * from pgq.get_queue_info(null);
end;
$$;
comment on function pgq.get_queue_info() is 'State and settings of all queues.';


create or replace function pgq.get_consumer_info(
    in i_queue_name text, in i_consumer_name text, out queue_name text, out consumer_name text, out lag interval,
    out last_seen interval, out last_tick bigint, out current_batch bigint, out next_tick bigint, out pending_events bigint)
returns setof record language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.get_consumer_info(2)
--
--      Where consumers stand: of one queue or all (null), one name or all.
--
-- Returns:
--      lag             - age of the last tick it has finished; null, as last_tick
--                        is, for a subconsumer without a batch
--      last_seen       - time since it last took or finished anything
--      last_tick, current_batch, next_tick  - its cursor
--      pending_events  - from the event sequence: a hint, not a count
-- ----------------------------------------------------------------------
declare
    r  record;
    c  pgq.cursor_ring;
    t  pgq.tick_ring;
begin
    for r in select s.sub_id, q.queue_id, q.queue_name as qname, co.co_name
             from pgq.registration s
             join pgq.queue q on q.queue_id = s.sub_queue
             join pgq.consumer co on co.co_id = s.sub_consumer
             where (i_queue_name is null or q.queue_name = i_queue_name)
               and (i_consumer_name is null or co.co_name = i_consumer_name)
             order by 3, 4
    loop
        c := pgq._cursor(r.sub_id);
        continue when c.sub_id is null;
        if c.lo = 9223372036854775807 then
            c.last_tick := null;
        end if;
        t := pgq._find_tick(r.queue_id, c.last_tick);
        queue_name := r.qname;
        consumer_name := r.co_name;
        lag := clock_timestamp() - t.tick_time;
        last_seen := clock_timestamp() - c.at;
        last_tick := c.last_tick;
        current_batch := c.batch_id;
        next_tick := c.next_tick;
        pending_events := (pgq._newest_tick(r.queue_id)).tick_event_seq - t.tick_event_seq;
        return next;
    end loop;
end;
$$;
comment on function pgq.get_consumer_info(text, text) is 'Where consumers stand, of one queue or all, one name or all.';


create or replace function pgq.get_consumer_info(
    in i_queue_name text, out queue_name text, out consumer_name text, out lag interval, out last_seen interval,
    out last_tick bigint, out current_batch bigint, out next_tick bigint, out pending_events bigint)
returns setof record language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- as get_consumer_info(2), for all consumers of a queue
begin
    return query select * from pgq.get_consumer_info(i_queue_name, null);
end;
$$;
comment on function pgq.get_consumer_info(text) is 'Where the consumers of a queue stand.';


create or replace function pgq.get_consumer_info(
    out queue_name text, out consumer_name text, out lag interval, out last_seen interval,
    out last_tick bigint, out current_batch bigint, out next_tick bigint, out pending_events bigint)
returns setof record language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- as get_consumer_info(2), for all
begin
    return query select * from pgq.get_consumer_info(null, null);
end;
$$;
comment on function pgq.get_consumer_info() is 'Where all consumers stand.';


create or replace function pgq.get_batch_info(
    in x_batch_id bigint, out queue_name text, out consumer_name text, out batch_start timestamptz,
    out batch_end timestamptz, out prev_tick_id bigint, out tick_id bigint, out lag interval,
    out seq_start bigint, out seq_end bigint)
language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.get_batch_info(1)
--
--      An open batch: whose it is, its ticks, their times and event sequences
--      (hints). All null when it is not open.
-- ----------------------------------------------------------------------
declare
    r     pgq.registration := pgq._batch_registration(x_batch_id);
    c     pgq.cursor_ring;
    prev  pgq.tick_ring;
    cur   pgq.tick_ring;
begin
    if r.sub_id is null then
        return;
    end if;
    perform pgq._require_consume_as(r);
    c := pgq._cursor(r.sub_id);
    if (c.batch_id = x_batch_id) is not true then
        return;
    end if;
    prev := pgq._cursor_tick(r.sub_queue, c.last_tick);
    cur := pgq._cursor_tick(r.sub_queue, c.next_tick);
    select q.queue_name into queue_name from pgq.queue q where q.queue_id = r.sub_queue;
    select co_name into consumer_name from pgq.consumer where co_id = r.sub_consumer;
    batch_start := prev.tick_time;
    batch_end := cur.tick_time;
    prev_tick_id := prev.tick_id;
    tick_id := cur.tick_id;
    lag := clock_timestamp() - cur.tick_time;
    seq_start := prev.tick_event_seq;
    seq_end := cur.tick_event_seq;
end;
$$;
comment on function pgq.get_batch_info(bigint) is 'An open batch: whose it is, its ticks, their times and event sequences.';


create or replace function pgq.delay_info(
    out queue_name text, out delayed bigint, out retries bigint, out next_due timestamptz, out dead_letters bigint)
returns setof record language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.delay_info(0)
--
--      Per queue: events that wait for their time, how many of them are
--      retries, when the next is due, and dead letters. Counts, so it reads
--      all of them.
-- ----------------------------------------------------------------------
begin
    return query
        select q.queue_name, count(d.ev_id), count(d.ev_owner), min(d.due),
               (select count(*) from pgq.dead_letter l where l.queue_name = q.queue_name)
        from pgq.queue q left join pgq.delayed_event d on d.ev_queue = q.queue_id
        group by q.queue_name order by q.queue_name;
end;
$$;
comment on function pgq.delay_info() is 'Per queue: delayed events, retries among them, when the next is due, dead letters.';


create or replace function pgq.ring_info(
    out ring text, out queue_name text, out generation bigint, out closed boolean, out slots int4,
    out bytes bigint, out switched_at timestamptz, out skipped bigint)
returns setof record language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.ring_info(0)
--
--      State of every ring.
--
-- Returns:
--      generation   - of the current slot
--      closed       - the previous slot takes no more late writers
--      bytes        - of all slots, with indexes and TOAST
--      switched_at  - when the current slot became current
--      skipped      - how often a maintenance step found its slot locked
-- ----------------------------------------------------------------------
declare
    r  pgq.ring;
begin
    for r in select * from pgq.ring order by ring_queue nulls first, ring_name loop
        ring := r.ring_name;
        queue_name := (select q.queue_name from pgq.queue q where q.queue_id = r.ring_queue);
        generation := pgq._phase(r.ring_name) / 2;
        closed := pgq._phase(r.ring_name) % 2 = 1;
        slots := r.ring_slots;
        bytes := (select sum(pg_total_relation_size(format('pgq.%I', r.ring_name || '_' || nr)::regclass))
                  from generate_series(0, r.ring_slots - 1) nr);
        switched_at := pgq._switched_at(r.ring_name);
        skipped := coalesce(pg_sequence_last_value(format('pgq.%I', r.ring_name || '_skipped')::regclass), 0);
        return next;
    end loop;
end;
$$;
comment on function pgq.ring_info() is 'State of every ring: generation, size, when it switched, how often a step was skipped.';


create or replace function pgq.ring_blockers(
    out ring text, out slot text, out pid int4, out gid text, out usename text, out datname text,
    out application_name text, out mode text, out age interval)
returns setof record language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.ring_blockers(0)
--
--      Transactions that hold a lock on a slot that maintenance wants to close
--      (writers, VACUUM, DDL) or truncate (anybody): sessions by pid, prepared
--      transactions by gid. Without rights on others' statistics, age may be null.
-- ----------------------------------------------------------------------
begin
    return query
        select r.ring_name, c.relname::text, l.pid, p.gid, coalesce(a.usename, p.owner)::text,
               coalesce(a.datname, p.database)::text, a.application_name, l.mode,
               clock_timestamp() - coalesce(a.xact_start, p.prepared)
        from pgq.ring r
        cross join lateral (select pgq._phase(r.ring_name) as v) phase
        cross join lateral generate_series(0, r.ring_slots - 1) nr
        join pg_class c on c.oid = format('pgq.%I', r.ring_name || '_' || nr)::regclass
        join pg_locks l on l.relation = c.oid and l.granted
            and l.database = (select oid from pg_database where pg_database.datname = current_database())
        left join pg_stat_activity a on a.pid = l.pid
        -- A prepared transaction keeps the virtual id of the session that prepared it; which one it is
        -- says the lock on its own transaction id.
        left join pg_locks x on l.pid is null and x.pid is null and x.locktype = 'transactionid'
            and x.mode = 'ExclusiveLock' and x.virtualtransaction = l.virtualtransaction
        left join pg_prepared_xacts p on p.transaction = x.transactionid
        where l.pid is distinct from pg_backend_pid()
          and nr <> v / 2 % r.ring_slots
          and (v % 2 = 1 or nr <> (v / 2 - 1) % r.ring_slots
               or l.mode not in ('AccessShareLock', 'RowShareLock', 'ShareLock'));
end;
$$;
comment on function pgq.ring_blockers() is 'Transactions that hold up the rotation of a ring: by pid, or by gid when prepared.';
