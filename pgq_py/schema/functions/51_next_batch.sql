-- Taking and finishing batches.

create or replace function pgq._next_batch(
    in i_queue_name text, in i_consumer_name text, in i_max_events bigint,
    in i_min_lag interval, in i_min_count bigint, in i_min_interval interval,
    out batch_id bigint, out cur_tick_id bigint, out prev_tick_id bigint,
    out cur_tick_time timestamptz, out prev_tick_time timestamptz,
    out cur_tick_event_seq bigint, out prev_tick_event_seq bigint, out acked_ev_id bigint)
language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._next_batch(6)
--
--      The registration's open batch, or else a new one; all null when there
--      is nothing. See _choose_tick for the parameters.
--
--      A poll that finds nothing takes no lock and writes nothing.
-- ----------------------------------------------------------------------
declare
    r     pgq.registration := pgq._registration(i_queue_name, i_consumer_name);
    c     pgq.cursor_ring := pgq._cursor(r.sub_id);
    prev  pgq.tick_ring;
    cur   pgq.tick_ring;
begin
    if c.batch_id is null and (pgq._newest_tick(r.sub_queue)).tick_id = c.last_tick then
        return;
    end if;
    r := pgq._locked_registration(i_queue_name, i_consumer_name);
    c := pgq._cursor(r.sub_id);
    prev := pgq._cursor_tick(r.sub_queue, c.last_tick);
    if c.batch_id is not null then
        cur := pgq._cursor_tick(r.sub_queue, c.next_tick);
        if c.handed is not null then
            -- receive() had handed out a part of it; now all of it is handed out
            c.handed := null;
            perform pgq._move_cursor(c);
        end if;
    else
        cur := pgq._choose_tick(r.sub_queue, prev, i_max_events, i_min_lag, i_min_count, i_min_interval);
        if cur.tick_id is null then
            return;
        end if;
        c.next_tick := cur.tick_id;
        c.batch_id := nextval('pgq.batch_id_seq');
        perform pgq._move_cursor(c);
    end if;
    batch_id := c.batch_id;
    acked_ev_id := c.acked;
    cur_tick_id := cur.tick_id;
    cur_tick_time := cur.tick_time;
    cur_tick_event_seq := cur.tick_event_seq;
    prev_tick_id := prev.tick_id;
    prev_tick_time := prev.tick_time;
    prev_tick_event_seq := prev.tick_event_seq;
end;
$$;
comment on function pgq._next_batch(text, text, bigint, interval, bigint, interval) is 'The open batch of a registration, or a new one';


create or replace function pgq.next_batch_custom(
    in i_queue_name text, in i_consumer_name text,
    in i_min_lag interval, in i_min_count int4, in i_min_interval interval,
    out batch_id bigint, out cur_tick_id bigint, out prev_tick_id bigint,
    out cur_tick_time timestamptz, out prev_tick_time timestamptz,
    out cur_tick_event_seq bigint, out prev_tick_event_seq bigint)
language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.next_batch_custom(5)
--
--      Take the next batch, or get the open one again.
--
-- Parameters:
--      i_min_lag       - only events at least this old
--      i_min_count     - at least about this many events
--      i_min_interval  - or covering at least this much time
-- Returns:
--      batch_id null when there is nothing (yet)
-- Errors:
--      PQ001, PQ002, PQ007
-- Tables touched:
--      pgq.registration (locked), pgq.cursor_ring (insert)
-- ----------------------------------------------------------------------
begin
    perform pgq._require_read_committed('next_batch');
    select b.batch_id, b.cur_tick_id, b.prev_tick_id, b.cur_tick_time, b.prev_tick_time,
           b.cur_tick_event_seq, b.prev_tick_event_seq
        into batch_id, cur_tick_id, prev_tick_id, cur_tick_time, prev_tick_time,
             cur_tick_event_seq, prev_tick_event_seq
        from pgq._next_batch(i_queue_name, i_consumer_name, null, i_min_lag, i_min_count, i_min_interval) b;
end;
$$;
comment on function pgq.next_batch_custom(text, text, interval, int4, interval) is
'Take the next batch with a least age, size or span of time, or get the open one again. batch_id is null when there is nothing.';


create or replace function pgq.next_batch_info(
    in i_queue_name text, in i_consumer_name text,
    out batch_id bigint, out cur_tick_id bigint, out prev_tick_id bigint,
    out cur_tick_time timestamptz, out prev_tick_time timestamptz,
    out cur_tick_event_seq bigint, out prev_tick_event_seq bigint)
language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- as next_batch_custom(5), without conditions
begin
    perform pgq._require_read_committed('next_batch');
    select b.batch_id, b.cur_tick_id, b.prev_tick_id, b.cur_tick_time, b.prev_tick_time,
           b.cur_tick_event_seq, b.prev_tick_event_seq
        into batch_id, cur_tick_id, prev_tick_id, cur_tick_time, prev_tick_time,
             cur_tick_event_seq, prev_tick_event_seq
        from pgq._next_batch(i_queue_name, i_consumer_name, null, null, null, null) b;
end;
$$;
comment on function pgq.next_batch_info(text, text) is
'Take the next batch, or get the open one again, with its ticks. batch_id is null when there is nothing.';


create or replace function pgq.next_batch(i_queue_name text, i_consumer_name text)
returns bigint language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- as next_batch_custom(5), without conditions; returns the id alone
begin
    perform pgq._require_read_committed('next_batch');
    return (select b.batch_id from pgq._next_batch(i_queue_name, i_consumer_name, null, null, null, null) b);
end;
$$;
comment on function pgq.next_batch(text, text) is
'Take the next batch, or get the open one again. Returns its id, or null when there is nothing.';


create or replace function pgq.open_batch(
    in i_queue_name text, in i_consumer_name text, in i_max_events int4 default 10000,
    out batch_id bigint, out cur_tick_id bigint, out prev_tick_id bigint,
    out cur_tick_time timestamptz, out prev_tick_time timestamptz,
    out cur_tick_event_seq bigint, out prev_tick_event_seq bigint, out acked_ev_id bigint)
language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.open_batch(3)
--
--      As next_batch_info(2), but as many tick windows as have about
--      i_max_events events make one batch: a consumer that was away for
--      10,000 ticks catches up in a few. One window is never cut, so a batch
--      can be larger.
--
-- Returns:
--      as next_batch_info(2), and how far the batch is acknowledged already
--      (an ev_id; null: not at all)
-- Errors:
--      PQ001, PQ002, PQ006 i_max_events is not positive, PQ007
-- ----------------------------------------------------------------------
begin
    perform pgq._require_read_committed('open_batch');
    perform pgq._check_max_events(i_max_events);
    select b.* into batch_id, cur_tick_id, prev_tick_id, cur_tick_time, prev_tick_time,
                    cur_tick_event_seq, prev_tick_event_seq, acked_ev_id
        from pgq._next_batch(i_queue_name, i_consumer_name, i_max_events, null, null, null) b;
end;
$$;
comment on function pgq.open_batch(text, text, int4) is
'Take the next batch of about so many events, merging tick windows, or get the open one again.';


create or replace function pgq._check_max_events(i_max_events int4)
returns void language plpgsql as $$
-- PQ006 unless the number is positive
begin
    if (i_max_events > 0) is not true then
        raise exception 'the number of events must be positive, not %', coalesce(i_max_events::text, 'NULL')
            using errcode = 'PQ006', hint = 'Allowed are 1 to 2147483647.';
    end if;
end;
$$;
comment on function pgq._check_max_events(int4) is 'Check a number of events';


create or replace function pgq.finish_batch(x_batch_id bigint)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.finish_batch(1)
--
--      Finish a batch: its consumer goes on behind it.
--
--      In the transaction of the consumer's own writes, both are done or
--      neither is.
-- Returns:
--      1, or 0 with a warning when the batch is not open (any more)
-- Errors:
--      PQ007, 42501
-- Tables touched:
--      pgq.registration (locked), pgq.cursor_ring (insert)
-- ----------------------------------------------------------------------
declare
    r  pgq.registration;
    c  pgq.cursor_ring;
begin
    perform pgq._require_read_committed('finish_batch');
    r := pgq._batch_registration(x_batch_id);
    perform pgq._require_consume_as(r);
    if r.sub_id is not null and pgq._lock_registration(r.sub_id) then
        c := pgq._cursor(r.sub_id);
        if c.batch_id = x_batch_id then
            perform pgq._place_cursor(c, pgq._cursor_tick(r.sub_queue, c.next_tick));
            return 1;
        end if;
    end if;
    raise warning 'finish_batch: batch % not found', x_batch_id;
    return 0;
end;
$$;
comment on function pgq.finish_batch(bigint) is 'Finish a batch. Returns 1, or 0 when it is not open.';
