-- What has become of a job.
--
-- A job's newest row says where it is: in the delay ring it is scheduled or waits for a retry;
-- ahead of its lane's position it is pending; behind it a claim has it, and the rows beside
-- the claim tell the rest. What has rotated away was completed, unless a dead letter is left.

create or replace function pgq._base_status(q pgq.queue, j pgq.job_template, i_state text)
returns pgq.job_status language plpgsql as $$
-- A job's status out of its row alone
declare
    s  pgq.job_status;
    o  jsonb := pgq._options(j.ev_extra1);
begin
    s.queue_name := q.queue_name;
    s.id := j.ev_id;
    s.type := j.ev_type;
    s.state := i_state;
    s.priority := j.ev_lane;
    s.attempt := coalesce(j.ev_retry, 0) + 1;
    s.max_attempts := pgq._max_attempts(q.queue_id, j.ev_type, o);
    s.losses := coalesce((o ->> 'losses')::int4, 0);
    s.key := j.ev_extra2;
    s.created_at := j.ev_time;
    s.cancel_requested := false;
    s.payload := j.ev_data;
    s.options := o;
    return s;
end;
$$;
comment on function pgq._base_status(pgq.queue, pgq.job_template, text) is 'A job''s status out of its row alone';


create or replace function pgq._delayed_status(q pgq.queue, i_id bigint)
returns pgq.job_status language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._delayed_status(2)
--
--      Status of a job that waits in the delay ring, or was cancelled there; else null.
-- ----------------------------------------------------------------------
declare
    d  pgq.delay_template;
    s  pgq.job_status;
begin
    execute format('select * from (%s) d where ev_id = $1 and (ev_owner is null or ev_owner = 0)'
                   ' order by ev_owner nulls first, cancels limit 1', pgq._pending_sql(q.queue_id, pgq._newest_tick(-q.queue_id)))
        into d using i_id;
    if d.ev_id is null or d.cancels then
        return null;
    end if;
    s := pgq._base_status(q, (d.ev_id, d.ev_time, d.ev_txid, d.ev_owner, d.ev_retry, d.ev_type, d.ev_data, d.ev_extra1, d.ev_extra2,
                              d.ev_extra3, d.ev_extra4, d.ev_lane)::pgq.job_template,
                          case when d.ev_owner is null then 'scheduled' else 'retrying' end);
    s.run_at := d.due;
    if exists (select from pgq.delay_template c where c.ev_queue = q.queue_id and c.ev_id = i_id and c.cancels
               and c.ev_owner is not distinct from d.ev_owner) then
        s.state := 'cancelled';
    end if;
    return s;
end;
$$;
comment on function pgq._delayed_status(pgq.queue, bigint) is 'Status of a job that waits in the delay ring';


create or replace function pgq._dead_status(q pgq.queue, i_id bigint)
returns pgq.job_status language plpgsql as $$
-- Status of a job that was given up, out of its dead letter; else null
declare
    d  pgq.dead_ring;
    s  pgq.job_status;
begin
    select * into d from pgq.dead_ring r
        where r.queue_name = q.queue_name and r.consumer_name = '' and r.ev_id = i_id and r.done = ''
          and not exists (select from pgq.dead_ring g where g.dl_id = r.dl_id and g.done <> '')
        order by r.dl_id desc limit 1;
    if d.dl_id is null then
        return null;
    end if;
    s := pgq._base_status(q, (d.ev_id, d.ev_time, null, null, d.ev_retry, d.ev_type, d.ev_data, d.ev_extra1, d.ev_extra2,
                              null, null, d.ev_lane)::pgq.job_template, 'failed');
    s.error := d.reason;
    s.attempt := d.attempts;
    s.finished_at := d.failed_at;
    return s;
end;
$$;
comment on function pgq._dead_status(pgq.queue, bigint) is 'Status of a job that was given up';


create or replace function pgq._is_ahead_of(q pgq.queue, j pgq.job_template)
returns boolean language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._is_ahead_of(2)
--
--      Is a row of a job ahead of where its lane stands, that is not claimed?
-- ----------------------------------------------------------------------
declare
    c  pgq.claim_ring := pgq._lane_state(q.queue_id, j.ev_lane);
begin
    if pg_visible_in_snapshot(j.ev_txid, (pgq._cursor_tick(q.queue_id, c.base_tick)).tick_snapshot) then
        return false;
    end if;
    return not (pg_visible_in_snapshot(j.ev_txid, (pgq._cursor_tick(q.queue_id, c.top_tick)).tick_snapshot)
                and (c.exhausted or (j.ev_txid, j.ev_id) <= (c.to_txid, c.to_id)));
end;
$$;
comment on function pgq._is_ahead_of(pgq.queue, pgq.job_template) is 'Is a row of a job not claimed yet';


create or replace function pgq._is_ahead(i_queue int4, i_id bigint)
returns boolean language plpgsql as $$
-- Is a job not claimed yet?
declare
    q  pgq.queue;
    j  pgq.job_template;
begin
    select * into q from pgq.queue where queue_id = i_queue;
    select * into j from pgq._job_rows(q, array[i_id]);
    return j.ev_id is not null and pgq._is_ahead_of(q, j);
end;
$$;
comment on function pgq._is_ahead(int4, bigint) is 'Is a job not claimed yet';


create or replace function pgq._claim_with(j pgq.job_template, i_queue int4)
returns pgq.claim_ring language plpgsql set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq._claim_with(2)
--
--      The claim that has a row of a job; null when it has rotated away.
--
--      The first claim of the lane that ends at the row or behind it, nearly always:
--      others end behind it only if the row's transaction was a straggler.
-- ----------------------------------------------------------------------
declare
    c  pgq.claim_ring;
begin
    for attempt in 1 .. 3 loop
        select * into c from pgq.claim_ring
            where queue_id = i_queue and lane = j.ev_lane and ev_ids is not null and (to_txid, to_id) >= (j.ev_txid, j.ev_id)
              and j.ev_id = any (ev_ids)
            order by queue_id, lane, to_txid, to_id limit 1;
        exit when c.claim_id is not null;
    end loop;
    return c;
end;
$$;
comment on function pgq._claim_with(pgq.job_template, int4) is 'The claim that has a row of a job';


create or replace function pgq._claimed_status(q pgq.queue, j pgq.job_template)
returns pgq.job_status language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._claimed_status(2)
--
--      Status of a job that is or was claimed.
-- ----------------------------------------------------------------------
declare
    s     pgq.job_status;
    c     pgq.claim_ring := pgq._claim_with(j, q.queue_id);
    slot  int4;
    f     pgq.claim_ring;
begin
    if c.claim_id is not null then
        select x.slot into slot from pgq._claim_of(c.claim_id) x;
    end if;
    if slot is null then
        return coalesce(pgq._dead_status(q, j.ev_id), pgq._base_status(q, j, 'completed'));
    end if;
    select * into f from pgq._finish_rows(c.claim_id, slot) where ev_id in (0, j.ev_id) order by ev_id desc limit 1;
    s := pgq._base_status(q, j, case when f.outcome is null then 'running'
                                     when f.outcome in ('completed', 'failed', 'cancelled') then f.outcome
                                     when f.outcome = 'lost' then 'failed'
                                     else 'retrying' end);
    if s.state = 'failed' then
        s := coalesce(pgq._dead_status(q, j.ev_id), s);
    end if;
    s.claim_id := c.claim_id;
    s.worker := c.worker;
    s.claimed_at := c.at;
    s.finished_at := f.at;
    s.error := coalesce(s.error, f.error);
    s.cancel_requested := pgq._cancel_asked(c.claim_id, slot, j.ev_id);
    s.progress := (select p.data from pgq.claim_ring p where p.claim_id = c.claim_id and p.ev_id = j.ev_id and p.kind = 'p'
                   order by p.claim_id, p.ev_id, p.kind, p.nth desc limit 1);
    return s;
end;
$$;
comment on function pgq._claimed_status(pgq.queue, pgq.job_template) is 'Status of a job that is or was claimed';


create or replace function pgq._job_status(q pgq.queue, i_id bigint)
returns pgq.job_status language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._job_status(2)
--
--      Status of a job; null when there is no trace of it.
--
--      A job that is put off between the look at the delay ring and that at its claim is
--      in neither: it is looked for again.
-- ----------------------------------------------------------------------
declare
    s  pgq.job_status;
    j  pgq.job_template;
begin
    for attempt in 1 .. 3 loop
        s := pgq._delayed_status(q, i_id);
        if s.id is not null then
            return s;
        end if;
        select * into j from pgq._job_rows(q, array[i_id]);
        if j.ev_id is null then
            return pgq._dead_status(q, i_id);
        end if;
        if pgq._has_tombstone(q.queue_id, i_id) then
            return pgq._base_status(q, j, 'cancelled');
        end if;
        if pgq._is_ahead_of(q, j) then
            return pgq._base_status(q, j, 'pending');
        end if;
        s := pgq._claimed_status(q, j);
        exit when s.state <> 'retrying';
    end loop;
    return s;
end;
$$;
comment on function pgq._job_status(pgq.queue, bigint) is 'Status of a job';


create or replace function pgq.get_job(i_queue_name text, i_job_id bigint)
returns pgq.job_status language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.get_job(2)
--
--      What has become of a job: see the type pgq.job_status.
--
-- Returns:
--      all null when there is no trace of it (any more); a job whose claim has
--      rotated away was completed, unless a dead letter of it is left
-- Errors:
--      PQ001, PQ023, 42501
-- ----------------------------------------------------------------------
declare
    q  pgq.queue := pgq._queue_of_jobs(i_queue_name);
begin
    perform pgq._require_see_jobs(q);
    return pgq._job_status(q, i_job_id);
end;
$$;
comment on function pgq.get_job(text, bigint) is 'What has become of a job: its state and all that is known of it; null when there is no trace.';


create or replace function pgq._require_see_jobs(q pgq.queue)
returns void language plpgsql as $$
-- 42501 unless the caller may enqueue into the queue or work it
begin
    if not has_function_privilege(pgq._caller(), format('pgq.%I(text,text,text,text,text,text)',
                                                        pgq._produce_name(q.queue_id, q.queue_name)), 'execute') then
        perform pgq._require_consume(q.queue_id, '');
    end if;
end;
$$;
comment on function pgq._require_see_jobs(pgq.queue) is 'Refuse a caller who may neither enqueue nor work';


create or replace function pgq.get_result(in i_queue_name text, in i_job_id bigint, out state text, out result jsonb, out error text)
returns record language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.get_result(2)
--
--      State of a job, with its result when it has one (set_result).
--
-- Returns:
--      state   - as get_job(); null: no trace of it
--      result  - JSON null is a result as well; SQL null: there is none (yet)
-- Errors:
--      PQ001, PQ023, 42501
--      PQ025  - the result was kept for its time and is gone
-- ----------------------------------------------------------------------
declare
    q  pgq.queue := pgq._queue_of_jobs(i_queue_name);
    s  pgq.job_status;
    r  pgq.claim_ring;
begin
    perform pgq._require_see_jobs(q);
    s := pgq._job_status(q, i_job_id);
    state := s.state;
    error := s.error;
    if s.claim_id is not null then
        select * into r from pgq.claim_ring c where c.claim_id = s.claim_id and c.ev_id = i_job_id and c.kind = 'r'
            order by c.claim_id, c.ev_id, c.kind, c.nth desc limit 1;
        if r.at <= clock_timestamp() then
            raise exception 'the result of job % was kept until %', i_job_id, r.at
                using errcode = 'PQ025', hint = 'Ask sooner, or keep it longer: result_retention.';
        end if;
        result := r.data;
    end if;
end;
$$;
comment on function pgq.get_result(text, bigint) is 'State and result of a job.';


create or replace function pgq._ids_in(q pgq.queue, i_state text, i_type text, i_before bigint, i_limit int4)
returns setof bigint language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._ids_in(5)
--
--      Jobs that may be in a state, newest first; what each one is says _job_status().
-- ----------------------------------------------------------------------
begin
    if i_state in ('scheduled', 'retrying') then
        return query execute format(
            'select ev_id from (%s) d where not cancels and (ev_owner is null) = $1 and ev_id < $2 and ($3 is null or ev_type = $3)'
            ' and coalesce(ev_owner, 0) = 0 order by ev_id desc limit $4',
            pgq._pending_sql(q.queue_id, pgq._newest_tick(-q.queue_id))) using i_state = 'scheduled', i_before, i_type, i_limit;
    elsif i_state = 'pending' then
        return query execute format(
            'select ev_id from (%s union all %s) j where ev_id < $3 and ($4 is null or ev_type = $4) order by ev_id desc limit $5',
            pgq._pending_jobs_sql('event_' || q.queue_id), pgq._pending_jobs_sql('held_' || q.queue_id))
            using q.queue_id, '{}'::int8[], i_before, i_type, i_limit;
    elsif i_state = 'running' then
        return query select j.ev_id from pgq._job_rows(q, pgq._running_ids(q.queue_id)) j
            where j.ev_id < i_before and (i_type is null or j.ev_type = i_type) order by j.ev_id desc limit i_limit;
    elsif i_state = 'failed' then
        return query select d.ev_id from pgq.dead_letter d where d.queue_name = q.queue_name and d.consumer_name = ''
            and d.ev_id < i_before and (i_type is null or d.ev_type = i_type) order by d.ev_id desc limit i_limit;
    elsif i_state in ('completed', 'cancelled') then
        return query
            select distinct i.id from pgq.claim_ring f
            join pgq.claim_ring c on c.claim_id = f.claim_id and c.ev_id = -1 and c.kind = 'q'
            cross join lateral unnest(case when f.ev_id = 0 then c.ev_ids else array[f.ev_id] end) i(id)
            where f.queue_id = q.queue_id and f.n is not null and f.kind = 'f' and f.outcome = i_state and i.id < i_before
            union
            select t.ev_id from pgq.claim_ring t where i_state = 'cancelled' and t.claim_id = -q.queue_id and t.kind = 't' and t.ev_id < i_before
            order by 1 desc limit i_limit;
    end if;
end;
$$;
comment on function pgq._ids_in(pgq.queue, text, text, bigint, int4) is 'Jobs that may be in a state';


create or replace function pgq._pending_jobs_sql(i_table text)
returns text language plpgsql as $$
-- SELECT of the jobs ahead of their lanes; parameters as of _live_jobs_sql, with no running ones
begin
    return format('select ev_id, ev_type from (%s) j', pgq._live_jobs_sql(i_table));
end;
$$;
comment on function pgq._pending_jobs_sql(text) is 'SELECT of the jobs ahead of their lanes';


create or replace function pgq.jobs(
    i_queue_name text, i_state text default null, i_type text default null,
    i_limit int4 default 100, i_before bigint default null)
returns setof pgq.job_status language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.jobs(5)
--
--      Jobs of a queue, newest first: for looking, filtering and paging; not for
--      counting, see pgq.job_stats.
--
-- Parameters:
--      i_state   - null: all states
--      i_type    - null: all types
--      i_limit   - 1 to 10000
--      i_before  - only jobs with a smaller id: the last one of the page before
-- Errors:
--      PQ001, PQ006, PQ023, 42501
-- ----------------------------------------------------------------------
declare
    q       pgq.queue := pgq._queue_of_jobs(i_queue_name);
    states  text[] := '{scheduled,pending,running,retrying,completed,failed,cancelled}';
begin
    perform pgq._require_see_jobs(q);
    if (i_limit between 1 and 10000 and coalesce(i_state, 'pending') = any (states)) is not true then
        raise exception 'cannot list % jobs that are %', i_limit, quote_nullable(i_state)
            using errcode = 'PQ006', hint = 'Limit: 1 to 10000. States: scheduled, pending, running, retrying, completed, failed, cancelled.';
    end if;
    return query
        select j.* from (
            select distinct ids.id from unnest(states) state
            cross join lateral pgq._ids_in(q, state, i_type, coalesce(i_before, 9223372036854775807), i_limit) ids(id)
            where i_state is null or state = i_state) w
        cross join lateral pgq._job_status(q, w.id) j
        where (i_state is null or j.state = i_state) and (i_type is null or j.type = i_type)
        order by j.id desc limit i_limit;
end;
$$;
comment on function pgq.jobs(text, text, text, int4, bigint) is
'Jobs of a queue, newest first, by state and type, in pages.';
