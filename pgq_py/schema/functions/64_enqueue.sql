-- Enqueueing jobs.

create or replace function pgq._check_options(i_options jsonb)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._check_options(1)
--
--      Check the options of a job.
-- Errors:
--      PQ006  - not an object, an unknown name, or a value it cannot have
-- ----------------------------------------------------------------------
declare
    name   text;
    value  jsonb;
    fine   boolean;
begin
    if i_options is null or i_options = '{}' then
        return;
    end if;
    if jsonb_typeof(i_options) <> 'object' then
        raise exception 'options of a job must be a JSON object' using errcode = 'PQ006';
    end if;
    for name, value in select * from jsonb_each(i_options) loop
        fine := case name
               when 'max_attempts' then jsonb_typeof(value) = 'number' and value::numeric between 1 and 1000000
                                        and value::numeric = trunc(value::numeric)
               when 'timeout' then jsonb_typeof(value) = 'number' and value::numeric > 0 and value::numeric <= 31536000
               when 'tags' then jsonb_typeof(value) = 'array' and jsonb_array_length(value) <= 100
                                and not jsonb_path_exists(value, '$[*] ? (@.type() != "string")')
               when 'traceparent' then jsonb_typeof(value) = 'string' and length(value #>> '{}') <= 200
               when 'result_retention' then jsonb_typeof(value) = 'number' and value::numeric >= 0 and value::numeric <= 31536000
               when 'meta' then true
               else false end;
        if fine is not true then
            raise exception 'option % of a job cannot be %', quote_literal(name), value
                using errcode = 'PQ006',
                      hint = 'Options: max_attempts (1 to 1000000), timeout (seconds), tags (at most 100 strings),'
                             ' traceparent (string), result_retention (seconds), meta (anything of yours).';
        end if;
    end loop;
end;
$$;
comment on function pgq._check_options(jsonb) is 'Check the options of a job';


create or replace function pgq._options_text(i_options jsonb)
returns text language sql immutable as $$
    select nullif(i_options, '{}')::text
$$;
comment on function pgq._options_text(jsonb) is 'Options of a job as they are stored: null for none';


create or replace function pgq._options(i_text text)
returns jsonb language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._options(1)
--
--      Options of a job as they were stored. Of an event that was put in by
--      insert_event(), with an ev_extra1 of its own: none.
-- ----------------------------------------------------------------------
begin
    if i_text is null or left(i_text, 1) <> '{' then
        return '{}';
    end if;
    return i_text::jsonb;
exception
    when data_exception then
        return '{}';
end;
$$;
comment on function pgq._options(text) is 'Options of a job as they were stored';


create or replace function pgq.enqueue(
    queue text, type text, payload jsonb default '{}', priority int4 default null, run_at timestamptz default null,
    key text default null, key_window interval default null, options jsonb default null,
    out id bigint, out created boolean)
returns record language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq.enqueue(8)
--
--      Enqueue a job, in the caller's transaction, at any isolation level.
--
--      SECURITY INVOKER, as insert_event(): the right to enqueue is EXECUTE on the
--      queue's own function. Only what is more than type and payload takes the longer way.
--
-- Parameters:
--      queue       - a job queue
--      type        - kind of job, 1 to 200 characters
--      payload     - arguments, any JSON
--      priority    - null: 100; an undeclared one counts as the next lower, else the lowest
--      run_at      - not before; by the database's clock; in the past: now
--      key         - idempotency key: while a job with it is active (waiting, running, to be
--                    retried), no second one is enqueued
--      key_window  - the key is taken for so long instead, whatever becomes of the job
--      options     - max_attempts, timeout (seconds), tags, traceparent, result_retention
--                    (seconds), meta
-- Returns:
--      id       - of the job, or of the one that has the key
--      created  - false: another one has the key
-- Errors:
--      PQ001, PQ005 the queue refuses inserts, PQ006, PQ023, 40001, 42501
-- ----------------------------------------------------------------------
declare
    nr  int4;
begin
    if length($2) between 1 and 200 and $3 is not null and coalesce($6, $5::text, $7::text, $8::text) is null then
        select j.queue_id into nr from pgq.queue q join pgq.job_queue j using (queue_id) where q.queue_name = $1;
        if nr is not null then
            execute 'select pgq.enqueue_' || nr || '_' || left(md5($1), 8) || '($1, $2, $3, null), true'
                into id, created using $2, $3::text, $4;
            return;
        end if;
    end if;
    select e.id, e.created into id, created from pgq.enqueue_with($1, $2, $3, $4, $5, $6, $7, $8) e;
end;
$$;
comment on function pgq.enqueue(text, text, jsonb, int4, timestamptz, text, interval, jsonb) is
'Enqueue a job. Returns its id and whether it was created: false when another active job has the same key.';


create or replace function pgq.enqueue_with(
    queue text, type text, payload jsonb, priority int4, run_at timestamptz, key text, key_window interval, options jsonb,
    out id bigint, out created boolean)
returns record language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.enqueue_with(8)
--
--      The longer way of enqueue(8), for jobs with a time, a key or options; and for
--      whatever is to be refused.
-- ----------------------------------------------------------------------
declare
    q      pgq.queue := pgq._queue_of_jobs($1);
    now_   timestamptz := pgq._clock();
    later  boolean := coalesce($5 > now_, false);
begin
    perform pgq._require_produce(q);
    perform pgq._check_job($2, $3, $6, $7);
    perform pgq._check_options($8);
    created := true;
    if $6 is null and not later then
        execute 'select pgq.' || pgq._job_function('enqueue', q) || '($1, $2, $3, $4)'
            into id using $2, $3::text, $4, pgq._options_text($8);
        return;
    end if;
    if q.queue_disable_insert then
        perform pgq._refuse_disabled('Insert into queue disallowed');
    end if;
    if later then
        perform pgq._check_due($5);
    end if;
    id := nextval(q.queue_event_seq::regclass);
    if $6 is not null then
        id := (pgq._take_keys(array['queue:' || q.queue_id], array[$6], array[id], array[now_ + $7]))[1];
        created := id = currval(q.queue_event_seq::regclass);
        if not created then
            return;
        end if;
    end if;
    perform pgq._count_in_tx(q.queue_id, 1) where q.queue_per_tx_limit is not null;
    perform pgq._append_jobs(q, case when later then $5 end, null, array[(id, now(), null, null, null, $2, $3::text,
        pgq._options_text($8), case when $7 is null then $6 end, null, null, pgq._lane_of(q, $4))::pgq.job_template]);
end;
$$;
comment on function pgq.enqueue_with(text, text, jsonb, int4, timestamptz, text, interval, jsonb) is
'What enqueue() does for a job with a time, a key or options.';


create or replace function pgq._check_job(i_type text, i_payload jsonb, i_key text, i_window interval)
returns void language plpgsql as $$
-- PQ006 unless type, payload, key and window are what a job can have
begin
    if i_type is null or length(i_type) not between 1 and 200 then
        raise exception 'invalid job type: %', coalesce(quote_literal(left(i_type, 60)), 'NULL')
            using errcode = 'PQ006', hint = 'A type has 1 to 200 characters.';
    end if;
    if i_payload is null then
        raise exception 'the payload of a job cannot be NULL'
            using errcode = 'PQ006', hint = 'JSON null is fine: ''null''::jsonb.';
    end if;
    perform pgq._check_key(i_key);
    if i_window is not null and (i_key is null or i_window <= interval '0' or i_window > interval '10 years') then
        raise exception 'key_window cannot be %', i_window
            using errcode = 'PQ006', hint = 'It needs a key, and is more than 0 and at most 10 years.';
    end if;
end;
$$;
comment on function pgq._check_job(text, jsonb, text, interval) is 'Check what makes a job';


create or replace function pgq._lane_of(q pgq.queue, i_priority int4)
returns int2 language plpgsql as $$
-- The lane of a priority: the next lower one that is declared, else the lowest
begin
    return coalesce(
        (select max(lane) from pgq.lane where queue_id = q.queue_id and lane > 0 and lane <= coalesce(i_priority, 100)),
        (select min(lane) from pgq.lane where queue_id = q.queue_id and lane > 0));
end;
$$;
comment on function pgq._lane_of(pgq.queue, int4) is 'Lane of a priority';


create or replace function pgq._append_jobs(q pgq.queue, i_due timestamptz, i_dues timestamptz[], j pgq.job_template[])
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._append_jobs(4)
--
--      Append jobs, new ones or again: to the log, or for later to the delay ring.
--
-- Parameters:
--      i_due   - when, for all; null: see i_dues
--      i_dues  - when, for each; null, or a null element: now
--      j       - the jobs, in the order in which they are to run; their ev_txid is ours
-- ----------------------------------------------------------------------
declare
    moved  bigint;
begin
    if q.queue_disable_insert then
        perform pgq._refuse_disabled('Insert into queue disallowed');
    end if;
    if i_due is null then
        execute format('insert into pgq.%I (ev_id, ev_time, ev_owner, ev_retry, ev_type, ev_data, ev_extra1, ev_extra2, ev_lane)'
                       ' select ev_id, ev_time, ev_owner, ev_retry, ev_type, ev_data, ev_extra1, ev_extra2, ev_lane'
                       ' from unnest($1) with ordinality j where ($2)[ordinality] is null order by ordinality', pgq._current_slot(q))
            using j, i_dues;
        get diagnostics moved = row_count;
        if moved > 0 then
            perform pgq._wake(q.queue_id);
        end if;
    end if;
    if i_due is not null or i_dues is not null then
        execute format('insert into pgq.%I (due, ev_queue, ev_id, ev_time, ev_owner, ev_retry, ev_type, ev_data, ev_extra1, ev_extra2, ev_lane)'
                       ' select coalesce($3, ($2)[ordinality]), $4, ev_id, ev_time, ev_owner, ev_retry, ev_type, ev_data, ev_extra1, ev_extra2, ev_lane'
                       ' from unnest($1) with ordinality j where coalesce($3, ($2)[ordinality]) is not null order by ordinality',
                       pgq._delay_slot(q.queue_id))
            using j, i_dues, i_due, q.queue_id;
        get diagnostics moved = row_count;
        if moved > 0 then
            perform pgq._wake(q.queue_id, true);
        end if;
    end if;
end;
$$;
comment on function pgq._append_jobs(pgq.queue, timestamptz, timestamptz[], pgq.job_template[]) is 'Append jobs to the log or the delay ring';


create or replace function pgq.enqueue_many(queue text, jobs jsonb, out id bigint, out created boolean)
returns setof record language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.enqueue_many(2)
--
--      Enqueue many jobs in one statement, all or none. A key that is taken, by an
--      active job or earlier in the same call, gives that job's id, row by row.
--
-- Parameters:
--      queue  - a job queue
--      jobs   - an array of objects: type, and as of enqueue(): payload, priority, run_at,
--               key, key_window, options
-- Returns:
--      id, created as of enqueue(), one row per job in the order given
-- Errors:
--      PQ001, PQ005, PQ006, PQ023, 40001, 42501
-- ----------------------------------------------------------------------
declare
    q     pgq.queue := pgq._queue_of_jobs($1);
    now_  timestamptz := pgq._clock();
    j     pgq.job_template[];
    due   timestamptz[];
    keys  text[];
    till  timestamptz[];
    ids   int8[];
    made  boolean[];
begin
    perform pgq._require_produce(q);
    if jsonb_typeof($2) is distinct from 'array' then
        raise exception 'jobs must be a JSON array of objects' using errcode = 'PQ006';
    end if;
    if jsonb_array_length($2) = 0 then
        return;
    end if;
    perform pgq._check_jobs($2);
    select array_agg((n.ev_id, now(), null, null, null, w.type, coalesce(w.payload, '{}')::text, pgq._options_text(w.options),
                      case when w.key_window is null then w.key end, null, null, pgq._lane_of(q, w.priority))::pgq.job_template
                     order by w.nth),
           array_agg(case when w.run_at > now_ then w.run_at end order by w.nth), array_agg(w.key order by w.nth),
           array_agg(case when w.key_window is not null then now_ + w.key_window end order by w.nth), array_agg(n.ev_id order by w.nth)
        into j, due, keys, till, ids
        from (select w.*, row_number() over () as nth
              from jsonb_to_recordset($2) w(type text, payload jsonb, priority int4, run_at timestamptz, key text,
                                            key_window interval, options jsonb)) w
        cross join lateral (select w.nth, nextval(q.queue_event_seq::regclass) as ev_id) n;
    made := array_fill(true, array[cardinality(ids)]);
    if cardinality(array_remove(keys, null)) > 0 then
        select array_agg(coalesce(h.holder, i.id) order by i.nth), array_agg(coalesce(h.holder = i.id, true) order by i.nth)
            into ids, made
            from unnest(ids) with ordinality i(id, nth)
            left join (select unnest(array_agg(k.nth order by k.nth)) as nth, unnest(pgq._take_keys(
                           array_agg('queue:' || q.queue_id order by k.nth), array_agg(k.key order by k.nth),
                           array_agg(ids[k.nth] order by k.nth), array_agg(till[k.nth] order by k.nth))) as holder
                       from unnest(keys) with ordinality k(key, nth) where k.key is not null) h using (nth);
    end if;
    perform pgq._count_in_tx(q.queue_id, (select count(*) from unnest(made) m where m)) where q.queue_per_tx_limit is not null;
    perform pgq._append_jobs(q, null, array(select due[nth] from unnest(made) with ordinality m(made, nth) where m.made order by nth),
                             array(select j[nth] from unnest(made) with ordinality m(made, nth) where m.made order by nth));
    return query select * from unnest(ids, made);
end;
$$;
comment on function pgq.enqueue_many(text, jsonb) is
'Enqueue many jobs: an array of {type, payload, priority, run_at, key, key_window, options}. Returns id and created of each, in order.';


create or replace function pgq._check_jobs(i_jobs jsonb)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._check_jobs(1)
--
--      Check the jobs of enqueue_many(). Set-based: what is common is looked at once.
-- Errors:
--      PQ006  - names the first bad one, counted from 1
-- ----------------------------------------------------------------------
declare
    bad  record;
begin
    select nth, name into bad
        from jsonb_array_elements(i_jobs) with ordinality w(job, nth)
        left join lateral jsonb_object_keys(case when jsonb_typeof(job) = 'object' then job else '{}' end) name
            on name not in ('type', 'payload', 'priority', 'run_at', 'key', 'key_window', 'options')
        where jsonb_typeof(job) <> 'object' or name is not null limit 1;
    if bad is not null then
        raise exception 'job %: %', bad.nth, coalesce('unknown field ' || quote_literal(bad.name), 'not an object')
            using errcode = 'PQ006', hint = 'Fields: type, payload, priority, run_at, key, key_window, options.';
    end if;
    perform pgq._check_options(o) from (
        select distinct job -> 'options' as o from jsonb_array_elements(i_jobs) job
        where jsonb_typeof(job -> 'options') is distinct from 'null') options where o is not null;
    perform pgq._check_job(w.type, coalesce(w.payload, '{}'), w.key, w.key_window)
        from jsonb_to_recordset(i_jobs) w(type text, payload jsonb, key text, key_window interval)
        where w.type is null or length(w.type) not between 1 and 200 or w.key is not null or w.key_window is not null;
    perform pgq._check_due(w.run_at) from jsonb_to_recordset(i_jobs) w(run_at timestamptz, priority int4)
        where w.run_at is not null and not (w.run_at > '-infinity' and w.run_at < pgq._clock() + interval '10 years');
exception
    when data_exception then
        raise exception 'jobs cannot be read: %', sqlerrm
            using errcode = 'PQ006', hint = 'priority is a number, run_at a time, key_window an interval, options an object.';
end;
$$;
comment on function pgq._check_jobs(jsonb) is 'Check the jobs of enqueue_many()';
