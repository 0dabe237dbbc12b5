-- Recurring jobs. When a schedule was last due is the head of a chain in the key ring: the
-- next due time follows the last one, and two cannot follow the same. Job and mark commit
-- together. Which times are due is computed by the client, which knows cron and time zones;
-- whether one may fire is decided here, by the database's clock.

create or replace function pgq.set_schedule(
    i_name text, i_queue_name text, i_type text, i_cron text, i_tz text default 'UTC', i_payload jsonb default '{}',
    i_priority int4 default null, i_options jsonb default '{}', i_catch_up text default 'latest',
    i_max_catch_up int4 default 100, i_enabled boolean default true)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.set_schedule(11)
--
--      Create or change a recurring job. Due times count from now, or for one that
--      exists from where it is.
--
-- Parameters:
--      i_cron      - five or six fields (then the first is seconds); checked by the client
--      i_tz        - a time zone by name
--      i_catch_up  - of due times that were missed: none, latest or all (the last i_max_catch_up)
-- Returns:
--      1 created, 0 changed, or as it was
-- Errors:
--      PQ001, PQ006, PQ023, 42501
-- ----------------------------------------------------------------------
declare
    q  pgq.queue := pgq._queue_of_jobs(i_queue_name);
    s  pgq.schedule;
begin
    perform pgq._require_produce(q);
    perform pgq._check_name('schedule', i_name);
    perform pgq._check_job(i_type, i_payload, null, null);
    perform pgq._check_options(i_options);
    if i_tz is null or not exists (select from pg_timezone_names where name = i_tz) then
        raise exception 'unknown time zone: %', quote_nullable(i_tz)
            using errcode = 'PQ006', hint = 'pg_timezone_names has the names, for example Europe/Berlin.';
    end if;
    if (i_catch_up in ('none', 'latest', 'all') and i_max_catch_up between 1 and 10000 and length(i_cron) between 9 and 200) is not true then
        raise exception 'invalid schedule: cron %, catch_up %, max_catch_up %', quote_nullable(left(i_cron, 60)), i_catch_up, i_max_catch_up
            using errcode = 'PQ006', hint = 'catch_up: none, latest, all. max_catch_up: 1 to 10000. cron: five or six fields.';
    end if;
    select * into s from pgq.schedule where schedule_name = i_name for update;
    if found and (s.queue_id, s.ev_type, s.ev_data, s.priority, s.options, s.cron, s.tz, s.catch_up, s.max_catch_up, s.enabled)
       is not distinct from (q.queue_id, i_type, i_payload, i_priority, coalesce(i_options, '{}'), i_cron, i_tz, i_catch_up, i_max_catch_up, i_enabled) then
        return 0;  -- every start of a worker says it again: write nothing
    end if;
    insert into pgq.schedule as t (schedule_name, queue_id, ev_type, ev_data, priority, options, cron, tz, catch_up, max_catch_up, enabled)
        values (i_name, q.queue_id, i_type, i_payload, i_priority, coalesce(i_options, '{}'), i_cron, i_tz, i_catch_up, i_max_catch_up, i_enabled)
        on conflict (schedule_name) do update set
            queue_id = excluded.queue_id, ev_type = excluded.ev_type, ev_data = excluded.ev_data, priority = excluded.priority,
            options = excluded.options, cron = excluded.cron, tz = excluded.tz, catch_up = excluded.catch_up,
            max_catch_up = excluded.max_catch_up, enabled = excluded.enabled,
            since = case when t.enabled then t.since else clock_timestamp() end;
    return (s.schedule_id is null)::int;
end;
$$;
comment on function pgq.set_schedule(text, text, text, text, text, jsonb, int4, jsonb, text, int4, boolean) is
'Create or change a recurring job. Returns 1 when it was created.';


create or replace function pgq.drop_schedule(i_name text)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.drop_schedule(1)
--
--      Remove a recurring job; jobs that it enqueued stay.
-- Returns:
--      1, or 0 when there is none
-- ----------------------------------------------------------------------
begin
    delete from pgq.schedule where schedule_name = i_name;
    return found::int;
end;
$$;
comment on function pgq.drop_schedule(text) is 'Remove a recurring job. Returns 1, or 0 when there is none.';


create or replace function pgq._last_due(s pgq.schedule)
returns timestamptz language plpgsql as $$
-- When a schedule was last due and fired; before the first time, since when it counts
declare
    us  int8;
begin
    perform from pgq.key_ring limit 0;
    select holder into us from pgq._key_heads(array['cron:' || s.schedule_id], array['']);
    return greatest(coalesce(timestamptz 'epoch' + us * interval '1 microsecond', s.since), s.since);
end;
$$;
comment on function pgq._last_due(pgq.schedule) is 'When a schedule was last due';


create or replace function pgq.get_schedules(
    in i_name text default null, out schedule_name text, out queue_name text, out type text, out payload jsonb, out cron text, out tz text,
    out catch_up text, out max_catch_up int4, out enabled boolean, out last_due timestamptz, out now timestamptz)
returns setof record language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.get_schedules(1)
--
--      Recurring jobs, with the time after which their next due time comes.
--
-- Returns:
--      last_due  - due times up to this one are done with
--      now       - the database's clock: what is due by now may fire
-- ----------------------------------------------------------------------
begin
    return query
        select s.schedule_name, q.queue_name, s.ev_type, s.ev_data, s.cron, s.tz, s.catch_up, s.max_catch_up, s.enabled,
               pgq._last_due(s), pgq._clock()
        from pgq.schedule s join pgq.queue q using (queue_id)
        where i_name is null or s.schedule_name = i_name order by s.schedule_name;
end;
$$;
comment on function pgq.get_schedules(text) is 'Recurring jobs, with the time up to which they have fired.';


create or replace function pgq.fire_schedule(i_name text, i_due timestamptz, i_enqueue boolean default true, i_force boolean default false)
returns bigint language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.fire_schedule(4)
--
--      Enqueue the job of a schedule for a due time, unless somebody has done so for
--      that time or a later one. Job and mark commit together: once per due time.
--
-- Parameters:
--      i_due      - the due time; not in the future
--      i_enqueue  - false: only mark it, for times that are not caught up with
--      i_force    - now, whatever is due; leaves no mark
-- Returns:
--      id of the job; null: none was enqueued
-- Errors:
--      PQ006, PQ007, PQ021 no such schedule
-- ----------------------------------------------------------------------
declare
    s   pgq.schedule;
    us  int8 := (extract(epoch from i_due) * 1000000)::int8;
    id  bigint;
begin
    perform pgq._require_read_committed('fire_schedule');
    if i_force then
        select * into s from pgq.schedule where schedule_name = i_name;
    else
        select * into s from pgq.schedule where schedule_name = i_name and enabled for update skip locked;
    end if;
    if not found then
        if not exists (select from pgq.schedule where schedule_name = i_name) then
            raise exception 'no such schedule: %', quote_nullable(i_name)
                using errcode = 'PQ021', hint = 'pgq.get_schedules() shows those that exist.';
        end if;
        return null;
    end if;
    if not i_force then
        if i_due > pgq._clock() or i_due <= pgq._last_due(s) then
            return null;
        end if;
        execute format('insert into pgq.key_ring_%s (scope, key, prev_ev_id, ev_id, job_id) values ($1, '''', $2, $3, $3)', pgq._lock_key_slot())
            using 'cron:' || s.schedule_id,
                  coalesce((select holder from pgq._key_heads(array['cron:' || s.schedule_id], array[''])), 0), us;
    end if;
    if i_enqueue then
        select e.id into id from pgq.enqueue((select queue_name from pgq.queue where queue_id = s.queue_id), s.ev_type, s.ev_data,
            s.priority, null, null, null, s.options || jsonb_build_object('meta',
                coalesce(case when jsonb_typeof(s.options -> 'meta') = 'object' then s.options -> 'meta' end, '{}')
                || jsonb_build_object('schedule', s.schedule_name, 'due', i_due))) e;
    end if;
    return id;
end;
$$;
comment on function pgq.fire_schedule(text, timestamptz, boolean, boolean) is
'Enqueue the job of a schedule for a due time, once. Returns the job''s id, or null.';
