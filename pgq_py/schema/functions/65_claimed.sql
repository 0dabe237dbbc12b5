-- Claims that were made: looking one up, what is left of it, and its jobs.
--
-- A worker shows the claim's number and token in every call. What it gets to see is what has no
-- finish yet (66_finish.sql), so that it may ask again at any time.

create or replace function pgq._claim_of(i_claim_id bigint, out c pgq.claim_ring, out slot int4)
returns record language plpgsql set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq._claim_of(1)
--
--      A claim, and the slot of the claim ring that has it; null when there is none.
--
--      The current slot first: a reader in the one before delays its evacuation.
-- Errors:
--      40001  - it may have been moved since the snapshot
-- ----------------------------------------------------------------------
declare
    found_  record;
begin
    slot := pg_sequence_last_value('pgq.claim_ring_phase'::regclass) / 2 % 3;
    case slot
        when 0 then select * into c from pgq.claim_ring_0 where claim_id = i_claim_id and ev_id = -1 and kind = 'q';
        when 1 then select * into c from pgq.claim_ring_1 where claim_id = i_claim_id and ev_id = -1 and kind = 'q';
        else select * into c from pgq.claim_ring_2 where claim_id = i_claim_id and ev_id = -1 and kind = 'q';
    end case;
    for attempt in 1 .. 3 loop
        exit when c.claim_id is not null;
        select right(r.tableoid::regclass::text, 1)::int4 as nr, r::pgq.claim_ring as c into found_ from pgq.claim_ring r
            where claim_id = i_claim_id and ev_id = -1 and kind = 'q';
        slot := found_.nr;
        c := found_.c;
    end loop;
    if c.claim_id is null then
        slot := null;
        perform pgq._require_fresh('claim_ring');
    end if;
end;
$$;
comment on function pgq._claim_of(bigint) is 'A claim and its slot';


create or replace function pgq._held_claim(i_claim_id bigint, i_token bigint, out c pgq.claim_ring, out slot int4)
returns record language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._held_claim(2)
--
--      A claim that the caller shows the token of.
-- Errors:
--      PQ020  - there is no such claim (any more), or it is another's
--      40001  - see _claim_of(1)
--      42501  - the caller may not work this queue
-- ----------------------------------------------------------------------
declare
    h  record;
begin
    h := pgq._claim_of(i_claim_id);
    c := h.c;
    slot := h.slot;
    if c.claim_id is not null then
        perform pgq._require_consume(c.queue_id, '');
    end if;
    if c.token is distinct from i_token or i_token is null then
        perform pgq._raise_claim_lost(i_claim_id, 'it is not known any more, or was given to another');
    end if;
end;
$$;
comment on function pgq._held_claim(bigint, bigint) is 'A claim, by number and token';


create or replace function pgq._raise_claim_lost(i_claim_id bigint, i_why text)
returns void language plpgsql as $$
-- PQ020, the answer to a worker that lost its claim
begin
    raise exception 'claim % is lost: %', coalesce(i_claim_id::text, 'NULL'), i_why
        using errcode = 'PQ020',
              detail = 'Its unfinished jobs were given back and are run by others; nothing was changed.',
              hint = 'Roll back what the job did in this transaction, and claim anew.';
end;
$$;
comment on function pgq._raise_claim_lost(bigint, text) is 'Raise that a claim is lost';


create or replace function pgq._finish_rows(i_claim_id bigint, i_slot int4)
returns setof pgq.claim_ring language plpgsql set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq._finish_rows(2)
--
--      What has been finished of a claim, as far as the snapshot shows it; the row with
--      ev_id 0 stands for all that have none of their own.
-- ----------------------------------------------------------------------
begin
    case i_slot
        when 0 then return query select * from pgq.claim_ring_0 where claim_id = i_claim_id and ev_id >= 0 and kind = 'f';
        when 1 then return query select * from pgq.claim_ring_1 where claim_id = i_claim_id and ev_id >= 0 and kind = 'f';
        else return query select * from pgq.claim_ring_2 where claim_id = i_claim_id and ev_id >= 0 and kind = 'f';
    end case;
end;
$$;
comment on function pgq._finish_rows(bigint, int4) is 'What has been finished of a claim';


create or replace function pgq._unfinished(c pgq.claim_ring, i_slot int4)
returns int8[] language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._unfinished(2)
--
--      Jobs of a claim that are not finished, as far as the snapshot shows it, in order.
-- ----------------------------------------------------------------------
declare
    done  int8[] := array(select ev_id from pgq._finish_rows(c.claim_id, i_slot));
begin
    if done = '{}' then
        return c.ev_ids;
    elsif 0 = any (done) then
        return '{}';
    end if;
    return array(select id from unnest(c.ev_ids) with ordinality i(id, nth) where id <> all (done) order by nth);
end;
$$;
comment on function pgq._unfinished(pgq.claim_ring, int4) is 'Jobs of a claim that are not finished';


create or replace function pgq._max_attempts(i_queue int4, i_type text, i_options jsonb)
returns int4 language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._max_attempts(3)
--
--      How often a job may be tried: its own word, else that of its type's retry policy.
-- ----------------------------------------------------------------------
begin
    return coalesce((i_options ->> 'max_attempts')::numeric::int4, (pgq._retry_policy(i_queue, 'job:' || i_type)).max_retries + 1);
end;
$$;
comment on function pgq._max_attempts(int4, text, jsonb) is 'How often a job may be tried';


create or replace function pgq.claimed(
    in i_claim_id bigint, in i_token bigint, out job_id bigint, out type text, out payload text, out priority int4,
    out attempt int4, out max_attempts int4, out losses int4, out created_at timestamptz, out key text, out options jsonb)
returns setof record language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.claimed(2)
--
--      The unfinished jobs of a claim, in order; again as often as wanted.
--
-- Returns:
--      payload       - JSON, as text: what is no JSON came by insert_event()
--      priority      - 0: the job lost a worker before
--      attempt       - which one this is, from 1
--      losses        - how many workers died with it
--      options       - as of enqueue()
-- Errors:
--      PQ007, PQ020 the claim is lost, 42501
-- ----------------------------------------------------------------------
declare
    h     record;
    c     pgq.claim_ring;
    slot  int4;
    q     pgq.queue;
    ids   int8[];
begin
    perform pgq._require_read_committed('claimed');
    h := pgq._held_claim(i_claim_id, i_token);
    c := h.c;
    slot := h.slot;
    select * into q from pgq.queue where queue_id = c.queue_id;
    ids := pgq._unfinished(c, slot);
    -- the policy is looked up once for each type: that costs as much as all the rest of a job
    return query
        with jobs as materialized (select * from pgq._job_rows(q, ids)),
             types as materialized (select t.ev_type, pgq._max_attempts(q.queue_id, t.ev_type, '{}') as most
                                    from (select distinct j.ev_type from jobs j) t)
        select j.ev_id, j.ev_type, j.ev_data, j.ev_lane::int4, coalesce(j.ev_retry, 0) + 1,
               coalesce((o ->> 'max_attempts')::numeric::int4, t.most),
               coalesce((o ->> 'losses')::int4, 0), j.ev_time, j.ev_extra2, o
        from unnest(ids) with ordinality i(id, nth) join jobs j on j.ev_id = i.id
        left join types t on t.ev_type is not distinct from j.ev_type
        cross join lateral pgq._options(j.ev_extra1) o
        order by i.nth;
end;
$$;
comment on function pgq.claimed(bigint, bigint) is 'The unfinished jobs of a claim, in order.';


create or replace function pgq.take(
    in i_queue_name text, in i_worker text, in i_n int4 default 1, out claim_id bigint, out token bigint,
    out job_id bigint, out type text, out payload jsonb, out attempt int4)
returns setof record language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.take(3)
--
--      claim() and claimed() in one, for plain SQL: no row when there is no job.
--
-- Returns:
--      payload  - null when it is no JSON: fail() such a job
-- Errors:
--      as claim()
-- ----------------------------------------------------------------------
begin
    return query
        select c.claim_id, c.token, j.job_id, j.type, pgq._json_or_null(j.payload), j.attempt
        from pgq.claim(i_queue_name, i_worker, i_n) c cross join lateral pgq.claimed(c.claim_id, c.token) j
        where c.claim_id is not null;
end;
$$;
comment on function pgq.take(text, text, int4) is
'Claim up to so many jobs and return them, each with the claim''s number and token.';


create or replace function pgq._json_or_null(i_text text)
returns jsonb language plpgsql as $$
-- JSON, or null for what is none
begin
    return i_text::jsonb;
exception
    when data_exception then
        return null;
end;
$$;
comment on function pgq._json_or_null(text) is 'JSON, or null for what is none';
