-- What maintenance does for jobs, and where each priority stands.
--
-- Schedules are not among it: which times are due is computed by clients, which know cron and
-- time zones. Workers fire them.

create or replace function pgq.maint_recover_jobs()
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.maint_recover_jobs(0)
--
--      recover(), as an operation of maintenance: its number of jobs would be taken
--      for a wish to be called again.
-- Returns:
--      0
-- Errors:
--      PQ007
-- ----------------------------------------------------------------------
begin
    perform pgq._require_read_committed('maint_recover_jobs');
    perform pgq.recover();
    return 0;
end;
$$;
comment on function pgq.maint_recover_jobs() is 'Give the jobs of dead workers to others. Returns 0.';


create or replace function pgq._maint_jobs(out func_name text, out func_arg text)
returns setof record language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._maint_jobs(0)
--
--      The part of maint_operations() that is about jobs: nothing where nothing has
--      happened, so that an idle database is not written to. Reads only.
-- ----------------------------------------------------------------------
begin
    if not exists (select from pgq.job_queue) then
        return;
    end if;
    if pgq._is_to_be_watched() then
        func_name := 'pgq.maint_recover_jobs';
        return next;
    end if;
    func_name := 'pgq.maint_sweep_jobs';
    for func_arg in
        select q.queue_name from pgq.job_queue join pgq.queue q using (queue_id)
        where pgq._has_new_finishes(q.queue_id) order by q.queue_name
    loop
        return next;
    end loop;
end;
$$;
comment on function pgq._maint_jobs() is 'Operations of maintenance for jobs that have something to do';


create or replace function pgq._has_new_finishes(i_queue int4)
returns boolean language plpgsql as $$
-- Has a job of the queue been finished since its last sweep?
declare
    last  pgq.claim_ring := pgq._last_sweep(i_queue);
begin
    return exists (select from pgq._new_finishes(i_queue, (last.data ->> 'snapshot')::pg_snapshot, pg_current_snapshot()));
end;
$$;
comment on function pgq._has_new_finishes(int4) is 'Has a job been finished since the last sweep';


create or replace function pgq.get_lane_info(
    in i_queue_name text default null, out queue_name text, out priority int4, out next_job bigint, out waiting interval, out last_claim timestamptz)
returns setof record language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.get_lane_info(1)
--
--      Priorities of the job queues, and what comes next in each: cheap, whatever the
--      backlog. Jobs that no tick covers yet are not seen.
--
-- Returns:
--      priority    - 0: the lane of jobs that lost a worker, which run alone
--      next_job    - the next one to be claimed; null: there is none
--      waiting     - how old that one is
--      last_claim  - when one was last claimed; null: never, or long ago
-- ----------------------------------------------------------------------
declare
    q  pgq.queue;
    c  pgq.claim_ring;
begin
    perform from pgq.claim_ring limit 0;
    for q in select * from pgq.queue
             where queue_id in (select queue_id from pgq.job_queue) and (i_queue_name is null or pgq.queue.queue_name = i_queue_name)
             order by pgq.queue.queue_name
    loop
        queue_name := q.queue_name;
        for priority in select lane from pgq.lane where queue_id = q.queue_id order by lane desc loop
            c := pgq._lane_state(q.queue_id, priority::int2);
            -- a few of those that were cancelled may be in front
            c := pgq._next_in_lane(q, c, pgq._newest_tick(q.queue_id), case when c.tombs then 100 else 1 end);
            next_job := (select id from unnest(c.ev_ids) with ordinality i(id, nth)
                         where not coalesce(c.tombs, false) or not pgq._has_tombstone(q.queue_id, id) order by nth limit 1);
            waiting := case when next_job is not null then (
                select clock_timestamp() - j.ev_time from pgq._job_rows(q, array[next_job]) j) end;
            last_claim := (select r.at from pgq.claim_ring r
                           where r.queue_id = q.queue_id and r.lane = priority::int2 and r.kind = 'q' and r.ev_ids <> '{}'
                           order by r.queue_id desc, r.lane desc, r.claim_id desc limit 1);
            return next;
        end loop;
    end loop;
end;
$$;
comment on function pgq.get_lane_info(text) is 'Priorities of the job queues, and which job comes next in each.';
