-- Retries: events of a batch that are to come again, to the consumer that failed, later.
-- A retry keeps its ev_id, counts in ev_retry, and has the registration as ev_owner.

create or replace function pgq._batch_events(c pgq.cursor_ring, i_ids bigint[])
returns table (ev_id bigint, ev_time timestamptz, ev_retry int4, ev_type text, ev_data text,
               ev_extra1 text, ev_extra2 text, ev_extra3 text, ev_extra4 text)
language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._batch_events(2)
--
--      Unacknowledged events of an open batch with these ids, or all (null).
--      After a seek back, an event and a retry of it can be in one batch: the
--      latest counts.
-- ----------------------------------------------------------------------
declare
    q  pgq.queue;
begin
    select * into q from pgq.queue
        where queue_id = (select sub_queue from pgq.registration where sub_id = c.sub_id);
    return query execute format(
        'select distinct on (ev_id) ev_id, ev_time, ev_retry, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4'
        ' from (%s) e where $1 is null or ev_id = any ($1) order by ev_id, ev_retry desc nulls last',
        pgq._window_sql(q, pgq._owner(c.sub_id), pgq._cursor_tick(q.queue_id, c.last_tick),
                        pgq._cursor_tick(q.queue_id, c.next_tick), c.acked))
        using i_ids;
end;
$$;
comment on function pgq._batch_events(pgq.cursor_ring, bigint[]) is 'Unacknowledged events of an open batch';


create or replace function pgq._lock_batch(i_batch bigint, i_message text)
returns pgq.cursor_ring language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._lock_batch(2)
--
--      Lock the registration of an open batch and return its state.
-- Errors:
--      PQ003 not open, 42501
-- ----------------------------------------------------------------------
declare
    r  pgq.registration := pgq._batch_registration(i_batch);
    c  pgq.cursor_ring;
begin
    if r.sub_id is not null then
        perform pgq._require_consume_as(r);
        if pgq._lock_registration(r.sub_id) then
            c := pgq._cursor(r.sub_id);
        end if;
    end if;
    if (c.batch_id = i_batch) is not true then
        raise exception '%', i_message
            using errcode = 'PQ003', hint = 'It was finished, or its consumer was moved; nothing was changed.';
    end if;
    return c;
end;
$$;
comment on function pgq._lock_batch(bigint, text) is 'Lock the registration of an open batch';


create or replace function pgq._waiting_retries(i_queue int4, i_sub int4, i_ids bigint[])
returns setof bigint language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._waiting_retries(3)
--
--      Which of these events wait for a retry of this registration already.
--      The caller has locked the registration.
--
--      Two statements: the first waits for an evacuation that is under way
--      and, with its locks, keeps the next one out; what the second finds
--      missing is not there.
-- ----------------------------------------------------------------------
declare
    m  pgq.tick_ring;
begin
    execute format('select from pgq.%I limit 0', 'delay_' || i_queue);
    m := pgq._newest_tick(-i_queue);
    return query execute format('select ev_id from (%s) d where ev_owner = $1 and ev_id = any ($2) and not cancels',
                                pgq._pending_sql(i_queue, m))
        using i_sub, i_ids;
end;
$$;
comment on function pgq._waiting_retries(int4, int4, bigint[]) is 'Which events wait for a retry already';


create or replace function pgq._delay_retries(c pgq.cursor_ring, i_ids bigint[], i_due timestamptz[])
returns bigint language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._delay_retries(3)
--
--      Put events of an open batch into the delay ring, in one statement.
--
-- Parameters:
--      c      - state of the locked registration
--      i_ids  - events of the batch; those that wait already are passed over
--      i_due  - when each is to come again
-- Returns:
--      number of events put
-- ----------------------------------------------------------------------
declare
    nr     int4 := (select sub_queue from pgq.registration where sub_id = c.sub_id);
    moved  bigint;
begin
    execute format($q$
        insert into pgq.%I (due, ev_queue, ev_id, ev_time, ev_owner, ev_retry, ev_type, ev_data,
                            ev_extra1, ev_extra2, ev_extra3, ev_extra4)
        select w.due, $4, e.ev_id, e.ev_time, $5, coalesce(e.ev_retry, 0) + 1, e.ev_type, e.ev_data,
               e.ev_extra1, e.ev_extra2, e.ev_extra3, e.ev_extra4
        from pgq._batch_events($1, $2) e join unnest($2, $3) w(ev_id, due) using (ev_id)
        where ev_id <> all (array(select pgq._waiting_retries($4, $5, $2))) $q$, pgq._delay_slot(nr))
        using c, i_ids, i_due, nr, pgq._owner(c.sub_id);
    get diagnostics moved = row_count;
    if moved > 0 then
        perform pgq._wake(nr, true);
    end if;
    return moved;
end;
$$;
comment on function pgq._delay_retries(pgq.cursor_ring, bigint[], timestamptz[]) is 'Put events of a batch into the delay ring';


create or replace function pgq.event_retry(x_batch_id bigint, x_event_id bigint, x_retry_time timestamptz)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.event_retry(3) with a time
--
--      Let an event of a batch come again at a time, to the same consumer.
--      Without a limit to the number of retries; see nack() for policies.
--
-- Returns:
--      1, or 0 when it waits for a retry already
-- Errors:
--      PQ003 no such open batch, PQ006 not an event of it, PQ007, 42501
-- ----------------------------------------------------------------------
declare
    c  pgq.cursor_ring;
begin
    perform pgq._require_read_committed('event_retry');
    c := pgq._lock_batch(x_batch_id, 'batch not found');
    if not exists (select from pgq._batch_events(c, array[x_event_id])) then
        raise exception 'event not found'
            using errcode = 'PQ006', detail = format('event: %s', coalesce(x_event_id::text, 'NULL')),
                  hint = 'Give the id of an event of the batch that is not acknowledged yet.';
    end if;
    return pgq._delay_retries(c, array[x_event_id], array[coalesce(x_retry_time, pgq._clock())]);
end;
$$;
comment on function pgq.event_retry(bigint, bigint, timestamptz) is
'Let an event of a batch come again at a time. Returns 1, or 0 when it waits already.';


create or replace function pgq.event_retry(x_batch_id bigint, x_event_id bigint, x_retry_seconds integer)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- as event_retry(3) with a time, so many seconds from now
begin
    return pgq.event_retry(x_batch_id, x_event_id, pgq._clock() + make_interval(secs => x_retry_seconds));
end;
$$;
comment on function pgq.event_retry(bigint, bigint, integer) is
'Let an event of a batch come again after so many seconds. Returns 1, or 0 when it waits already.';


create or replace function pgq.batch_retry(i_batch_id bigint, i_retry_seconds integer)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.batch_retry(2)
--
--      Let all unacknowledged events of a batch come again.
--
-- Returns:
--      number of events; those that wait already do not count
-- Errors:
--      PQ003, PQ007, 42501
-- ----------------------------------------------------------------------
declare
    c    pgq.cursor_ring;
    ids  bigint[];
begin
    perform pgq._require_read_committed('batch_retry');
    c := pgq._lock_batch(i_batch_id, format('batch_retry: batch %s not found', i_batch_id));
    ids := array(select ev_id from pgq._batch_events(c, null));
    return pgq._delay_retries(c, ids, array_fill(pgq._clock() + make_interval(secs => i_retry_seconds), array[cardinality(ids)]));
end;
$$;
comment on function pgq.batch_retry(bigint, integer) is
'Let all unacknowledged events of a batch come again after so many seconds. Returns how many.';


create or replace function pgq.event_retry_raw(
    x_queue text, x_consumer text, x_retry_after timestamptz, x_ev_id bigint, x_ev_time timestamptz, x_ev_retry integer,
    x_ev_type text, x_ev_data text, x_ev_extra1 text, x_ev_extra2 text, x_ev_extra3 text, x_ev_extra4 text)
returns bigint language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.event_retry_raw(12)
--
--      Put an event with given columns into a consumer's retries: for
--      replication and repair.
--
-- Parameters:
--      x_ev_id  - null: the next one
-- Returns:
--      id of the event
-- Errors:
--      PQ001, PQ002
-- ----------------------------------------------------------------------
declare
    r   pgq.registration;
    q   pgq.queue;
    id  bigint := x_ev_id;
begin
    select * into q from pgq.queue where queue_name = x_queue;
    select s.* into r from pgq.registration s join pgq.consumer on co_id = sub_consumer
        where sub_queue = q.queue_id and co_name = x_consumer;
    if r.sub_id is null then
        raise exception 'consumer not registered'
            using errcode = case when q.queue_id is null then 'PQ001' else 'PQ002' end,
                  detail = format('queue: %s, consumer: %s', x_queue, x_consumer),
                  hint = 'See pgq.get_consumer_info() for those that are.';
    end if;
    id := coalesce(id, nextval(q.queue_event_seq::regclass));
    execute format('insert into pgq.%I (due, ev_queue, ev_id, ev_time, ev_owner, ev_retry, ev_type, ev_data,'
                   ' ev_extra1, ev_extra2, ev_extra3, ev_extra4) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)',
                   pgq._delay_slot(q.queue_id))
        using coalesce(x_retry_after, pgq._clock()), q.queue_id, id, coalesce(x_ev_time, now()), pgq._owner(r.sub_id), x_ev_retry,
              x_ev_type, x_ev_data, x_ev_extra1, x_ev_extra2, x_ev_extra3, x_ev_extra4;
    perform pgq._wake(q.queue_id, true);
    return id;
end;
$$;
comment on function pgq.event_retry_raw(text, text, timestamptz, bigint, timestamptz, integer, text, text, text, text, text, text) is
'Put an event with given columns into a consumer''s retries: for replication and repair. Returns its id.';
