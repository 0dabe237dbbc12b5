-- Finishing jobs: what is written when a job is over for its claim, and complete.
--
-- A finish is a row beside its claim, in the same slot, unique on (claim, job). That index is
-- the only lock: a claim that was declared lost has a row for each of its jobs, so whatever a
-- zombie finishes collides, at every isolation level. (A row lock and a look for a closing row
-- let zombies through at REPEATABLE READ.) The row of job 0 closes the claim: it finishes
-- all that have no row of their own.
--
-- A session keeps its plans, and one made while a slot is empty would read it in full ever after:
-- so every public function of jobs has enable_seqscan off.
--
-- Finishes are taken until the claim's slot is evacuated, whether it is closed or not: after
-- the insert, which locks the slot, the claim is read once more. If it is gone, its slot was
-- evacuated in between.

create or replace function pgq._finish_row(c pgq.claim_ring, i_id bigint, i_outcome text, i_error text default null, i_n int4 default 1)
returns pgq.claim_ring language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._finish_row(5)
--
--      A finish of a job (or, with 0, of all that are left), not written yet.
-- ----------------------------------------------------------------------
declare
    f  pgq.claim_ring;
begin
    f.claim_id := c.claim_id;
    f.ev_id := i_id;
    f.kind := 'f';
    f.nth := 0;
    f.queue_id := c.queue_id;
    f.lane := c.lane;
    f.outcome := i_outcome;
    f.error := left(i_error, 8192);
    f.n := i_n;
    return f;
end;
$$;
comment on function pgq._finish_row(pgq.claim_ring, bigint, text, text, int4) is 'A finish of a job, not written yet';


create or replace function pgq._append_beside(c pgq.claim_ring, i_slot int4, f pgq.claim_ring[])
returns int4 language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._append_beside(3)
--
--      Append rows to a claim's slot, as far as the like are not there yet. Waits for
--      a transaction that is writing the same ones.
--
-- Returns:
--      number of rows written
-- Errors:
--      PQ020  - above READ COMMITTED: some are there, whether this snapshot sees them or not
--      40001  - the slot was evacuated at this moment
-- ----------------------------------------------------------------------
declare
    made  int4;
begin
    if current_setting('transaction_isolation') = 'read committed' then
        case i_slot
            when 0 then insert into pgq.claim_ring_0 select (pgq._stamped(r)).* from unnest(f) r on conflict do nothing;
            when 1 then insert into pgq.claim_ring_1 select (pgq._stamped(r)).* from unnest(f) r on conflict do nothing;
            else insert into pgq.claim_ring_2 select (pgq._stamped(r)).* from unnest(f) r on conflict do nothing;
        end case;
        get diagnostics made = row_count;
    else
        begin
            execute format('insert into pgq.claim_ring_%s select (pgq._stamped(r)).* from unnest($1) r', i_slot) using f;
        exception
            when unique_violation then
                perform pgq._raise_claim_lost(c.claim_id, 'another transaction finished its jobs');
        end;
        made := cardinality(f);
    end if;
    if not pgq._is_in_slot(c.claim_id, i_slot) then
        perform pgq._raise_moved(c.claim_id);
    end if;
    return made;
end;
$$;
comment on function pgq._append_beside(pgq.claim_ring, int4, pgq.claim_ring[]) is 'Append rows to a claim''s slot';


create or replace function pgq._is_in_slot(i_claim_id bigint, i_slot int4)
returns boolean language plpgsql as $$
-- Is the claim still in this slot? Asked after an insert has locked it
begin
    case i_slot
        when 0 then return exists (select from pgq.claim_ring_0 where claim_id = i_claim_id and ev_id = -1 and kind = 'q' and nth = 0);
        when 1 then return exists (select from pgq.claim_ring_1 where claim_id = i_claim_id and ev_id = -1 and kind = 'q' and nth = 0);
        else return exists (select from pgq.claim_ring_2 where claim_id = i_claim_id and ev_id = -1 and kind = 'q' and nth = 0);
    end case;
end;
$$;
comment on function pgq._is_in_slot(bigint, int4) is 'Is a claim still in a slot';


create or replace function pgq._raise_moved(i_claim_id bigint)
returns void language plpgsql as $$
-- 40001: rotation carried the claim along between two statements
begin
    raise exception 'claim % was carried along by rotation at this moment', i_claim_id
        using errcode = '40001', detail = 'Nothing was finished.', hint = 'Repeat the transaction.';
end;
$$;
comment on function pgq._raise_moved(bigint) is 'Raise that a claim was carried along';


create or replace function pgq._append_close(c pgq.claim_ring, i_slot int4, i_outcome text)
returns int4 language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._append_close(3)
--
--      Append the closing row of a claim, with the number of jobs that it finishes: what
--      _append_beside() does, in one statement, for READ COMMITTED.
-- Returns:
--      that number; null when the claim is closed
-- ----------------------------------------------------------------------
declare
    made  int4;
begin
    case i_slot
        when 0 then
            insert into pgq.claim_ring_0 as t (claim_id, ev_id, kind, queue_id, lane, outcome, n)
                select c.claim_id, 0, 'f', c.queue_id, c.lane, i_outcome, cardinality(c.ev_ids) - (
                    select count(*) from pgq.claim_ring_0 f where f.claim_id = c.claim_id and f.ev_id > 0 and f.kind = 'f')
                on conflict do nothing returning t.n into made;
        when 1 then
            insert into pgq.claim_ring_1 as t (claim_id, ev_id, kind, queue_id, lane, outcome, n)
                select c.claim_id, 0, 'f', c.queue_id, c.lane, i_outcome, cardinality(c.ev_ids) - (
                    select count(*) from pgq.claim_ring_1 f where f.claim_id = c.claim_id and f.ev_id > 0 and f.kind = 'f')
                on conflict do nothing returning t.n into made;
        else
            insert into pgq.claim_ring_2 as t (claim_id, ev_id, kind, queue_id, lane, outcome, n)
                select c.claim_id, 0, 'f', c.queue_id, c.lane, i_outcome, cardinality(c.ev_ids) - (
                    select count(*) from pgq.claim_ring_2 f where f.claim_id = c.claim_id and f.ev_id > 0 and f.kind = 'f')
                on conflict do nothing returning t.n into made;
    end case;
    if not pgq._is_in_slot(c.claim_id, i_slot) then
        perform pgq._raise_moved(c.claim_id);
    end if;
    return made;
end;
$$;
comment on function pgq._append_close(pgq.claim_ring, int4, text) is 'Append the closing row of a claim';


create or replace function pgq._stamped(f pgq.claim_ring)
returns pgq.claim_ring language plpgsql as $$
-- The row with our transaction and the time in it
begin
    f.txid := pg_current_xact_id();
    f.at := coalesce(f.at, clock_timestamp());
    return f;
end;
$$;
comment on function pgq._stamped(pgq.claim_ring) is 'A row of the claim ring with transaction and time';


create or replace function pgq._finish(c pgq.claim_ring, i_slot int4, f pgq.claim_ring[])
returns int8[] language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._finish(3)
--
--      Write finishes of single jobs.
--
-- Returns:
--      the jobs that this call finished; those that were finished before are left out
-- Errors:
--      PQ020  - one of them was taken away from this claim
--      40001
-- ----------------------------------------------------------------------
declare
    before  pgq.claim_ring[] := array(select r from pgq._finish_rows(c.claim_id, i_slot) r);
    done    int8[] := array(select (unnest(before)).ev_id);
    todo    pgq.claim_ring[] := f;
begin
    if 0 = any (done) then
        todo := '{}';  -- the claim is closed: all are finished
    elsif done <> '{}' then
        todo := array(select r from unnest(f) r where r.ev_id <> all (done));
    end if;
    if todo <> '{}' and pgq._append_beside(c, i_slot, todo) < cardinality(todo) then
        -- somebody finished some meanwhile: now visible
        before := array(select r from pgq._finish_rows(c.claim_id, i_slot) r where r.txid <> pg_current_xact_id());
        done := array(select (unnest(before)).ev_id);
        todo := array(select r from unnest(todo) r where r.ev_id <> all (done));
    end if;
    if exists (select from unnest(before) b where b.outcome in ('lost', 'released')
               and (b.ev_id = 0 or b.ev_id in (select (unnest(f)).ev_id))) then
        perform pgq._raise_claim_lost(c.claim_id, 'its jobs were given back');
    end if;
    return array(select (unnest(todo)).ev_id);
end;
$$;
comment on function pgq._finish(pgq.claim_ring, int4, pgq.claim_ring[]) is 'Write finishes of single jobs';


create or replace function pgq._close(c pgq.claim_ring, i_slot int4, i_outcome text)
returns int4 language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._close(3)
--
--      Close a claim: finish all jobs that are left, with one row.
-- Returns:
--      how many that were; 0 when it was closed
-- Errors:
--      PQ020, 40001
-- ----------------------------------------------------------------------
declare
    left_  int8[];
    made   int4;
    was    text;
begin
    if c.keyed or current_setting('transaction_isolation') <> 'read committed' then
        left_ := pgq._unfinished(c, i_slot);
        made := pgq._append_beside(c, i_slot, array[pgq._finish_row(c, 0, i_outcome, null, cardinality(left_))]);
        made := case when made > 0 then cardinality(left_) end;
    else
        made := pgq._append_close(c, i_slot, i_outcome);
    end if;
    if made is null then
        select outcome into was from pgq._finish_rows(c.claim_id, i_slot) where ev_id = 0;
        if was in ('lost', 'released') then
            perform pgq._raise_claim_lost(c.claim_id, 'its jobs were given back');
        end if;
        return 0;
    end if;
    if c.keyed and i_outcome = 'completed' then
        perform pgq._let_go(c, left_);
    end if;
    return made;
end;
$$;
comment on function pgq._close(pgq.claim_ring, int4, text) is 'Close a claim';


create or replace function pgq._let_go(c pgq.claim_ring, i_ids int8[])
returns void language plpgsql as $$
-- Release the idempotency keys of jobs that have come to their end
declare
    q     pgq.queue;
    keys  text[];
    ids   int8[];
begin
    if not c.keyed or i_ids = '{}' then
        return;
    end if;
    select * into q from pgq.queue where queue_id = c.queue_id;
    select array_agg(ev_extra2), array_agg(pgq._holder(ev_id, pgq._options(ev_extra1))) into keys, ids
        from pgq._job_rows(q, i_ids) where ev_extra2 is not null;
    if keys is not null then
        perform pgq._release_keys('queue:' || c.queue_id, keys, ids);
    end if;
end;
$$;
comment on function pgq._let_go(pgq.claim_ring, int8[]) is 'Release the keys of jobs that have come to their end';


create or replace function pgq._check_ids(c pgq.claim_ring, i_ids bigint[])
returns void language plpgsql as $$
-- PQ006 unless all these jobs are of the claim
begin
    if not i_ids <@ c.ev_ids or array_position(i_ids, null) is not null then
        raise exception 'not a job of claim %: %', c.claim_id,
                array(select unnest(i_ids) except select unnest(c.ev_ids))
            using errcode = 'PQ006', detail = 'Nothing was changed.', hint = 'Give ids that claim() returned with this claim.';
    end if;
end;
$$;
comment on function pgq._check_ids(pgq.claim_ring, bigint[]) is 'Check that jobs are of a claim';


create or replace function pgq.complete(i_claim_id bigint, i_token bigint, i_job_ids bigint[] default null)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.complete(3)
--
--      The jobs are done. In a transaction of the job's own writes both or
--      neither take effect: exactly once. At any isolation level.
--
-- Parameters:
--      i_job_ids  - jobs of the claim; null: all that are not finished
-- Returns:
--      how many jobs this call completed; those that were finished before, also by
--      fail(), do not count
-- Errors:
--      PQ006  - not a job of this claim
--      PQ020  - the claim is lost: roll back
--      40001, 42501
-- Tables touched:
--      pgq.claim_ring (insert), pgq.key_ring (insert, when jobs have keys)
-- ----------------------------------------------------------------------
declare
    h     record;
    c     pgq.claim_ring;
    slot  int4;
    done  int8[];
begin
    h := pgq._held_claim(i_claim_id, i_token);
    c := h.c;
    slot := h.slot;
    if i_job_ids is null then
        return pgq._close(c, slot, 'completed');
    end if;
    perform pgq._check_ids(c, i_job_ids);
    done := pgq._finish(c, slot, array(select pgq._finish_row(c, id, 'completed') from (select distinct unnest(i_job_ids) as id) i));
    perform pgq._let_go(c, done);
    return cardinality(done);
end;
$$;
comment on function pgq.complete(bigint, bigint, bigint[]) is
'Complete jobs of a claim, or all that are left (null). Returns how many.';


create or replace function pgq.complete_and_claim(
    i_claim_id bigint, i_token bigint, i_queue_name text, i_worker text, i_n int4 default 1,
    out claim_id bigint, out token bigint, out job_ids bigint[])
returns record language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq.complete_and_claim(5)
--
--      complete() all of a claim and claim() the next jobs, in one call. With null as
--      the claim it only claims.
--
--      SECURITY INVOKER: the right to work is EXECUTE on the queue's own function
--      (66_work_once.sql), which does it in the common case.
-- Errors:
--      as complete() and claim(); then neither took effect
-- ----------------------------------------------------------------------
declare
    nr  int4;
    w   record;
begin
    if i_claim_id is not null and i_n between 1 and 10000 and coalesce(length(i_worker), 0) <= 200
       and current_setting('transaction_isolation') = 'read committed' then
        select j.queue_id into nr from pgq.queue q join pgq.job_queue j using (queue_id)
            where q.queue_name = i_queue_name and not q.queue_ticker_paused;
        if nr is not null then
            execute 'select * from pgq.work_' || nr || '_' || left(md5(i_queue_name), 8) || '($1, $2, $3, $4, true, true)'
                into w using i_claim_id, i_token, i_worker, i_n;
            if w.stage = 2 then
                claim_id := w.claim_id;
                token := w.token;
                job_ids := w.job_ids;
                return;
            elsif w.stage = 1 then
                i_claim_id := null;
            end if;
        end if;
    end if;
    select r.claim_id, r.token, r.job_ids into claim_id, token, job_ids
        from pgq.complete_and_claim_with(i_claim_id, i_token, i_queue_name, i_worker, i_n) r;
end;
$$;
comment on function pgq.complete_and_claim(bigint, bigint, text, text, int4) is
'Complete all of a claim and claim the next jobs, in one call.';


create or replace function pgq.complete_and_claim_with(
    i_claim_id bigint, i_token bigint, i_queue_name text, i_worker text, i_n int4,
    out claim_id bigint, out token bigint, out job_ids bigint[])
returns record language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.complete_and_claim_with(5)
--
--      The longer way of complete_and_claim(5).
-- ----------------------------------------------------------------------
declare
    q  pgq.queue := pgq._queue_of_jobs(i_queue_name);
    h  record;
    c  pgq.claim_ring;
begin
    perform pgq._require_read_committed('complete_and_claim');
    perform pgq._require_consume(q.queue_id, '');
    perform pgq._check_claim(i_worker, i_n);
    if i_claim_id is not null then
        h := pgq._held_claim(i_claim_id, i_token);
        c := h.c;
        perform pgq._close(c, h.slot, 'completed');
    end if;
    if not q.queue_ticker_paused then
        c := pgq._claim(q, i_worker, i_n, true, case when c.queue_id = q.queue_id then c.lane end, c.seen);
        claim_id := c.claim_id;
        token := c.token;
        job_ids := c.ev_ids;
    end if;
end;
$$;
comment on function pgq.complete_and_claim_with(bigint, bigint, text, text, int4) is
'What complete_and_claim() does out of the ordinary.';
