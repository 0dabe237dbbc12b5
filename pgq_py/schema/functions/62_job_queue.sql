-- Job queues: creating and configuring them, and the functions generated for each.
--
-- A job queue is a queue whose event slots carry a lane (a priority). Everything else of a
-- queue stays: ticks, fan-out consumers, delays, rotation.

create or replace function pgq._queue_of_jobs(i_queue_name text)
returns pgq.queue language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._queue_of_jobs(1)
--
--      Look up a job queue by name.
-- Errors:
--      PQ001  - no such queue
--      PQ023  - it is not a job queue
-- ----------------------------------------------------------------------
declare
    q  pgq.queue := pgq._queue(i_queue_name);
begin
    if not pgq._has_jobs(q.queue_id) then
        raise exception 'queue % is not a job queue', quote_literal(i_queue_name)
            using errcode = 'PQ023',
                  hint = 'A queue is a job queue from its creation on: pgq.create_job_queue(name).';
    end if;
    return q;
end;
$$;
comment on function pgq._queue_of_jobs(text) is 'Look up a job queue by name or raise';


create or replace function pgq._has_jobs(i_queue int4)
returns boolean language plpgsql as $$
-- Is the queue a job queue?
begin
    return exists (select from pgq.job_queue where queue_id = i_queue);
end;
$$;
comment on function pgq._has_jobs(int4) is 'Is a queue a job queue';


create or replace function pgq.create_job_queue(i_queue_name text, i_priorities int4[] default '{150,100,30}')
returns integer language plpgsql security definer
set search_path = pg_catalog, pgq, pg_temp set client_min_messages = warning as $$
-- ----------------------------------------------------------------------
-- Function: pgq.create_job_queue(2)
--
--      Create a job queue, with a lane for each priority.
--
-- Parameters:
--      i_queue_name  - as of create_queue()
--      i_priorities  - 1 to 32 of them, each 1 to 32000; higher ones are claimed first. A job
--                      of another priority goes to the next lower lane, else to the lowest
-- Returns:
--      1 created, 0 it exists already
-- Errors:
--      PQ006 name or priorities, PQ007, PQ023 it exists and is not a job queue
-- ----------------------------------------------------------------------
declare
    q     pgq.queue;
    made  int4;
begin
    if (cardinality(i_priorities) between 1 and 32
        and (select bool_and(p between 1 and 32000) from unnest(i_priorities) p)) is not true then
        raise exception 'priorities cannot be %', coalesce(i_priorities::text, 'NULL')
            using errcode = 'PQ006', hint = 'Give 1 to 32 numbers from 1 to 32000.';
    end if;
    made := pgq._create_queue(i_queue_name, 3, true);
    q := pgq._queue_of_jobs(i_queue_name);
    if made = 0 then
        return 0;
    end if;
    perform pgq._add_lane(q, p::int2) from (select distinct p from unnest(i_priorities || 0) p) p order by p;
    execute format('alter table pgq.%I alter column ev_lane set default %s', 'event_' || q.queue_id, pgq._lane_sql(q, '100'));
    perform pgq._generate_job_functions(q);
    return 1;
end;
$$;
comment on function pgq.create_job_queue(text, int4[]) is
'Create a job queue with a lane for each priority. Returns 1, or 0 when it exists.';


create or replace function pgq._add_lane(q pgq.queue, i_lane int2)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._add_lane(2)
--
--      Add a lane that stands at the newest tick: a job of it is of a transaction
--      that was running then, or began later, and so is not in that tick.
-- ----------------------------------------------------------------------
declare
    t  pgq.tick_ring := pgq._newest_tick(q.queue_id);
    c  pgq.claim_ring;
begin
    insert into pgq.lane (queue_id, lane) values (q.queue_id, i_lane);
    c := pgq._blank_claim(q.queue_id, i_lane);
    c.base_tick := t.tick_id;
    c.top_tick := t.tick_id;
    c.exhausted := true;
    perform pgq._append_claim(c);
end;
$$;
comment on function pgq._add_lane(pgq.queue, int2) is 'Add a lane that stands at the newest tick';


create or replace function pgq.declare_priority(i_queue_name text, i_priority int4)
returns integer language plpgsql security definer
set search_path = pg_catalog, pgq, pg_temp set client_min_messages = warning as $$
-- ----------------------------------------------------------------------
-- Function: pgq.declare_priority(2)
--
--      Give a job queue one more priority. In a transaction of its own: until it
--      commits, jobs of that priority go to the next lower lane.
-- Returns:
--      1, or 0 when the queue has it
-- Errors:
--      PQ001, PQ006 the number, or 32 exist, PQ007, PQ023
-- ----------------------------------------------------------------------
declare
    q  pgq.queue := pgq._queue_of_jobs(i_queue_name);
begin
    perform pgq._require_read_committed('declare_priority');
    perform from pgq.job_queue where queue_id = q.queue_id for update;
    if exists (select from pgq.lane where queue_id = q.queue_id and lane = i_priority) and i_priority > 0 then
        return 0;
    end if;
    if (i_priority between 1 and 32000) is not true
       or (select count(*) from pgq.lane where queue_id = q.queue_id) > 32 then
        raise exception 'cannot declare priority %', coalesce(i_priority::text, 'NULL')
            using errcode = 'PQ006', hint = 'A queue has at most 32, from 1 to 32000: each claim looks at them in turn.';
    end if;
    perform pgq._add_lane(q, i_priority::int2);
    perform pgq._generate_job_functions(q);
    return 1;
end;
$$;
comment on function pgq.declare_priority(text, int4) is 'Give a job queue one more priority. Returns 1, or 0 when it has it.';


create or replace function pgq.set_job_config(i_queue_name text, i_name text, i_value text)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.set_job_config(3)
--
--      Change a setting of a job queue.
--
-- Parameters:
--      i_name   - lease, max_losses, held_limit, archive
--      i_value  - as text
-- Returns:
--      1
-- Errors:
--      PQ001, PQ023, PQ006 unknown setting, or a value it cannot have
-- ----------------------------------------------------------------------
declare
    q     pgq.queue := pgq._queue_of_jobs(i_queue_name);
    kind  text := case i_name when 'lease' then 'interval' when 'archive' then 'boolean'
                              when 'max_losses' then 'int4' when 'held_limit' then 'int4' end;
begin
    if kind is null then
        raise exception 'cannot change parameter "%"', i_name
            using errcode = 'PQ006', hint = 'Settings: lease, max_losses, held_limit, archive.';
    end if;
    begin
        execute format('update pgq.job_queue set %I = $1::%s where queue_id = $2', i_name, kind) using i_value, q.queue_id;
    exception
        when data_exception or check_violation or not_null_violation then
            raise exception 'parameter "%" cannot be %', i_name, coalesce(quote_literal(i_value), 'NULL')
                using errcode = 'PQ006', detail = sqlerrm,
                      hint = 'Allowed: lease 1 second to 1 day, max_losses 1 to 100, held_limit 0 to 1000000, archive true or false.';
    end;
    return 1;
end;
$$;
comment on function pgq.set_job_config(text, text, text) is 'Change a setting of a job queue: lease, max_losses, held_limit, archive. Returns 1.';


create or replace function pgq._job_function(i_what text, q pgq.queue)
returns text language sql immutable as $$
    -- named as the produce function is, and for the same reason
    select i_what || '_' || q.queue_id || '_' || left(md5(q.queue_name), 8)
$$;
comment on function pgq._job_function(text, pgq.queue) is 'Name of a function that is generated for a job queue';


create or replace function pgq._generate_job_functions(q pgq.queue)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._generate_job_functions(1)
--
--      (Re)create the functions of a job queue that have its slots and lanes
--      written in: a statement that is planned anew each time costs more than all
--      the rest of a claim.
-- ----------------------------------------------------------------------
begin
    perform pgq._generate_enqueue(q);
    perform pgq._generate_next_jobs(q);
    perform pgq._generate_job_rows(q);
    perform pgq._generate_work(q), pgq._generate_work_on(q), pgq._generate_take(q);
end;
$$;
comment on function pgq._generate_job_functions(pgq.queue) is 'Generate the functions of a job queue';


create or replace function pgq._generate_enqueue(q pgq.queue)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._generate_enqueue(1)
--
--      (Re)create enqueue_N(type, data, priority, options) -> id: insert a job with
--      neither key nor delay; see enqueuer_function. As the produce function in all else.
-- ----------------------------------------------------------------------
declare
    fn        text := format('pgq.%I(text, text, int4, text)', pgq._job_function('enqueue', q));
    ring      text := 'event_' || q.queue_id;
    branches  text;
begin
    select string_agg(format(
            ' when %s then insert into pgq.%I (ev_type, ev_data, ev_extra1, ev_lane) values ($1, $2, $4, %s);',
            nr, ring || '_' || nr, pgq._lane_sql(q, '$3')), '' order by nr)
        into branches from generate_series(0, q.queue_ntables - 1) nr;
    execute format($f$
        create or replace function pgq.%I(i_type text, i_data text, i_priority int4, i_options text)
        returns bigint language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $b$
        begin %s
            if (length($1) between 1 and 200 and $2 is not null) is not true then
                perform pgq._check_job($1, $2::jsonb, null, null);
            end if;
            case pg_sequence_last_value(%L::regclass) / 2 %% %s %s end case; %s
            if pg_sequence_last_value('pgq.wake_deadline'::regclass) > 0
               and pg_sequence_last_value('pgq.wake_deadline'::regclass) > extract(epoch from clock_timestamp()) * 1000
               and current_setting('pgq.wake', true) is distinct from 'off' then
                perform pg_notify('pgq_wake', '%s');
            end if;
            return currval(%L::regclass);
        end; $b$ $f$,
        pgq._job_function('enqueue', q), pgq._refusal_sql(q), format('pgq.%I', ring || '_phase'), q.queue_ntables, branches,
        pgq._count_sql(q), q.queue_id, q.queue_event_seq);
    execute format('comment on function %s is %L', fn, 'Enqueue a job into one queue; generated, called by enqueue()');
    execute format('revoke all on function %s from public', fn);
    perform pgq._grant_function(fn, 'pgq_writer');
end;
$$;
comment on function pgq._generate_enqueue(pgq.queue) is 'Generate the enqueue function of a job queue';


create or replace function pgq.enqueuer_function(i_queue_name text)
returns text language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.enqueuer_function(1)
--
--      Name (in schema pgq) of the queue's own function that enqueues a job with neither
--      key nor time, for clients that enqueue one by one: enqueue_N_HASH(type, payload,
--      priority, options) returns the job's id. payload is JSON as text, and options is
--      null; neither is looked at.
--
-- Parameters:
--      i_queue_name  - name of the queue
-- Errors:
--      PQ001, PQ023
-- ----------------------------------------------------------------------
begin
    return pgq._job_function('enqueue', pgq._queue_of_jobs(i_queue_name));
end;
$$;
comment on function pgq.enqueuer_function(text) is
'Name, in schema pgq, of the queue''s own enqueue function (type, payload, priority, options) -> job id: the fastest way to enqueue jobs one by one.';


create or replace function pgq._lane_sql(q pgq.queue, i_priority text)
returns text language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._lane_sql(2)
--
--      SQL for the lane of a priority (an SQL expression; null: normal, 100): the
--      next lower one that is declared, else the lowest.
-- ----------------------------------------------------------------------
declare
    lanes  int2[] := array(select lane from pgq.lane where queue_id = q.queue_id and lane > 0 order by lane desc);
begin
    return (select '(case ' || coalesce(string_agg(format('when coalesce(%s, 100) >= %s then %s ', i_priority, l, l), '' order by l desc), '')
                   || format('else %s end)::int2', lanes[cardinality(lanes)])
            from unnest(lanes) l);
end;
$$;
comment on function pgq._lane_sql(pgq.queue, text) is 'SQL for the lane of a priority';


create or replace function pgq._generate_next_jobs(q pgq.queue)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._generate_next_jobs(1)
--
--      (Re)create next_jobs_N: the first i_n jobs of a lane behind a position, in the
--      transactions of [lows, highs), in order of (ev_txid, ev_id), from the event
--      slots of generations lo .. hi and from what rotation holds.
--
--      The caller has the lane's lock, or only wants to know whether there is one; rotation
--      takes those of all lanes first, so nothing moves meanwhile. One statement per
--      slot: nearly always there is one slot, and one range in it.
--
--      Nothing may be sorted: once there are statistics, the planner takes the index on
--      ev_txid, sorts, and reads the whole window, for an empty lane as well.
-- ----------------------------------------------------------------------
declare
    fn      text := format('pgq.%I(int2, xid8[], xid8[], xid8, int8, int4, int8, int8)', pgq._job_function('next_jobs', q));
    slots   text;
    held    text;
begin
    select string_agg(format('when %s then ', nr) || pgq._next_jobs_sql(format('event_%s_%s', q.queue_id, nr)), ' ' order by nr)
        into slots from generate_series(0, q.queue_ntables - 1) nr;
    select string_agg(format('if pg_relation_size(%L::regclass) > 0 then ', format('pgq.held_%s_%s', q.queue_id, nr))
                      || pgq._next_jobs_sql(format('held_%s_%s', q.queue_id, nr))
                      || ' if part is not null then sources := sources + 1; all_ids := all_ids || part; all_txids := all_txids || times; end if; end if;', ' ' order by nr)
        into held from generate_series(0, 2) nr;
    execute format($f$
        create or replace function pgq.%1$I(
            i_lane int2, i_lows xid8[], i_highs xid8[], i_txid xid8, i_id int8, i_n int4, i_lo int8, i_hi int8,
            out ids int8[], out txids xid8[], out keyed boolean)
        returns record language plpgsql set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off
        set enable_sort = off set enable_incremental_sort = off set enable_bitmapscan = off as $b$
        declare
            part       int8[];
            times      xid8[];
            keys       boolean;
            all_ids    int8[] := '{}';
            all_txids  xid8[] := '{}';
            sources    int4 := 0;
        begin
            keyed := false;
            for g in greatest(i_lo, i_hi - %2$s + 1) .. i_hi loop
                case g %% %2$s %3$s end case;
                if part is not null then
                    sources := sources + 1;
                    all_ids := all_ids || part;
                    all_txids := all_txids || times;
                    keyed := keyed or keys;
                end if;
            end loop;
            %4$s
            keyed := keyed or coalesce(keys, false);
            if sources = 0 then
                return;
            elsif sources = 1 then
                ids := all_ids;
                txids := all_txids;
                return;
            end if;
            select array_agg(id order by txid, id), array_agg(txid order by txid, id) into ids, txids
                from (select id, txid from unnest(all_ids, all_txids) u(id, txid) order by txid, id limit i_n) j;
        end; $b$ $f$, pgq._job_function('next_jobs', q), q.queue_ntables, slots, held);
    execute format('comment on function %s is %L', fn, 'Next jobs of a lane; generated');
    execute format('revoke all on function %s from public', fn);
end;
$$;
comment on function pgq._generate_next_jobs(pgq.queue) is 'Generate the function that finds the next jobs of a lane';


create or replace function pgq._next_jobs_sql(i_slot text)
returns text language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._next_jobs_sql(1)
--
--      The statements of next_jobs_N for one slot: for a single range, which is a plain
--      index scan, and for many.
-- ----------------------------------------------------------------------
begin
    return format($s$
        if cardinality(i_lows) = 1 then
            select array_agg(e.ev_id), array_agg(e.ev_txid), bool_or(e.ev_extra2 is not null) into part, times, keys
                from (select ev_id, ev_txid, ev_extra2 from pgq.%1$I
                      where ev_lane = i_lane and ev_txid >= i_lows[1] and ev_txid < i_highs[1] and (ev_txid, ev_id) > (i_txid, i_id)
                      order by ev_lane, ev_txid, ev_id limit i_n) e;
        else
            select array_agg(e.ev_id), array_agg(e.ev_txid), bool_or(e.ev_extra2 is not null) into part, times, keys
                from (select r.* from unnest(i_lows, i_highs) g(low, high) cross join lateral (
                          select ev_id, ev_txid, ev_extra2 from pgq.%1$I
                          where ev_lane = i_lane and ev_txid >= g.low and ev_txid < g.high and (ev_txid, ev_id) > (i_txid, i_id)
                          order by ev_lane, ev_txid, ev_id limit i_n) r
                      order by r.ev_txid, r.ev_id limit i_n) e;
        end if; $s$, i_slot);
end;
$$;
comment on function pgq._next_jobs_sql(text) is 'Statements that find the next jobs in one slot';


create or replace function pgq._generate_job_rows(q pgq.queue)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._generate_job_rows(1)
--
--      (Re)create job_rows_N(ids): the newest row of each of these jobs, out of the
--      slots; of jobs that wait in the delay ring, the row of the run before.
--
--      The current slot first, the others for what is not in there: a reader in a
--      dying slot delays its TRUNCATE. Whoever misses a row that must exist asks
--      again: it is being carried along (see 12_ring_live.sql).
-- ----------------------------------------------------------------------
declare
    fn     text := format('pgq.%I(int8[])', pgq._job_function('job_rows', q));
    pick   text := 'select array_agg(r::pgq.job_template) into part from (select distinct on (ev_id) * from pgq.%s'
                   ' where ev_id = any (missing) order by ev_id, ev_txid desc) r;';
    slots  text;
begin
    select string_agg(format('when %s then ' || pick, nr, format('event_%s_%s', q.queue_id, nr)), ' ' order by nr)
        into slots from generate_series(0, q.queue_ntables - 1) nr;
    execute format($f$
        create or replace function pgq.%1$I(i_ids int8[])
        returns setof pgq.job_template language plpgsql
        set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $b$
        declare
            missing  int8[] := i_ids;
            part     pgq.job_template[];
            g        bigint := pg_sequence_last_value('pgq.event_%2$s_phase'::regclass) / 2;
        begin
            for back in 0 .. %3$s loop
                case when back = %3$s then
                    select array_agg((r.ev_id, r.ev_time, r.ev_txid, r.ev_owner, r.ev_retry, r.ev_type, r.ev_data, r.ev_extra1,
                                      r.ev_extra2, r.ev_extra3, r.ev_extra4, r.ev_lane)::pgq.job_template)
                        into part from (select distinct on (ev_id) * from pgq.held_%2$s
                                        where ev_id = any (missing) order by ev_id, ev_txid desc) r;
                else
                    case (g + %3$s - back) %% %3$s %4$s end case;
                end case;
                return query select (unnest(part)).*;
                missing := array(select unnest(missing) except select (unnest(part)).ev_id);
                exit when missing = '{}';
            end loop;
        end; $b$ $f$, pgq._job_function('job_rows', q), q.queue_id, q.queue_ntables, slots);
    execute format('comment on function %s is %L', fn, 'Newest rows of jobs; generated');
    execute format('revoke all on function %s from public', fn);
end;
$$;
comment on function pgq._generate_job_rows(pgq.queue) is 'Generate the function that finds rows of jobs';


create or replace function pgq._job_rows(q pgq.queue, i_ids int8[])
returns setof pgq.job_template language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._job_rows(2)
--
--      The newest rows of these jobs. Asks again, in fresh statements, while some are
--      missing: rotation may be carrying them along.
-- ----------------------------------------------------------------------
declare
    rows  pgq.job_template[];
begin
    for attempt in 1 .. 5 loop
        execute 'select array_agg(j) from pgq.' || pgq._job_function('job_rows', q) || '($1) j' into rows using i_ids;
        exit when cardinality(rows) >= cardinality(i_ids);
    end loop;
    return query select (unnest(rows)).*;
end;
$$;
comment on function pgq._job_rows(pgq.queue, int8[]) is 'Newest rows of jobs';


create or replace function pgq._drop_jobs(q pgq.queue)
returns void language plpgsql set client_min_messages = warning as $$
-- ----------------------------------------------------------------------
-- Function: pgq._drop_jobs(1)
--
--      Drop what a job queue has beside a queue's own; part of drop_queue(). Its
--      claims and keys go when their rings rotate.
-- ----------------------------------------------------------------------
begin
    if not pgq._has_jobs(q.queue_id) then
        return;
    end if;
    perform from pgq.ring where ring_name = 'held_' || q.queue_id for update;
    perform pgq._drop_ring('held_' || q.queue_id);
    execute format('drop function pgq.%I(text, text, int4, text)', pgq._job_function('enqueue', q));
    execute format('drop function pgq.%I(int2, xid8[], xid8[], xid8, int8, int4, int8, int8)', pgq._job_function('next_jobs', q));
    execute format('drop function pgq.%I(int8[])', pgq._job_function('job_rows', q));
    execute format('drop function pgq.%I(int8, int8, text, int4, boolean, boolean)', pgq._job_function('work', q));
    execute format('drop procedure pgq.%I(int8, int8, int8[], text, int4)', pgq._job_function('work_on', q));
    execute format('drop function pgq.%I', pgq._job_function('take', q));
    delete from pgq.schedule where queue_id = q.queue_id;
    delete from pgq.lane where queue_id = q.queue_id;
    delete from pgq.job_queue where queue_id = q.queue_id;
end;
$$;
comment on function pgq._drop_jobs(pgq.queue) is 'Drop what a job queue has beside a queue''s own';
