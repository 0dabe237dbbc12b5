-- Claiming jobs: one row lock and one row per claim, whatever the number of jobs.
--
-- A claim takes the next n jobs of a lane (64_lane.sql) and appends one row: cursor of the
-- lane, lease and list of jobs at once. No scan passes over claimed jobs, whatever the
-- backlog, and whoever holds a snapshot open.

create or replace function pgq._blank_claim(i_queue int4, i_lane int2)
returns pgq.claim_ring language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._blank_claim(2)
--
--      A claim of nothing, with a number of its own.
-- ----------------------------------------------------------------------
declare
    c  pgq.claim_ring;
begin
    c.claim_id := nextval('pgq.claim_id_seq');
    c.ev_id := -1;
    c.kind := 'q';
    c.nth := 0;
    c.queue_id := i_queue;
    c.lane := i_lane;
    c.token := 0;
    c.to_txid := '0';
    c.to_id := 0;
    c.tombs := false;
    c.keyed := false;
    c.beats := false;
    c.ev_ids := '{}';
    return c;
end;
$$;
comment on function pgq._blank_claim(int4, int2) is 'A claim of nothing';


create or replace function pgq._append_claim(c pgq.claim_ring)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._append_claim(1)
--
--      Append a claim to the claim ring. The caller has the lane's lock.
--
--      The slots of this ring have no guard: finishes come to closed ones, too
--      (66_finish.sql). So what the guard would do is done here.
-- Errors:
--      40001  - the slot was closed at the very moment; nothing was changed
-- ----------------------------------------------------------------------
declare
    g  bigint := pg_sequence_last_value('pgq.claim_ring_phase'::regclass) / 2;
    v  bigint;
begin
    c.txid := pg_current_xact_id();
    c.at := clock_timestamp();
    case g % 3
        when 0 then insert into pgq.claim_ring_0 values (c.*);
        when 1 then insert into pgq.claim_ring_1 values (c.*);
        else insert into pgq.claim_ring_2 values (c.*);
    end case;
    v := pg_sequence_last_value('pgq.claim_ring_phase'::regclass);
    if not (v / 2 = g or (v / 2 = g + 1 and v % 2 = 0)) then
        raise exception 'the claim ring rotated at this moment'
            using errcode = '40001', detail = 'Nothing was claimed.', hint = 'Repeat the call.';
    end if;
end;
$$;
comment on function pgq._append_claim(pgq.claim_ring) is 'Append a claim to the claim ring';


create or replace function pgq._claim_lane(
    q pgq.queue, i_lane int2, i_worker text, i_beats boolean, i_n int4, i_seen int8)
returns pgq.claim_ring language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._claim_lane(6)
--
--      Claim from a lane that the caller has locked; state is read after that.
--      Jobs that were cancelled are passed over: their tombstone is their end.
-- Returns:
--      the claim, or null when the lane is empty
-- ----------------------------------------------------------------------
declare
    c       pgq.claim_ring := pgq._lane_state(q.queue_id, i_lane);
    newest  pgq.tick_ring;
begin
    loop
        if c.exhausted then
            newest := pgq._newest_tick(q.queue_id);
        end if;
        -- jobs that killed a worker come one at a time
        c := pgq._next_in_lane(q, c, newest, case when i_lane = 0 then 1 else i_n end);
        if c.claim_id is null then
            return null;
        end if;
        if c.tombs then
            c.ev_ids := array(select id from unnest(c.ev_ids) with ordinality i(id, nth)
                              where not pgq._has_tombstone(q.queue_id, id) order by nth);
        end if;
        c.claim_id := nextval('pgq.claim_id_seq');
        c.token := hashtextextended(gen_random_uuid()::text, c.claim_id);
        c.worker := i_worker;
        c.beats := i_beats;
        c.seen := i_seen;
        perform pgq._append_claim(c);
        if c.ev_ids <> '{}' then
            return c;
        end if;
    end loop;
end;
$$;
comment on function pgq._claim_lane(pgq.queue, int2, text, boolean, int4, int8) is 'Claim from a locked lane';


create or replace function pgq._has_tombstone(i_queue int4, i_id bigint)
returns boolean language plpgsql set enable_seqscan = off set jit = off as $$
-- Was the job cancelled before it was claimed? Asked under the lane's lock
begin
    perform from pgq.claim_ring limit 0;  -- nothing is evacuated from here on
    return exists (select from pgq.claim_ring
                   where claim_id = -i_queue and ev_id = i_id and kind = 't' order by claim_id, ev_id limit 1);
end;
$$;
comment on function pgq._has_tombstone(int4, bigint) is 'Was a job cancelled before it was claimed';


create or replace function pgq._worker_beats(i_worker text)
returns boolean language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._worker_beats(1)
--
--      Does the worker send heartbeats? One that never did has its lease from the
--      moment of each claim.
--
--      No lock against recover(): what a worker claims while it is declared dead is
--      found by the next recover(), which looks at the claims of all that are dead.
-- Errors:
--      PQ022  - it was declared dead, or has stopped
-- ----------------------------------------------------------------------
declare
    ended  timestamptz;
begin
    select ended_at into ended from pgq.worker where worker = i_worker;
    if not found then
        return false;
    end if;
    if ended is not null then
        raise exception 'worker % ended at %', quote_literal(i_worker), ended
            using errcode = 'PQ022',
                  detail = 'It sent no heartbeat for its lease, or said that it stops; its unfinished jobs were given back.',
                  hint = 'Go on under a new name, and drop what was claimed under this one.';
    end if;
    return true;
end;
$$;
comment on function pgq._worker_beats(text) is 'Does a worker send heartbeats; raises when it is dead';


create or replace function pgq._claim(
    q pgq.queue, i_worker text, i_n int4, i_idle boolean, i_last_lane int2 default null, i_last_seen int8 default null)
returns pgq.claim_ring language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._claim(6)
--
--      Claim from the best lane that has work.
--
--      1. Look at the lanes, best first, without a lock. An empty poll writes nothing.
--      2. Lock the first that has work, waiting for it: if workers skipped a locked lane,
--         thousands of low jobs would overtake high ones.
--      3. If another worker was faster, go on with the lanes below; never with one above,
--         or two workers could wait for each other.
--      4. Nothing at all: if a tick is due, make it and look once more. So jobs are
--         worked without a ticker. When none seems to be alive, that comes first, or urgent
--         jobs would wait until all others are done.
--      5. What ticks up to now bring to a lane never changes: a claim that found nothing
--         above its lane, nor to be run alone, spares the next one that look, until there
--         is a new tick. So who is not idle looks at the lane of jobs that must run alone,
--         too; and a look at a lane that may have something is put off until the first one
--         is met that has: the last claim of that one may say that there is nothing.
--
-- Parameters:
--      i_last_lane, i_last_seen  - of an earlier claim of the caller, see 5; or null. A lane above 0
-- ----------------------------------------------------------------------
declare
    beats   boolean := i_worker is not null and pgq._worker_beats(i_worker);
    newest  pgq.tick_ring := pgq._newest_tick(q.queue_id);
    below   int4 := 32001;
    seen    int8;
    lanes   int2[];
    next    int4;
    likely  pgq.claim_ring[];
    c       pgq.claim_ring;
begin
    if newest.tick_time < clock_timestamp() - interval '250 ms'
       and newest.tick_event_seq is distinct from pg_sequence_last_value(q.queue_event_seq::regclass)
       and pg_sequence_last_value('pgq.wake_deadline'::regclass) < pgq._now_ms()
       and pgq._tick_if_due(q, true) is not null then
        newest := pgq._newest_tick(q.queue_id);
    end if;
    if i_last_lane > 0 and i_last_seen = newest.tick_id then
        perform from pgq.lane where queue_id = q.queue_id and lane = i_last_lane for update;
        below := i_last_lane;
        c := pgq._claim_lane(q, i_last_lane, i_worker, beats, i_n, newest.tick_id);
        if c.claim_id is not null then
            return c;
        end if;
    end if;
    for round in 1 .. 2 loop
        seen := newest.tick_id;
        lanes := array(select lane from pgq.lane
                       where queue_id = q.queue_id and (lane between 1 and below - 1 or (lane = 0 and below = 32001))
                       order by lane = 0 desc, lane desc);
        next := 1;
        while next <= cardinality(lanes) loop
            likely := '{}';
            for i in next .. cardinality(lanes) loop
                next := i + 1;
                c := pgq._lane_state(q.queue_id, lanes[i]);
                continue when c.exhausted and c.top_tick >= newest.tick_id;
                if not c.exhausted and c.seen = newest.tick_id then
                    likely := '{}';
                end if;
                likely := likely || c;
                exit when not c.exhausted;
            end loop;
            foreach c in array likely loop
                continue when c.exhausted and (pgq._next_in_lane(q, c, newest, 1)).claim_id is null;
                if c.lane = 0 and not i_idle then
                    seen := null;
                    continue;
                end if;
                perform from pgq.lane where queue_id = q.queue_id and lane = c.lane for update;
                below := c.lane;
                c := pgq._claim_lane(q, c.lane, i_worker, beats, i_n, seen);
                if c.claim_id is not null then
                    return c;
                end if;
            end loop;
        end loop;
        exit when below < 32001 or pgq._tick_if_due(q, true) is null;
        newest := pgq._newest_tick(q.queue_id);
    end loop;
    return null;
end;
$$;
comment on function pgq._claim(pgq.queue, text, int4, boolean, int2, int8) is 'Claim from the best lane that has work';


create or replace function pgq.claim(
    i_queue_name text, i_worker text, i_n int4 default 1, i_idle boolean default true,
    out claim_id bigint, out token bigint, out job_ids bigint[])
returns record language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.claim(4)
--
--      Claim up to i_n jobs of the highest priority that has any, for one worker: no
--      other gets them while its lease lasts. In a short transaction of its own, for
--      it holds the priority's lock. claimed() fetches the jobs.
--
-- Parameters:
--      i_worker  - who claims, up to 200 characters; may be null
--      i_n       - 1 to 10000
--      i_idle    - the worker has no other job in hand. Only then it gets a job that lost a
--                  worker before, and that job alone
-- Returns:
--      claim_id, token  - what complete() and the others want; null: there is no job
--      job_ids          - the jobs, in order
-- Errors:
--      PQ001, PQ006, PQ007, PQ022 the worker was declared dead, PQ023, 40001, 42501
-- Tables touched:
--      pgq.lane (locked), pgq.claim_ring (insert), event slots (read)
-- ----------------------------------------------------------------------
declare
    q  pgq.queue := pgq._queue_of_jobs(i_queue_name);
    c  pgq.claim_ring;
begin
    perform pgq._require_read_committed('claim');
    perform pgq._require_consume(q.queue_id, '');
    perform pgq._check_claim(i_worker, i_n);
    if q.queue_ticker_paused then
        return;
    end if;
    c := pgq._claim(q, i_worker, i_n, i_idle);
    claim_id := c.claim_id;
    token := c.token;
    job_ids := c.ev_ids;
end;
$$;
comment on function pgq.claim(text, text, int4, boolean) is
'Claim up to so many jobs for a worker. Returns claim_id, token and the jobs'' ids; all null when there is none.';


create or replace function pgq.solo_waits(i_queue_name text)
returns boolean language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.solo_waits(1)
--
--      Does a job wait that lost a worker before? Only a worker that has nothing else in
--      hand gets it (i_idle of claim()), so one that always has something asks
--      now and then, and comes to rest for it. Reads only.
-- Errors:
--      PQ001, PQ007, PQ023, 42501
-- ----------------------------------------------------------------------
declare
    q       pgq.queue := pgq._queue_of_jobs(i_queue_name);
    newest  pgq.tick_ring;
    c       pgq.claim_ring;
begin
    perform pgq._require_read_committed('solo_waits');
    perform pgq._require_consume(q.queue_id, '');
    newest := pgq._newest_tick(q.queue_id);
    c := pgq._lane_state(q.queue_id, 0::int2);
    return not q.queue_ticker_paused and not (c.exhausted and c.top_tick >= newest.tick_id)
           and (pgq._next_in_lane(q, c, newest, 1)).claim_id is not null;
end;
$$;
comment on function pgq.solo_waits(text) is
'Does a job wait that lost a worker before? Only a worker that has nothing else in hand gets it.';


create or replace function pgq._check_claim(i_worker text, i_n int4)
returns void language plpgsql as $$
-- PQ006 unless so many jobs can be claimed by a worker of that name
begin
    if (i_n between 1 and 10000) is not true or length(i_worker) > 200 then
        raise exception 'cannot claim % jobs', coalesce(i_n::text, 'NULL')
            using errcode = 'PQ006', hint = 'Claim 1 to 10000 at a time; the name of a worker has up to 200 characters.';
    end if;
end;
$$;
comment on function pgq._check_claim(text, int4) is 'Check what a claim asks for';
