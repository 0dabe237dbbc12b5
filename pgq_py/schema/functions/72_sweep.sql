-- The sweep: what has been finished since the last time, each finish once.
--
-- Finishes of a queue that are visible now and were not in the snapshot of the last sweep are
-- new, however late their transactions committed. Under one lock per queue; the totals are
-- rows of the claim ring. Whatever is to react on finishes can stand on this.

create or replace function pgq._last_sweep(i_queue int4)
returns pgq.claim_ring language plpgsql set enable_seqscan = off set jit = off as $$
-- Totals of a queue so far: data = {snapshot, claimed, completed, failed, ..}; null before the first
declare
    s  pgq.claim_ring;
begin
    perform from pgq.claim_ring limit 0;
    select * into s from pgq.claim_ring where claim_id = -i_queue and ev_id = 0 and kind = 's'
        order by claim_id desc, ev_id desc, kind desc, nth desc limit 1;
    return s;
end;
$$;
comment on function pgq._last_sweep(int4) is 'Totals of a queue so far';


create or replace function pgq._new_finishes(i_queue int4, i_last pg_snapshot, i_now pg_snapshot)
returns setof pgq.claim_ring language plpgsql set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq._new_finishes(3)
--
--      Finishes of a queue that i_now shows and i_last does not; null: all.
-- ----------------------------------------------------------------------
begin
    return query
        select * from pgq.claim_ring f where f.queue_id = i_queue and f.n is not null and f.kind = 'f'
            and f.txid >= coalesce(pg_snapshot_xmax(i_last), '0'::xid8) and f.txid < pg_snapshot_xmax(i_now)
            and pg_visible_in_snapshot(f.txid, i_now)
        union all
        select * from pgq.claim_ring f where f.queue_id = i_queue and f.n is not null and f.kind = 'f'
            and f.txid = any (array(select x from pg_snapshot_xip(i_last) x where pg_visible_in_snapshot(x, i_now)));
end;
$$;
comment on function pgq._new_finishes(int4, pg_snapshot, pg_snapshot) is 'Finishes that one snapshot shows and another does not';


create or replace function pgq._sweep(i_queue int4)
returns boolean language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._sweep(1)
--
--      Add what has been finished to the totals of a queue. The caller has the lock of
--      its row in pgq.job_queue. With nothing new nothing is written.
-- ----------------------------------------------------------------------
declare
    last   pgq.claim_ring := pgq._last_sweep(i_queue);
    s      pg_snapshot;
    found  jsonb;
    t      pgq.claim_ring;
begin
    select pg_current_snapshot() into s;
    select jsonb_object_agg(outcome, n) into found from (
        select outcome, sum(n) as n from pgq._new_finishes(i_queue, (last.data ->> 'snapshot')::pg_snapshot, s) group by outcome) f;
    if found is null then
        return false;
    end if;
    t.claim_id := -i_queue;
    t.ev_id := 0;
    t.kind := 's';
    t.nth := coalesce(last.nth, 0) + 1;
    t.queue_id := i_queue;
    select coalesce(last.data, '{}') || jsonb_object_agg(k, coalesce((last.data ->> k)::int8, 0) + v::int8)
           || jsonb_build_object('snapshot', pgq._with_self(s)) into t.data
        from jsonb_each_text(found) f(k, v);
    execute format('insert into pgq.%I select (pgq._stamped($1)).*',
                   pgq._slot('claim_ring', 3, pgq._phase('claim_ring') / 2)) using t;
    return true;
end;
$$;
comment on function pgq._sweep(int4) is 'Add what has been finished to the totals of a queue';


create or replace function pgq.maint_sweep_jobs(i_queue_name text)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.maint_sweep_jobs(1)
--
--      Bring the totals of a job queue up to date, if nobody else is at it.
-- Returns:
--      0
-- Errors:
--      PQ007; an unknown queue is nothing to do
-- ----------------------------------------------------------------------
declare
    nr  int4;
begin
    perform pgq._require_read_committed('maint_sweep_jobs');
    select s.queue_id into nr from pgq.job_queue s join pgq.queue q using (queue_id)
        where q.queue_name = i_queue_name for update of s skip locked;
    if found then
        perform pgq._sweep(nr);
    end if;
    return 0;
end;
$$;
comment on function pgq.maint_sweep_jobs(text) is 'Bring the totals of a job queue up to date. Returns 0.';


create or replace function pgq._sweep_all()
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._sweep_all(0)
--
--      Sweep all queues, waiting for their locks: before a slot with finishes is
--      truncated.
-- ----------------------------------------------------------------------
declare
    nr  int4;
begin
    for nr in select queue_id from pgq.job_queue order by queue_id loop
        perform from pgq.job_queue where queue_id = nr for update;
        perform pgq._sweep(nr);
    end loop;
end;
$$;
comment on function pgq._sweep_all() is 'Sweep all queues';


create or replace function pgq._job_stats(q pgq.queue, out pending bigint, out pending_exact boolean, out scheduled bigint,
    out retrying bigint, out running bigint, out completed bigint, out failed bigint, out cancelled bigint,
    out retried bigint, out lost bigint, out dead bigint, out oldest_pending interval)
returns record language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._job_stats(1)
--
--      Counts of a queue: see the view pgq.job_stats.
-- ----------------------------------------------------------------------
declare
    last    pgq.claim_ring := pgq._last_sweep(q.queue_id);
    s       pg_snapshot := pg_current_snapshot();
    totals  jsonb;
    oldest  timestamptz;
begin
    -- one that was cancelled is no longer pending, although no claim has passed it over yet
    execute format('select count(*), min(ev_time) from (select * from (%s union all %s) l where %s limit 10001) j',
                   replace(pgq._live_jobs_sql('event_' || q.queue_id), 'select e.*', 'select e.ev_id, e.ev_time'),
                   replace(pgq._live_jobs_sql('held_' || q.queue_id), 'select e.*', 'select e.ev_id, e.ev_time'),
                   case when exists (select from pgq.claim_ring where claim_id = -q.queue_id and kind = 't')
                        then 'not pgq._has_tombstone($1, l.ev_id)' else 'true' end)
        into pending, oldest using q.queue_id, '{}'::int8[];
    pending_exact := pending <= 10000;
    oldest_pending := clock_timestamp() - oldest;
    if not pending_exact then
        pending := greatest(pending, pgq._estimate_pending(q));
    end if;
    execute format('select count(*) filter (where ev_owner is null), count(*) filter (where ev_owner = 0) from (%s) d where not cancels'
                   ' and not exists (select from pgq.%I c where c.ev_id = d.ev_id and c.cancels and c.ev_owner is not distinct from d.ev_owner)',
                   pgq._pending_sql(q.queue_id, pgq._newest_tick(-q.queue_id)), 'delay_' || q.queue_id) into scheduled, retrying;
    running := cardinality(pgq._running_ids(q.queue_id));
    select coalesce(jsonb_object_agg(outcome, n), '{}') into totals from (
        select outcome, sum(n) as n from pgq._new_finishes(q.queue_id, (last.data ->> 'snapshot')::pg_snapshot, s) group by outcome) f;
    completed := coalesce((last.data ->> 'completed')::int8, 0) + coalesce((totals ->> 'completed')::int8, 0);
    failed := coalesce((last.data ->> 'failed')::int8, 0) + coalesce((totals ->> 'failed')::int8, 0);
    cancelled := coalesce((last.data ->> 'cancelled')::int8, 0) + coalesce((totals ->> 'cancelled')::int8, 0);
    retried := coalesce((last.data ->> 'retried')::int8, 0) + coalesce((totals ->> 'retried')::int8, 0);
    lost := coalesce((last.data ->> 'lost')::int8, 0) + coalesce((totals ->> 'lost')::int8, 0);
    dead := (select count(*) from pgq.dead_letter d where d.queue_name = q.queue_name and d.consumer_name = '');
end;
$$;
comment on function pgq._job_stats(pgq.queue) is 'Counts of a job queue';


create or replace function pgq._estimate_pending(q pgq.queue)
returns bigint language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._estimate_pending(1)
--
--      About how many jobs wait: what was appended since the tick where each lane
--      stands, by the event sequence, shared out to no lane. For more than can be counted.
-- ----------------------------------------------------------------------
begin
    return (
        select greatest(coalesce(pg_sequence_last_value(q.queue_event_seq::regclass), 0) - min(c.to_id), 0)
        from pgq.lane l cross join lateral pgq._lane_state(q.queue_id, l.lane) c
        where l.queue_id = q.queue_id and l.lane > 0 and not c.exhausted);
end;
$$;
comment on function pgq._estimate_pending(pgq.queue) is 'About how many jobs wait';


create or replace function pgq.get_job_stats(
    in i_queue_name text default null, out queue_name text, out pending bigint, out pending_exact boolean, out scheduled bigint,
    out retrying bigint, out running bigint, out completed bigint, out failed bigint, out cancelled bigint,
    out retried bigint, out lost bigint, out dead bigint, out oldest_pending interval)
returns setof record language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.get_job_stats(1)
--
--      Counts per job queue.
--
-- Returns:
--      pending          - ready to run; exact up to 10,000, then an estimate
--      scheduled, retrying, running  - now
--      completed, failed, cancelled, retried, lost  - ever, each finish once
--      dead             - dead letters now
--      oldest_pending   - age of the oldest one that is ready (of those counted)
-- ----------------------------------------------------------------------
begin
    return query
        select q.queue_name, s.* from pgq.queue q join pgq.job_queue j using (queue_id)
        cross join lateral pgq._job_stats(q) s
        where i_queue_name is null or q.queue_name = i_queue_name order by q.queue_name;
end;
$$;
comment on function pgq.get_job_stats(text) is 'Counts per job queue: what waits, runs, and was ever finished.';


create or replace function pgq.get_worker_info(
    out worker text, out state text, out started_at timestamptz, out last_beat timestamptz, out ended_at timestamptz,
    out lease interval, out claims bigint, out jobs bigint, out info jsonb)
returns setof record language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.get_worker_info(0)
--
--      Workers that send heartbeats, and those that ended within a day.
--
-- Returns:
--      state         - alive, silent (more than half of its lease), stopped, lost
--      claims, jobs  - that it holds
-- ----------------------------------------------------------------------
begin
    return query
        select w.worker, case when w.lost then 'lost' when w.ended_at is not null then 'stopped'
                              when b.at < pgq._clock() - w.lease / 2 then 'silent' else 'alive' end,
               w.started_at, b.at, w.ended_at, w.lease, o.claims, o.jobs, w.info
        from pgq.worker w
        cross join lateral (select pgq._last_beat(w.worker) as at) b
        cross join lateral (select count(*) as claims, coalesce(sum(cardinality(ev_ids)), 0)::bigint as jobs
                            from pgq._open_claims_of(w.worker)) o
        order by w.started_at;
end;
$$;
comment on function pgq.get_worker_info() is 'Workers that send heartbeats, and those that ended within a day.';
