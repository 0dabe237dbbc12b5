-- What a worker says of a claim or a job while it works: extend, progress, set_result.
--
-- Notes are rows beside the claim, as finishes are (66_finish.sql), but of kinds of their own and
-- numbered by time: they finish nothing, and the newest counts.

create or replace function pgq.extend(i_claim_id bigint, i_token bigint)
returns timestamptz language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.extend(2)
--
--      Let the lease of a claim begin anew, for a worker that sends no heartbeats. In a
--      transaction of its own.
-- Returns:
--      until when it runs
-- Errors:
--      PQ020, 40001, 42501
-- ----------------------------------------------------------------------
declare
    h     record;
    c     pgq.claim_ring;
    slot  int4;
begin
    h := pgq._held_claim(i_claim_id, i_token);
    c := h.c;
    slot := h.slot;
    if exists (select from pgq._finish_rows(c.claim_id, slot) where ev_id = 0) then
        perform pgq._raise_claim_lost(i_claim_id, 'it is closed');
    end if;
    perform pgq._note(c, slot, -1, 'e', null);
    return clock_timestamp() + (select lease from pgq.job_queue where queue_id = c.queue_id);
end;
$$;
comment on function pgq.extend(bigint, bigint) is 'Let the lease of a claim begin anew. Returns until when it runs.';


create or replace function pgq._note(c pgq.claim_ring, i_slot int4, i_id bigint, i_kind "char", i_data jsonb, i_at timestamptz default null)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._note(6)
--
--      Append what is said of a claim or a job while it runs; the newest counts.
-- ----------------------------------------------------------------------
declare
    f  pgq.claim_ring := pgq._finish_row(c, i_id, null);
begin
    f.kind := i_kind;
    f.n := null;
    f.nth := (extract(epoch from clock_timestamp()) * 1000000)::int8;
    f.data := i_data;
    f.at := i_at;
    perform pgq._append_beside(c, i_slot, array[f]);
end;
$$;
comment on function pgq._note(pgq.claim_ring, int4, bigint, "char", jsonb, timestamptz) is 'Append what is said of a job while it runs';


create or replace function pgq.progress(
    i_claim_id bigint, i_token bigint, i_job_id bigint, i_percent float8, i_stage text default null, i_data jsonb default null)
returns void language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.progress(6)
--
--      Say how far a job is; the newest word counts. In a transaction of its own, or
--      nobody sees it before the job is done. Not more than a few times a second.
--
-- Parameters:
--      i_percent  - 0 to 100, or null
--      i_stage    - what it is doing, at most 200 characters
--      i_data     - small: at most 8 kB
-- Errors:
--      PQ006, PQ020, 40001, 42501
-- ----------------------------------------------------------------------
declare
    h     record;
    c     pgq.claim_ring;
    slot  int4;
begin
    h := pgq._held_claim(i_claim_id, i_token);
    c := h.c;
    slot := h.slot;
    perform pgq._check_ids(c, array[i_job_id]);
    if i_percent not between 0 and 100 or length(i_stage) > 200 or octet_length(i_data::text) > 8192 then
        raise exception 'progress cannot be %, %', i_percent, quote_nullable(left(i_stage, 60))
            using errcode = 'PQ006', hint = 'Allowed: 0 to 100 percent, a stage of 200 characters, 8 kB of data.';
    end if;
    if i_job_id <> all (pgq._unfinished(c, slot)) then
        perform pgq._raise_claim_lost(i_claim_id, 'the job is finished or was given back');
    end if;
    perform pgq._note(c, slot, i_job_id, 'p', jsonb_build_object('percent', i_percent, 'stage', i_stage, 'data', i_data));
end;
$$;
comment on function pgq.progress(bigint, bigint, bigint, float8, text, jsonb) is
'Say how far a running job is: percent, stage, data.';


create or replace function pgq.set_result(
    i_claim_id bigint, i_token bigint, i_job_id bigint, i_result jsonb, i_retention interval default interval '1 hour')
returns void language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.set_result(5)
--
--      Keep a result of a job, for whoever has its id: in the transaction that
--      completes it, before or after. Notifies pgq_result_<queue id> with the job's id.
--
-- Parameters:
--      i_result     - small: at most 256 kB
--      i_retention  - how long it is kept, up to a year
-- Errors:
--      PQ006, PQ020, 40001, 42501
-- ----------------------------------------------------------------------
declare
    h     record;
    c     pgq.claim_ring;
    slot  int4;
begin
    h := pgq._held_claim(i_claim_id, i_token);
    c := h.c;
    slot := h.slot;
    perform pgq._check_ids(c, array[i_job_id]);
    if octet_length(i_result::text) > 262144 or (i_retention between interval '0' and interval '1 year') is not true then
        raise exception 'result of % bytes for % cannot be kept', octet_length(i_result::text), i_retention
            using errcode = 'PQ006', hint = 'Keep at most 256 kB for at most a year; store what is larger yourself, and its name here.';
    end if;
    perform pgq._note(c, slot, i_job_id, 'r', coalesce(i_result, 'null'), clock_timestamp() + i_retention);
    perform pg_notify('pgq_result_' || c.queue_id, i_job_id::text);
end;
$$;
comment on function pgq.set_result(bigint, bigint, bigint, jsonb, interval) is
'Keep a result of a job for a while, for whoever has its id.';
