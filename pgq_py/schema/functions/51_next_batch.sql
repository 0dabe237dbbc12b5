-- Taking and finishing batches.

create or replace function pgq._next_batch_of(
    in r pgq.registration, in i_queue_name text, in i_consumer_name text, in i_max_events bigint,
    in i_min_lag interval, in i_min_count bigint, in i_min_interval interval,
    out c pgq.cursor_ring, out prev pgq.tick_ring, out cur pgq.tick_ring)
language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._next_batch_of(7)
--
--      The registration's open batch, or else a new one: the cursor that has
--      it open, and its ticks; all null when there is nothing.
--
--      A poll that finds nothing takes no lock and writes nothing. A consumer
--      that keeps up is one tick behind, and that tick has been read already.
-- Parameters:
--      r                               - the registration, as it was found under
--      i_queue_name, i_consumer_name   - these names
--      i_max_events .. i_min_interval  - see _choose_tick
-- ----------------------------------------------------------------------
declare
    newest  pgq.tick_ring := pgq._newest_tick(r.sub_queue);
begin
    c := pgq._cursor(r.sub_id);
    if c.batch_id is null and r.sub_main is not null then
        perform pgq._require_position(r);
    end if;
    if c.batch_id is null and newest.tick_id = c.last_tick then
        c := null;
        return;
    end if;
    if not pgq._lock_registration(r.sub_id) then
        r := pgq._locked_registration(i_queue_name, i_consumer_name);
    end if;
    c := pgq._cursor(r.sub_id);
    prev := pgq._cursor_tick(r.sub_queue, c.last_tick);
    if c.batch_id is not null then
        cur := pgq._cursor_tick(r.sub_queue, c.next_tick);
        if c.handed is not null then
            -- receive() had handed out a part of it; now all of it is handed out
            c.handed := null;
            perform pgq._move_cursor(c);
        end if;
        return;
    end if;
    if r.sub_main is not null then
        perform pgq._require_position(r);
    end if;
    if newest.tick_queue = r.sub_queue and newest.tick_id = prev.tick_id + 1
       and coalesce(i_min_lag, i_min_interval) is null and i_min_count is null then
        cur := newest;
    else
        cur := pgq._choose_tick(r.sub_queue, prev, i_max_events, i_min_lag, i_min_count, i_min_interval);
    end if;
    if cur.tick_id is null then
        c := null;
        prev := null;
        return;
    end if;
    c.next_tick := cur.tick_id;
    c.batch_id := nextval('pgq.batch_id_seq');
    perform pgq._move_cursor(c);
end;
$$;
comment on function pgq._next_batch_of(pgq.registration, text, text, bigint, interval, bigint, interval) is
'The open batch of a registration, or a new one';


create or replace function pgq._next_batch(
    in i_queue_name text, in i_consumer_name text, in i_max_events bigint,
    in i_min_lag interval, in i_min_count bigint, in i_min_interval interval,
    out c pgq.cursor_ring, out prev pgq.tick_ring, out cur pgq.tick_ring)
language sql volatile as $$
    -- as _next_batch_of(7), with the registration looked up
    select * from pgq._next_batch_of(pgq._registration($1, $2), $1, $2, $3, $4, $5, $6)
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
    select (b.c).batch_id, (b.cur).tick_id, (b.prev).tick_id, (b.cur).tick_time, (b.prev).tick_time,
           (b.cur).tick_event_seq, (b.prev).tick_event_seq
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
    select (b.c).batch_id, (b.cur).tick_id, (b.prev).tick_id, (b.cur).tick_time, (b.prev).tick_time,
           (b.cur).tick_event_seq, (b.prev).tick_event_seq
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
    return (select (b.c).batch_id from pgq._next_batch(i_queue_name, i_consumer_name, null, null, null, null) b);
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
    select (b.c).batch_id, (b.cur).tick_id, (b.prev).tick_id, (b.cur).tick_time, (b.prev).tick_time,
           (b.cur).tick_event_seq, (b.prev).tick_event_seq, (b.c).acked
        into batch_id, cur_tick_id, prev_tick_id, cur_tick_time, prev_tick_time,
             cur_tick_event_seq, prev_tick_event_seq, acked_ev_id
        from pgq._next_batch(i_queue_name, i_consumer_name, i_max_events, null, null, null) b;
end;
$$;
comment on function pgq.open_batch(text, text, int4) is
'Take the next batch of about so many events, merging tick windows, or get the open one again.';


create or replace function pgq.open_batch_events(
    in i_queue_name text, in i_consumer_name text, in i_max_events int4 default 10000, in i_at_once int4 default 500,
    in i_tick boolean default false,
    out batch_id bigint, out cur_tick_id bigint, out prev_tick_id bigint,
    out cur_tick_time timestamptz, out prev_tick_time timestamptz,
    out cur_tick_event_seq bigint, out prev_tick_event_seq bigint, out acked_ev_id bigint, out whole boolean,
    out ev_id bigint, out ev_time timestamptz, out ev_txid bigint, out ev_retry int4,
    out ev_type text, out ev_data text, out ev_extra1 text, out ev_extra2 text, out ev_extra3 text, out ev_extra4 text)
returns setof record language plpgsql security definer
set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.open_batch_events(5)
--
--      As open_batch(3), and with the batch its first events: one round trip
--      where open_batch(), batch_event_sql() and reading take three. For a
--      consumer that was told of an event, the tick that shows it as well.
--
--      First come unacknowledged events of the batch in ev_id order, with no
--      batch; the last row is of the batch, with no event. Of a batch that is
--      known to have more than i_at_once events none is read: they are sorted
--      for nothing if they are to be read once more.
-- Parameters:
--      i_max_events  - merge windows to about so many events
--      i_at_once     - the most events to return; 0: none
--      i_tick        - first make a tick, if one is due and nobody else is at it;
--                      it holds the queue's tick lock until the transaction ends
-- Returns:
--      no row when there is nothing. whole: all the events are there; if not,
--      batch_event_sql() is the way to read them
-- Errors:
--      PQ001, PQ002, PQ006 a number is negative, or i_max_events is 0, PQ007
-- ----------------------------------------------------------------------
declare
    r  pgq.registration;
    q  pgq.queue;
    b  record;
    n  bigint;
begin
    perform pgq._require_read_committed('open_batch_events');
    perform pgq._check_max_events(i_max_events);
    perform pgq._check_max_events(i_at_once + 1);
    r := pgq._registration(i_queue_name, i_consumer_name);
    select * into q from pgq.queue where queue_id = r.sub_queue;
    if i_tick and not q.queue_ticker_paused and not q.queue_external_ticker then
        -- who waits for another worker of this consumer must not hold the tick lock meanwhile
        perform from pgq.registration where sub_id = r.sub_id for update skip locked;
        if found then
            perform pgq._tick_if_due(q, true, true);
        end if;
    end if;
    select * into b from pgq._next_batch_of(r, i_queue_name, i_consumer_name, i_max_events, null, null, null);
    if (b.c).batch_id is null then
        return;
    end if;
    whole := false;
    if i_at_once > 0 and (b.cur).tick_event_seq - (b.prev).tick_event_seq <= i_at_once then
        return query execute format($q$
            select null::bigint, null::bigint, null::bigint, null::timestamptz, null::timestamptz, null::bigint,
                   null::bigint, null::bigint, null::boolean, ev_id, ev_time, ev_txid::text::bigint, ev_retry,
                   ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4
            from (%s) e order by ev_id limit %s $q$,
            pgq._window_sql(q, coalesce(r.sub_main, r.sub_id), b.prev, b.cur, (b.c).acked), i_at_once);
        get diagnostics n = row_count;
        whole := n < i_at_once;
    end if;
    batch_id := (b.c).batch_id;
    acked_ev_id := (b.c).acked;
    cur_tick_id := (b.cur).tick_id;
    cur_tick_time := (b.cur).tick_time;
    cur_tick_event_seq := (b.cur).tick_event_seq;
    prev_tick_id := (b.prev).tick_id;
    prev_tick_time := (b.prev).tick_time;
    prev_tick_event_seq := (b.prev).tick_event_seq;
    return next;
end;
$$;
comment on function pgq.open_batch_events(text, text, int4, int4, boolean) is
'Take the next batch of about so many events, or get the open one again; with its events, if they are few. May tick first.';


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
