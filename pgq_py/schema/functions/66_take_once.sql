-- Claiming the jobs that have just come, as one function per queue.
--
-- A worker that waits is told of a job as soon as it is committed. What lies between is the tick
-- that shows it, the claim, and the job's row: composed of parts some sixty functions in two calls,
-- each set up anew in each transaction. Here it is one, for what is usual when there is little to do:
-- the last claim of the lane had all of it up to its tick, nothing waited above it then, and what has
-- come since is a few jobs in one event slot. Unlike the parts it reads first, and ticks for what it found.

create or replace function pgq._generate_take(q pgq.queue)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._generate_take(1)
--
--      (Re)create take_N(worker, n, ..); see taker_function for what it does.
--
--      1. The lane is guessed. If its last claim says that nothing was left in it, nor
--         waited above it, up to some tick t, what comes next is behind t.
--      2. What has come since t is read as a whole, all lanes of it, as a tick made now would
--         show it, but only between the transactions that run now, as by _new_events(). A
--         look that finds nothing writes nothing. If there is anything that the newest tick
--         does not show, that tick is made now, provided that the newest one still is when
--         the tick lock is held: then nothing has changed since. If the highest lane
--         is as guessed, that is the one to claim from.
--      3. Its state is read again, with the lane's lock.
--      4. Where the tick lock is held, nothing is waited for. Who else has it makes the tick;
--         a lane that is locked is left to claim(), which waits.
--      5. Who knows that nothing at all waited up to t knows it up to the newest tick now,
--         if nothing has come since, or jobs of this lane alone and they are all claimed.
--      6. The tick is told only if it may leave something to others: a fan-out consumer, or jobs
--         to a worker that has not looked yet, where this one took as many as it wanted or could.
--         Transactions that notify commit one after the other, in the whole cluster, and those
--         of the senders wait for the disk meanwhile: so would the claim.
-- ----------------------------------------------------------------------
declare
    fn      text := format('pgq.%I(text, int4, int4, boolean, int8)', pgq._job_function('take', q));
    phase   text := format('pg_sequence_last_value(%L::regclass)', format('pgq.event_%s_phase', q.queue_id));
    state   text := 'g := pg_sequence_last_value(''pgq.claim_ring_phase''::regclass) / 2; '
                    || pgq._in_slot_sql('claim_ring', 3, 'g', format(
                        'select * into c from SLOT where queue_id = %s and lane = i_lane and ev_ids is not null'
                        ' order by queue_id desc, lane desc, claim_id desc limit 1', q.queue_id));
    jobs    text := pgq._in_slot_sql('event_' || q.queue_id, q.queue_ntables, 'n.hi', $b$
                select array_agg(w::pgq.job_template order by w.ev_txid, w.ev_id) as jobs, max(w.ev_lane) as top,
                       min(w.ev_lane) as bottom, count(*) as n,
                       bool_or(not pg_visible_in_snapshot(w.ev_txid, last.tick_snapshot)) as fresh into found_
                from (select e.* from unnest(lows, highs) gap(low, high), lateral (
                          select * from SLOT
                          where ev_lane = any (lanes) and ev_txid > low and ev_txid < high limit 65) e
                      limit 65) w$b$);
    held    text;
begin
    select string_agg(format('pg_relation_size(''pgq.held_%s_%s''::regclass)', q.queue_id, nr), ' + ' order by nr)
        into held from generate_series(0, 2) nr;

    execute format($f$
        create or replace function pgq.%1$I(
            i_worker text, i_n int4, i_lane int4 default 100, i_idle boolean default true, i_dry int8 default null)
        returns table (claim_id int8, token int8, job_id int8, type text, payload text, priority int4, attempt int4,
            max_attempts int4, losses int4, created_at timestamptz, key text, options jsonb, dry int8)
        language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp
        set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan as $b$
        #variable_conflict use_column
        declare
            alive   boolean;
            last    pgq.tick_ring;
            t       pgq.tick_ring;
            n       pgq.tick_ring;
            c       pgq.claim_ring;
            mine    pgq.job_template[];
            found_  record;
            lanes   int2[];
            lows    xid8[];
            highs   xid8[];
            running xid8[];
            late    int8[];
            v       int8;
            g       int8;
            untold  boolean := false;
        begin
            <<usual>>
            begin
                %2$s
                exit usual when last.tick_id is null or current_setting('transaction_isolation') <> 'read committed'
                                or (i_n between 1 and 10000) is not true or length(i_worker) > 200;
                %10$s
                exit usual when (c.exhausted and c.seen = c.top_tick and not c.tombs) is not true;
                t := last;
                if c.top_tick <> t.tick_id then
                    %13$s
                    exit usual when t.tick_id is null;
                end if;
                select ended_at is null into alive from pgq.worker where worker = i_worker;
                exit usual when alive = false;
                for attempt in 1 .. 2 loop
                    -- phase, snapshot, phase, each in a statement of its own: as in _make_tick()
                    v := %5$s;
                    n.tick_snapshot := pg_current_snapshot();
                    n.hi := %5$s / 2;
                    exit usual when pg_snapshot_xmax(n.tick_snapshot) < pg_snapshot_xmax(last.tick_snapshot);
                    if pg_current_xact_id_if_assigned() < pg_snapshot_xmax(n.tick_snapshot) then
                        n.tick_snapshot := pgq._with_self(n.tick_snapshot);
                    end if;
                    exit usual when greatest(t.lo, n.hi - %7$s + 1) <> n.hi or %8$s > 0;
                    lanes := array(select lane from pgq.lane where queue_id = %4$s);
                    lows := array[(pg_snapshot_xmax(t.tick_snapshot)::text::int8 - 1)::text::xid8];
                    highs := array[pg_snapshot_xmax(n.tick_snapshot)];
                    if pg_snapshot_xmin(n.tick_snapshot) <> pg_snapshot_xmax(n.tick_snapshot) then
                        running := array(select x from pg_snapshot_xip(n.tick_snapshot) x
                                         where x >= pg_snapshot_xmax(t.tick_snapshot) order by x);
                        lows := lows || running;
                        highs := running || highs;
                    end if;
                    if pg_snapshot_xmin(t.tick_snapshot) <> pg_snapshot_xmax(t.tick_snapshot) then
                        late := array(select pg_snapshot_xip(t.tick_snapshot)::text::int8
                                      except select pg_snapshot_xip(n.tick_snapshot)::text::int8 order by 1);
                        lows := lows || array(select (x - 1)::text::xid8 from unnest(late) x order by x);
                        highs := highs || array(select (x + 1)::text::xid8 from unnest(late) x order by x);
                    end if;
                    %9$s
                    exit when not found_.fresh;
                    if found_.fresh then
                        %3$s
                    end if;
                    if found_.n = 0 or not found then
                        exit usual when (i_dry >= t.tick_id and (found_.n = 0 or t.tick_id = last.tick_id)) is not true;
                        return query select null::int8, null::int8, null::int8, null::text, null::text, null::int4, null::int4, null::int4,
                                            null::int4, null::timestamptz, null::text, null::jsonb, last.tick_id;
                        return;
                    end if;
                    g := last.tick_id;
                    %2$s
                    exit usual when last.tick_id is null or (last.tick_id <> g and attempt = 2);
                    continue when last.tick_id <> g;
                    %6$s
                    untold := true;
                    last := n;
                    exit;
                end loop;
                if n.tick_id is null then
                    perform from pgq.queue where queue_id = %4$s and not queue_ticker_paused;
                    exit usual when not found;
                    n := last;
                end if;
                exit usual when (found_.n between 1 and 64 and found_.bottom > 0 and found_.top = i_lane) is not true;
                perform from pgq.lane where queue_id = %4$s and lane = i_lane for update skip locked;
                exit usual when not found;
                %10$s
                exit usual when (c.exhausted and c.top_tick = t.tick_id and c.seen = t.tick_id and not c.tombs) is not true;

                mine := found_.jobs;
                if found_.bottom < found_.top then
                    mine := array(select j from unnest(mine) j where j.ev_lane = found_.top order by j.ev_txid, j.ev_id);
                end if;
                c.exhausted := cardinality(mine) <= i_n;
                mine := mine[:i_n];
                v := cardinality(mine);
                c.claim_id := nextval('pgq.claim_id_seq');
                c.token := hashtextextended(gen_random_uuid()::text, c.claim_id);
                c.base_tick := t.tick_id;
                c.top_tick := n.tick_id;
                c.seen := n.tick_id;
                c.lo := t.lo;
                c.hi := n.hi;
                c.lows := null;
                c.highs := null;
                c.from_txid := (mine[1]).ev_txid;
                c.from_id := (mine[1]).ev_id;
                c.to_txid := (mine[v]).ev_txid;
                c.to_id := (mine[v]).ev_id;
                c.ev_ids := array(select j.ev_id from unnest(mine) with ordinality j order by j.ordinality);
                c.keyed := exists (select from unnest(mine) j where j.ev_extra2 is not null);
                c.beats := alive is not null;
                c.worker := i_worker;
                c.txid := pg_current_xact_id();
                c.at := clock_timestamp();
                %11$s
                v := pg_sequence_last_value('pgq.claim_ring_phase'::regclass);
                if not (v / 2 = g or (v / 2 = g + 1 and v %% 2 = 0)) then
                    raise exception 'the claim ring rotated at this moment'
                        using errcode = '40001', detail = 'Nothing was claimed.', hint = 'Repeat the call.';
                end if;
                if untold and (not c.exhausted or cardinality(mine) = i_n or found_.bottom < found_.top
                               or exists (select from pgq.subscription where sub_queue = %4$s)) then
                    %14$s
                end if;
                -- as in claimed(), without what only a job with options needs, and default policies of _retry_policy()
                return query
                    select c.claim_id, c.token, j.ev_id, j.ev_type, j.ev_data, j.ev_lane::int4, coalesce(j.ev_retry, 0) + 1,
                           coalesce((o ->> 'max_attempts')::numeric::int4, (
                               select p.max_retries from pgq.retry_policy p
                               where p.queue_id = %4$s and p.consumer_name in ('job:' || j.ev_type, '')
                               order by p.consumer_name desc limit 1) + 1, 6),
                           coalesce((o ->> 'losses')::int4, 0), j.ev_time, j.ev_extra2, o,
                           case when c.exhausted and found_.bottom = found_.top and i_dry >= t.tick_id then n.tick_id end
                    from (select m.*, case when m.ev_extra1 is null then '{}' else pgq._options(m.ev_extra1) end as o
                          from unnest(mine) with ordinality m) j
                    order by j.ordinality;
                return;
            end;
            if untold then
                %14$s
            end if;
            return query
                select r.claim_id, r.token, null::int8, null::text, null::text, null::int4, null::int4, null::int4, null::int4,
                       null::timestamptz, null::text, null::jsonb,
                       case when r.claim_id is null and exists (select from pgq.queue where queue_id = %4$s and not queue_ticker_paused)
                                 and (i_idle or not pgq.solo_waits(%12$L)) then last.tick_id end
                from pgq.claim(%12$L, i_worker, i_n, i_idle) r;
        end; $b$ $f$,
        pgq._job_function('take', q), pgq._newest_tick_sql(q, 'last'), pgq._lock_ticks_sql(q), q.queue_id, phase, pgq._store_tick_sql(q, 'last'),
        q.queue_ntables, held, jobs, state, pgq._in_slot_sql('claim_ring', 3, 'g', 'insert into SLOT values (c.*)'), q.queue_name,
        pgq._tick_sql(q, 'c.top_tick', 't'), pgq._tell_tick_sql(q));
    execute format('comment on function %s is %L', fn, 'Claim the jobs that have just come; generated, see taker_function()');
    execute format('revoke all on function %s from public', fn);
    perform pgq._grant_function(fn, 'pgq_reader');
end;
$$;
comment on function pgq._generate_take(pgq.queue) is 'Generate the function that claims the jobs that have just come';


create or replace function pgq.taker_function(i_queue_name text)
returns text language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.taker_function(1)
--
--      Name (in schema pgq) of the queue's own function that claims jobs for a worker
--      which was told that some have come: take_N_HASH(worker, n, lane, idle, dry) is
--      claim(queue, worker, n, idle), ticks first where that is due, and returns the jobs
--      with their claim_id and token, in the columns of claimed(). When there is more
--      to do than usual it returns one row with the claim alone: claimed() has its jobs;
--      when there is no job, one row without a claim.
--
--      lane (default 100) is the priority that the jobs are likely to have. dry is the last
--      value that was returned in the column of that name: the tick up to which nothing at
--      all waits, or null when that is not known.
-- Errors:
--      PQ001, PQ023
-- ----------------------------------------------------------------------
begin
    return pgq._job_function('take', pgq._queue_of_jobs(i_queue_name));
end;
$$;
comment on function pgq.taker_function(text) is
'Name, in schema pgq, of the queue''s own function (worker, n, lane, idle, dry) that claims jobs which have just come and returns them: the shortest way from a job to an idle worker.';
