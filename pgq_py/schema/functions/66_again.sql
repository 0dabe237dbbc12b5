-- Jobs that come again, or are given up: fail, snooze, release, and those whose worker was lost.
--
-- The job gets a finish beside its claim (66_finish.sql) and is appended again under its own id, at
-- once or for later. One that was tried, or lost a worker, too often is made a dead letter instead,
-- and one that somebody asked to cancel does not come again.

create or replace function pgq._again(j pgq.job_template, i_retry int4)
returns pgq.job_template language plpgsql as $$
-- The job as it is appended again: for workers alone, with so many failed attempts
begin
    j.ev_owner := 0;
    j.ev_retry := i_retry;
    return j;
end;
$$;
comment on function pgq._again(pgq.job_template, int4) is 'A job as it is appended again';


create or replace function pgq._bury_job(q pgq.queue, j pgq.job_template, i_reason text)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._bury_job(3)
--
--      Make a dead letter of a job. Its consumer's name is empty: no consumer of
--      events has that.
-- ----------------------------------------------------------------------
begin
    execute format($q$
        insert into pgq.%I (dl_id, queue_name, consumer_name, reason, attempts, ev_id, ev_time, ev_retry,
                            ev_type, ev_data, ev_extra1, ev_extra2, ev_lane)
        values (nextval('pgq.dead_letter_id_seq'), $1, '', left($2, 8192), coalesce($3, 0) + 1, $4, $5, $3, $6, $7, $8, $9, $10) $q$,
        pgq._dead_slot())
        using q.queue_name, i_reason, j.ev_retry, j.ev_id, j.ev_time, j.ev_type, j.ev_data, j.ev_extra1, j.ev_extra2, j.ev_lane;
end;
$$;
comment on function pgq._bury_job(pgq.queue, pgq.job_template, text) is 'Make a dead letter of a job';


create or replace function pgq._cancel_asked(i_claim_id bigint, i_slot int4, i_id bigint)
returns boolean language plpgsql set enable_seqscan = off set jit = off as $$
-- Has somebody asked to cancel the job while it runs?
begin
    case i_slot
        when 0 then return exists (select from pgq.claim_ring_0 where claim_id = i_claim_id and ev_id = i_id and kind = 'x');
        when 1 then return exists (select from pgq.claim_ring_1 where claim_id = i_claim_id and ev_id = i_id and kind = 'x');
        else return exists (select from pgq.claim_ring_2 where claim_id = i_claim_id and ev_id = i_id and kind = 'x');
    end case;
end;
$$;
comment on function pgq._cancel_asked(bigint, int4, bigint) is 'Has somebody asked to cancel a running job';


create or replace function pgq.fail(
    i_claim_id bigint, i_token bigint, i_job_id bigint, i_error text,
    i_retry_in interval default null, i_retryable boolean default true)
returns text language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.fail(6)
--
--      A job has failed: it comes again later, or is a dead letter when its attempts
--      are used up. At any isolation level.
--
-- Parameters:
--      i_error      - why, of which 8192 characters are kept
--      i_retry_in   - null: by the retry policy of its type (set_retry_policy(queue,
--                     'job:' || type, ..)), else its queue's
--      i_retryable  - false: it is a dead letter at once
-- Returns:
--      retried, failed, or cancelled when somebody had asked for that meanwhile;
--      null when it was finished before
-- Errors:
--      PQ006, PQ020, 40001, 42501
-- ----------------------------------------------------------------------
declare
    h     record;
    c        pgq.claim_ring;
    slot     int4;
    q        pgq.queue;
    j        pgq.job_template;
    tried    int4;
    outcome  text;
begin
    h := pgq._held_claim(i_claim_id, i_token);
    c := h.c;
    slot := h.slot;
    perform pgq._check_ids(c, array[i_job_id]);
    select * into q from pgq.queue where queue_id = c.queue_id;
    select * into j from pgq._job_rows(q, array[i_job_id]);
    tried := coalesce(j.ev_retry, 0) + 1;
    outcome := case
        when pgq._cancel_asked(c.claim_id, slot, i_job_id) then 'cancelled'
        when i_retryable and tried < pgq._max_attempts(q.queue_id, j.ev_type, pgq._options(j.ev_extra1)) then 'retried'
        else 'failed' end;
    if pgq._finish(c, slot, array[pgq._finish_row(c, i_job_id, outcome, i_error)]) = '{}' then
        return null;
    end if;
    if outcome = 'retried' then
        i_retry_in := coalesce(i_retry_in, pgq._retry_delay(pgq._retry_policy(q.queue_id, 'job:' || j.ev_type), tried));
        perform pgq._append_jobs(q, pgq._due_in(i_retry_in), null, array[pgq._again(j, tried)]);
        return outcome;
    elsif outcome = 'failed' then
        perform pgq._bury_job(q, j, i_error);
    end if;
    perform pgq._let_go(c, array[i_job_id]);
    return outcome;
end;
$$;
comment on function pgq.fail(bigint, bigint, bigint, text, interval, boolean) is
'Fail a job: it is retried later, or a dead letter. Returns retried, failed or cancelled; null when it was finished before.';


create or replace function pgq._due_in(i_in interval)
returns timestamptz language plpgsql as $$
-- When something is due that is to come after a while; null: at once
begin
    if i_in <= interval '0' then
        return null;
    end if;
    perform pgq._check_due(pgq._clock() + i_in);
    return pgq._clock() + i_in;
end;
$$;
comment on function pgq._due_in(interval) is 'When something is due that comes after a while';


create or replace function pgq.snooze(i_claim_id bigint, i_token bigint, i_job_id bigint, i_for interval)
returns boolean language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.snooze(4)
--
--      Let a job come again after a while, without counting the attempt. At any
--      isolation level.
-- Returns:
--      true; false when it was finished before, or cancelled
-- Errors:
--      PQ006, PQ020, 40001, 42501
-- ----------------------------------------------------------------------
declare
    h     record;
    c          pgq.claim_ring;
    slot       int4;
    q          pgq.queue;
    j          pgq.job_template;
    cancelled  boolean;
begin
    h := pgq._held_claim(i_claim_id, i_token);
    c := h.c;
    slot := h.slot;
    perform pgq._check_ids(c, array[i_job_id]);
    cancelled := pgq._cancel_asked(c.claim_id, slot, i_job_id);
    if pgq._finish(c, slot, array[pgq._finish_row(c, i_job_id, case when cancelled then 'cancelled' else 'snoozed' end)]) = '{}' then
        return false;
    end if;
    if cancelled then
        perform pgq._let_go(c, array[i_job_id]);
        return false;
    end if;
    select * into q from pgq.queue where queue_id = c.queue_id;
    select * into j from pgq._job_rows(q, array[i_job_id]);
    perform pgq._append_jobs(q, pgq._due_in(i_for), null, array[pgq._again(j, j.ev_retry)]);
    return true;
end;
$$;
comment on function pgq.snooze(bigint, bigint, bigint, interval) is
'Let a job come again after a while, without counting the attempt. False when it was finished or cancelled.';


create or replace function pgq._give_back(
    c pgq.claim_ring, i_slot int4, i_ids int8[], i_outcome text, i_close boolean)
returns int4 language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._give_back(5)
--
--      Take unfinished jobs away from a claim and append them again.
--
-- Parameters:
--      i_outcome  - released: they come again as they were
--                   lost: their worker died with them. They come again in the solo lane, one
--                   at a time, or are dead letters when that has happened too often
--      i_close    - close the claim as well
-- Returns:
--      number of jobs
-- ----------------------------------------------------------------------
declare
    q      pgq.queue;
    s      pgq.job_queue;
    j      pgq.job_template;
    done   int8[];
    again  pgq.job_template[] := '{}';
begin
    select * into q from pgq.queue where queue_id = c.queue_id;
    select * into s from pgq.job_queue where queue_id = c.queue_id;
    -- The closing row first: it waits for a worker that is completing all of them at this moment
    if i_close and pgq._append_beside(c, i_slot, array[pgq._finish_row(c, 0, i_outcome, null, 0)]) = 0 then
        return 0;
    end if;
    done := pgq._take_away(c, i_slot, i_ids, i_outcome);
    for j in select * from pgq._job_rows(q, done) r order by array_position(done, r.ev_id) loop
        if pgq._cancel_asked(c.claim_id, i_slot, j.ev_id) then
            perform pgq._let_go(c, array[j.ev_id]);  -- what was to be cancelled does not come again
            continue;
        end if;
        j := pgq._again(j, j.ev_retry);
        if i_outcome = 'lost' then
            j := pgq._with_loss(j);
            if (pgq._options(j.ev_extra1) ->> 'losses')::int4 > s.max_losses then
                perform pgq._bury_job(q, j, format('its worker died with it %s times, the last one was %s',
                                                   pgq._options(j.ev_extra1) ->> 'losses', coalesce(c.worker, 'unknown')));
                perform pgq._let_go(c, array[j.ev_id]);
                continue;
            end if;
        end if;
        again := again || j;
    end loop;
    if again <> '{}' then
        perform pgq._append_jobs(q, null, null, again);
    end if;
    return cardinality(done);
end;
$$;
comment on function pgq._give_back(pgq.claim_ring, int4, int8[], text, boolean) is 'Take unfinished jobs away from a claim';


create or replace function pgq._take_away(c pgq.claim_ring, i_slot int4, i_ids int8[], i_outcome text)
returns int8[] language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._take_away(4)
--
--      Write a finish of each of these jobs that has none.
-- Returns:
--      the jobs that this call finished, in order
-- ----------------------------------------------------------------------
declare
    done  int8[] := array(select ev_id from pgq._finish_rows(c.claim_id, i_slot) where ev_id > 0);
    todo  pgq.claim_ring[] := array(select pgq._finish_row(c, id, i_outcome) from unnest(i_ids) id where id <> all (done));
begin
    if todo = '{}' then
        return '{}';
    end if;
    perform pgq._append_beside(c, i_slot, todo);
    return array(select f.ev_id from pgq._finish_rows(c.claim_id, i_slot) f
                 where f.txid = pg_current_xact_id() and f.ev_id = any (i_ids) and f.outcome = i_outcome
                 order by array_position(i_ids, f.ev_id));
end;
$$;
comment on function pgq._take_away(pgq.claim_ring, int4, int8[], text) is 'Write a finish of each job that has none';


create or replace function pgq._with_loss(j pgq.job_template)
returns pgq.job_template language plpgsql as $$
-- The job with one more worker lost, in the solo lane
declare
    o  jsonb := pgq._options(j.ev_extra1);
begin
    j.ev_extra1 := jsonb_set(o, '{losses}', to_jsonb(coalesce((o ->> 'losses')::int4, 0) + 1))::text;
    j.ev_lane := 0;
    return j;
end;
$$;
comment on function pgq._with_loss(pgq.job_template) is 'A job with one more worker lost';


create or replace function pgq.release(i_claim_id bigint, i_token bigint, i_job_ids bigint[] default null)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.release(3)
--
--      Give claimed jobs back, unstarted: another worker gets them at once, and no
--      attempt is counted.
--
-- Parameters:
--      i_job_ids  - null: all that are not finished
-- Returns:
--      how many
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
    perform pgq._check_ids(c, coalesce(i_job_ids, '{}'));
    return pgq._give_back(c, slot, coalesce(i_job_ids, pgq._unfinished(c, slot)), 'released', i_job_ids is null);
end;
$$;
comment on function pgq.release(bigint, bigint, bigint[]) is
'Give claimed jobs back unstarted, without counting an attempt; null: all that are left. Returns how many.';
