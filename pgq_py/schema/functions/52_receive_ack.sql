-- receive and ack: batches in pieces, for plain SQL users.

create or replace function pgq.receive(
    in i_queue_name text, in i_consumer_name text, in i_max_events int4 default 100,
    out batch_id bigint, out ev_id bigint, out ev_time timestamptz, out ev_txid bigint, out ev_retry int4,
    out ev_type text, out ev_data text, out ev_extra1 text, out ev_extra2 text, out ev_extra3 text, out ev_extra4 text)
returns setof record language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.receive(3)
--
--      The next events of a consumer, at most i_max_events, in ev_id order
--      within a batch. The same again until they are acknowledged with ack().
--
--      Empty windows are passed; no rows means that nothing is waiting.
-- Returns:
--      events with the id of their batch, which is the same for all rows
-- Errors:
--      PQ001, PQ002, PQ006 i_max_events is not positive, PQ007
-- Tables touched:
--      pgq.registration (locked), pgq.cursor_ring (insert)
-- ----------------------------------------------------------------------
declare
    r      pgq.registration;
    q      pgq.queue;
    c      pgq.cursor_ring;
    moved  boolean := false;
    prev   pgq.tick_ring;
    cur    pgq.tick_ring;
    n      int4;
begin
    perform pgq._require_read_committed('receive');
    perform pgq._check_max_events(i_max_events);
    r := pgq._registration(i_queue_name, i_consumer_name);
    perform pgq._require_position(r);
    c := pgq._cursor(r.sub_id);
    if c.batch_id is null and (pgq._newest_tick(r.sub_queue)).tick_id = c.last_tick then
        return;
    end if;
    r := pgq._locked_registration(i_queue_name, i_consumer_name);
    select * into q from pgq.queue where queue_id = r.sub_queue;
    c := pgq._cursor(r.sub_id);
    loop
        prev := pgq._cursor_tick(q.queue_id, c.last_tick);
        if c.batch_id is null then
            cur := pgq._choose_tick(q.queue_id, prev, i_max_events, null, null, null);
            exit when cur.tick_id is null;
            c.next_tick := cur.tick_id;
            c.batch_id := nextval('pgq.batch_id_seq');
        else
            cur := pgq._cursor_tick(q.queue_id, c.next_tick);
        end if;
        n := 0;
        batch_id := c.batch_id;
        for ev_id, ev_time, ev_txid, ev_retry, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4 in
            execute 'select ev_id, ev_time, ev_txid::text::bigint, ev_retry, ev_type, ev_data, ev_extra1,'
                ' ev_extra2, ev_extra3, ev_extra4 from (' || pgq._window_sql(q, r.sub_id, prev, cur, c.acked)
                || format(' order by ev_id limit %s) events order by ev_id', i_max_events)
        loop
            n := n + 1;
            c.handed := ev_id;
            return next;
        end loop;
        if n > 0 then
            -- fewer than asked for: it was the rest of the batch
            c.handed := case when n = i_max_events then c.handed end;
            perform pgq._move_cursor(c);
            return;
        end if;
        -- an empty batch is not an empty queue: pass it and look again
        moved := true;
        c.last_tick := cur.tick_id;
        c.lo := cur.lo;
        c.next_tick := null;
        c.batch_id := null;
        c.acked := null;
        c.handed := null;
    end loop;
    if moved then
        perform pgq._move_cursor(c);
    end if;
end;
$$;
comment on function pgq.receive(text, text, int4) is
'The next events of a consumer, at most so many; the same again until they are acknowledged with ack().';


create or replace function pgq.ack(
    i_queue_name text, i_consumer_name text, i_batch_id bigint, i_up_to_ev_id bigint default null)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.ack(4)
--
--      Acknowledge events of the consumer's open batch.
--
--      In the transaction of the consumer's own writes, both are done or
--      neither is.
-- Parameters:
--      i_batch_id     - the batch
--      i_up_to_ev_id  - events up to this id (progress inside the batch, which
--                       stays open); null: what receive() handed out, or the
--                       whole batch if it came from next_batch() or open_batch()
-- Returns:
--      1 when the batch is finished, 0 when a part of it remains
-- Errors:
--      PQ001, PQ002, PQ003 not this consumer's open batch, PQ007
--      PQ006 i_up_to_ev_id is beyond what was handed out, or goes back
-- Tables touched:
--      pgq.registration (locked), pgq.cursor_ring (insert)
-- ----------------------------------------------------------------------
declare
    r  pgq.registration;
    c  pgq.cursor_ring;
begin
    perform pgq._require_read_committed('ack');
    r := pgq._locked_registration(i_queue_name, i_consumer_name);
    c := pgq._cursor(r.sub_id);
    if (c.batch_id = i_batch_id) is not true then
        raise exception 'batch % is not open for %/%', i_batch_id, i_queue_name, i_consumer_name
            using errcode = 'PQ003',
                  hint = 'It was finished already, or the consumer was moved: nothing was acknowledged. Take the next batch.';
    end if;
    if i_up_to_ev_id is null and c.handed is null then
        perform pgq._place_cursor(c, pgq._cursor_tick(r.sub_queue, c.next_tick));
        return 1;
    end if;
    if i_up_to_ev_id > c.handed or i_up_to_ev_id < c.acked then
        raise exception 'cannot acknowledge up to event %', i_up_to_ev_id
            using errcode = 'PQ006',
                  detail = format('acknowledged up to %s, handed out up to %s', coalesce(c.acked::text, 'none'), coalesce(c.handed::text, 'all')),
                  hint = 'Acknowledge forwards, and only what was received.';
    end if;
    c.acked := coalesce(i_up_to_ev_id, c.handed);
    perform pgq._move_cursor(c);
    return 0;
end;
$$;
comment on function pgq.ack(text, text, bigint, bigint) is
'Acknowledge events of the consumer''s open batch. Returns 1 when the batch is finished, 0 when a part remains.';


create or replace function pgq._peeked(r pgq.registration, i_batch_id bigint, i_prev_tick_id bigint, i_tick_id bigint)
returns pgq.cursor_ring language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._peeked(4)
--
--      Cursor of a locked registration, which must stand where it stood when
--      the batch was peeked at: its id is minus the cursor's position, which
--      says that it was not moved since. A registration that was removed and
--      made anew counts from one again, so the tick is compared as well.
-- Errors:
--      PQ003  - the consumer was moved, or has opened a batch since
-- ----------------------------------------------------------------------
declare
    c  pgq.cursor_ring := pgq._cursor(r.sub_id);
begin
    if (c.pos = -i_batch_id and c.last_tick = i_prev_tick_id and c.batch_id is null and i_tick_id > i_prev_tick_id) is not true then
        raise exception 'the batch after position % is not what the consumer stands before', -i_batch_id
            using errcode = 'PQ003',
                  hint = 'It was finished already, or the consumer was moved: nothing was acknowledged. Take the next batch.';
    end if;
    return c;
end;
$$;
comment on function pgq._peeked(pgq.registration, bigint, bigint, bigint) is 'Cursor of a consumer that has peeked at a batch';


create or replace function pgq.ack_peeked(
    i_queue_name text, i_consumer_name text, i_batch_id bigint, i_prev_tick_id bigint, i_tick_id bigint)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.ack_peeked(5)
--
--      Acknowledge the whole of a batch that was not opened, see opener_function().
-- Parameters:
--      i_batch_id      - its id, which is negative
--      i_prev_tick_id  - the tick ahead of it
--      i_tick_id       - the tick at its end
-- Returns:
--      1
-- Errors:
--      PQ001, PQ002, PQ003 the consumer does not stand before it any more, PQ007
-- Tables touched:
--      pgq.registration (locked), pgq.cursor_ring (insert)
-- ----------------------------------------------------------------------
declare
    r  pgq.registration;
begin
    perform pgq._require_read_committed('ack_peeked');
    r := pgq._locked_registration(i_queue_name, i_consumer_name);
    perform pgq._place_cursor(pgq._peeked(r, i_batch_id, i_prev_tick_id, i_tick_id), pgq._cursor_tick(r.sub_queue, i_tick_id));
    return 1;
end;
$$;
comment on function pgq.ack_peeked(text, text, bigint, bigint, bigint) is
'Acknowledge the whole of a batch that was peeked at, not opened. Returns 1.';


create or replace function pgq.open_peeked(
    i_queue_name text, i_consumer_name text, i_batch_id bigint, i_prev_tick_id bigint, i_tick_id bigint)
returns bigint language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.open_peeked(5)
--
--      Open a batch that was peeked at after all, to acknowledge a part of it or
--      to nack some of its events.
-- Parameters:
--      as ack_peeked(5)
-- Returns:
--      id of the batch
-- Errors:
--      PQ001, PQ002, PQ003 the consumer does not stand before it any more, PQ007
-- Tables touched:
--      pgq.registration (locked), pgq.cursor_ring (insert)
-- ----------------------------------------------------------------------
declare
    r  pgq.registration;
    c  pgq.cursor_ring;
begin
    perform pgq._require_read_committed('open_peeked');
    r := pgq._locked_registration(i_queue_name, i_consumer_name);
    c := pgq._peeked(r, i_batch_id, i_prev_tick_id, i_tick_id);
    c.next_tick := (pgq._cursor_tick(r.sub_queue, i_tick_id)).tick_id;
    c.batch_id := nextval('pgq.batch_id_seq');
    perform pgq._move_cursor(c);
    return c.batch_id;
end;
$$;
comment on function pgq.open_peeked(text, text, bigint, bigint, bigint) is
'Open a batch that was peeked at, to acknowledge a part of it or to nack events. Returns its id.';
