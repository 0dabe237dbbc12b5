-- nack: failed events, by policy: again later, or given up.

create or replace function pgq._retry_policy(i_queue int4, i_consumer_name text)
returns pgq.retry_policy language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._retry_policy(2)
--
--      The policy of a consumer: its own, else its queue's, else the default
--      (5 retries after 5, 10, 20, 40, 80 seconds, give or take a tenth).
-- ----------------------------------------------------------------------
declare
    p  pgq.retry_policy;
begin
    select * into p from pgq.retry_policy
        where queue_id = i_queue and consumer_name in (i_consumer_name, '')
        order by consumer_name desc limit 1;
    if not found then
        p := (i_queue, '', 5, 'exponential', interval '5 seconds', interval '1 hour', 0.1, null)::pgq.retry_policy;
    end if;
    return p;
end;
$$;
comment on function pgq._retry_policy(int4, text) is 'Retry policy of a consumer';


create or replace function pgq._retry_delay(p pgq.retry_policy, i_retry int4)
returns interval language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._retry_delay(2)
--
--      How long to wait before the i_retry-th retry (from 1), with jitter.
-- ----------------------------------------------------------------------
declare
    delay  interval;
begin
    delay := case p.kind
        when 'list' then p.delays[least(i_retry, cardinality(p.delays))]
        when 'fixed' then p.base
        else least(p.base * power(2.0, least(i_retry - 1, 60)), p.cap) end;
    return delay * (1 + p.jitter * (2 * random() - 1));
exception
    when datetime_field_overflow or interval_field_overflow or numeric_value_out_of_range then
        return p.cap;
end;
$$;
comment on function pgq._retry_delay(pgq.retry_policy, int4) is 'How long to wait before a retry';


create or replace function pgq.set_retry_policy(
    i_queue_name text, i_consumer_name text default null, i_max_retries int4 default 5, i_kind text default 'exponential',
    i_base interval default interval '5 seconds', i_cap interval default interval '1 hour',
    i_jitter float8 default 0.1, i_delays interval[] default null)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.set_retry_policy(8)
--
--      Set the retry policy of a queue, or of one consumer on it.
--
-- Parameters:
--      i_consumer_name  - null: of all consumers that have none of their own
--      i_max_retries    - after so many an event is a dead letter; 0: at once
--      i_kind           - fixed: base. exponential: base, 2 base, 4 base .. cap. list: delays
--      i_jitter         - part by which a delay may be longer or shorter, 0 to 1
--      i_delays         - for list: one per retry, the last goes on
-- Returns:
--      1
-- Errors:
--      PQ001, PQ006 a value that is not allowed
-- ----------------------------------------------------------------------
declare
    q  pgq.queue := pgq._queue(i_queue_name);
begin
    insert into pgq.retry_policy values
        (q.queue_id, coalesce(i_consumer_name, ''), i_max_retries, i_kind, i_base, greatest(i_cap, i_base), i_jitter, i_delays)
        on conflict (queue_id, consumer_name) do update
        set max_retries = excluded.max_retries, kind = excluded.kind, base = excluded.base,
            cap = excluded.cap, jitter = excluded.jitter, delays = excluded.delays;
    return 1;
exception
    when check_violation or not_null_violation then
        raise exception 'not a possible retry policy' using errcode = 'PQ006', detail = sqlerrm,
            hint = 'max_retries 0 to 1000000; kind fixed, exponential or list; base and cap 0 to 1 year; jitter 0 to 1; 1 to 100 delays.';
end;
$$;
comment on function pgq.set_retry_policy(text, text, int4, text, interval, interval, float8, interval[]) is
'Set the retry policy of a queue, or of one consumer on it. Returns 1.';


create or replace function pgq.nack(
    in i_queue_name text, in i_consumer_name text, in i_batch_id bigint, in i_ev_ids bigint[],
    in i_reason text default null, in i_retry_in interval default null, in i_dead boolean default false,
    out retried int4, out dead int4)
language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.nack(7)
--
--      Say of events of the consumer's open batch that they failed. Each comes
--      again later, or becomes a dead letter when its retries are used up.
--      The batch is to be finished or acknowledged as usual, in the same
--      transaction for all or nothing.
--
--      One call for any number of events; the time grows with their number
--      alone.
-- Parameters:
--      i_ev_ids    - events of the batch that are not acknowledged yet
--      i_reason    - why, kept with dead letters; cut to 8 kB
--      i_retry_in  - null: as the policy says
--      i_dead      - give them up, whatever the policy says
-- Returns:
--      how many will come again and how many are dead letters; an event of
--      which it was said before in this batch counts in neither
-- Errors:
--      PQ001, PQ002, PQ003 not this consumer's open batch, PQ007, 42501
--      PQ006  - an id that is not in the batch; nothing was done
-- Tables touched:
--      pgq.registration (locked), the delay ring and the dead ring (insert)
-- ----------------------------------------------------------------------
declare
    r        pgq.registration;
    c        pgq.cursor_ring;
    p        pgq.retry_policy;
    again    bigint[];
    gone     bigint[];
    retries  int4[];
    unknown  bigint[];
begin
    perform pgq._require_read_committed('nack');
    r := pgq._registration(i_queue_name, i_consumer_name);
    c := pgq._lock_batch(i_batch_id, format('batch %s is not open for %s/%s', i_batch_id, i_queue_name, i_consumer_name));
    if c.sub_id <> r.sub_id then
        raise exception 'batch % is not open for %/%', i_batch_id, i_queue_name, i_consumer_name using errcode = 'PQ003';
    end if;
    p := pgq._retry_policy(r.sub_queue, pgq._main_consumer(r));

    select array_agg(ev_id order by ev_id) filter (where not doomed), array_agg(coalesce(ev_retry, 0) + 1 order by ev_id) filter (where not doomed),
           array_agg(ev_id order by ev_id) filter (where doomed)
        into again, retries, gone
        from (select ev_id, ev_retry, i_dead or coalesce(ev_retry, 0) >= p.max_retries as doomed
              from pgq._batch_events(c, i_ev_ids)) e;
    unknown := array(select unnest(i_ev_ids) except select unnest(again) except select unnest(gone) order by 1);
    if cardinality(unknown) > 0 or i_ev_ids is null then
        raise exception 'event not found in batch %: %', i_batch_id, coalesce(unknown[1]::text, 'NULL')
            using errcode = 'PQ006', detail = format('%s of the ids are not in the batch, or are acknowledged already.', cardinality(unknown)),
                  hint = 'Nothing was changed. Give ids of unacknowledged events of this batch.';
    end if;
    retried := pgq._delay_retries(c, coalesce(again, '{}'), array(
        select pgq._clock() + coalesce(i_retry_in, pgq._retry_delay(p, n)) from unnest(retries) with ordinality u(n, nth) order by nth));
    dead := pgq._bury(c, coalesce(gone, '{}'), i_queue_name, pgq._main_consumer(r), i_reason);
end;
$$;
comment on function pgq.nack(text, text, bigint, bigint[], text, interval, boolean) is
'Say of events of an open batch that they failed: each comes again later, or becomes a dead letter.';
