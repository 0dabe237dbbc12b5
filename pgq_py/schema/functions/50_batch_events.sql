-- Reading a batch: the SQL that selects the events between two ticks.

create or replace function pgq._window_sql(
    q pgq.queue, i_sub int4, a pgq.tick_ring, b pgq.tick_ring, i_after bigint)
returns text language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._window_sql(5)
--
--      SELECT for the events of (a, b] that registration i_sub has yet to see.
--
--      Simple version (after PgQ's batch_event_sql): all events that are
--      visible in b's snapshot and not in a's.
--      1. What began between the two is a range of ev_txid; what was running
--         at a and is not at b is a list. A long transaction elsewhere never
--         widens the range.
--      2. Only slots a.lo .. b.hi that hold rows: a reader of any other would
--         delay its TRUNCATE, and a scan of the parent locks them all.
--      3. Ticks are written in as constants: nothing else is read, and the
--         planner sees a narrow range where it has no statistics.
--      Whoever hands the rows out does it in ev_id order, whatever transaction
--      they are of: an update that had to wait for another's row lock has the
--      later id, and would be applied first in order of transaction ids.
--
-- Parameters:
--      q        - queue
--      i_sub    - events owned by other registrations are left out
--      a, b     - ticks, a before b
--      i_after  - only events with a greater ev_id; null: all
-- Returns:
--      SQL without an order; columns ev_id, ev_time, ev_txid (xid8), ev_retry,
--      ev_type, ev_data, ev_extra1 .. 4
-- ----------------------------------------------------------------------
declare
    late    xid8[] := array(select pg_snapshot_xip(a.tick_snapshot) except select pg_snapshot_xip(b.tick_snapshot));
    parts   text[] := '{}';
    fields  text := 'select ev_id, ev_time, ev_txid, ev_retry, ev_type, ev_data,'
                    ' ev_extra1, ev_extra2, ev_extra3, ev_extra4 from pgq.%I where ';
    filter  text := format(' and (ev_owner is null or ev_owner = %s)', i_sub);
    slot    text;
    nr      int8;
begin
    if i_after is not null then
        filter := filter || format(' and ev_id > %s', i_after);
    end if;
    foreach nr in array pgq._used_slots(q, a, b) loop
        slot := 'event_' || q.queue_id || '_' || nr;
        parts := parts || (format(fields || 'ev_txid >= %L::xid8 and ev_txid < %L::xid8'
                                  ' and pg_visible_in_snapshot(ev_txid, %L::pg_snapshot)',
                                  slot, pg_snapshot_xmax(a.tick_snapshot), pg_snapshot_xmax(b.tick_snapshot),
                                  b.tick_snapshot) || filter);
        if cardinality(late) > 0 then
            parts := parts || (format(fields || 'ev_txid = any (%L::xid8[])', slot, late) || filter);
        end if;
    end loop;
    return array_to_string(parts, ' union all ');
end;
$$;
comment on function pgq._window_sql(pgq.queue, int4, pgq.tick_ring, pgq.tick_ring, bigint) is 'SELECT for the events between two ticks';


create or replace function pgq._open_cursor(i_batch bigint)
returns pgq.cursor_ring language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._open_cursor(1)
--
--      State of the registration that has this batch open.
-- Errors:
--      PQ003  - it was never given out, or is finished
--      42501  - the caller may not act for its consumer
-- ----------------------------------------------------------------------
declare
    r  pgq.registration := pgq._batch_registration(i_batch);
    c  pgq.cursor_ring;
begin
    if r.sub_id is not null then
        perform pgq._require_consume_as(r);
        c := pgq._cursor(r.sub_id);
        if c.batch_id = i_batch then
            return c;
        end if;
    end if;
    raise exception 'batch not found'
        using errcode = 'PQ003',
              detail = format('batch: %s', coalesce(i_batch::text, 'NULL')),
              hint = 'It was finished, or its consumer was moved or unregistered; take the next one with next_batch().';
end;
$$;
comment on function pgq._open_cursor(bigint) is 'State of the registration that has a batch open';


create or replace function pgq.batch_event_sql(x_batch_id bigint)
returns text language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.batch_event_sql(1)
--
--      SELECT for the events of an open batch that are not acknowledged yet,
--      in ev_id order; to be run, streamed or declared as a cursor by the
--      client, in a READ COMMITTED transaction.
--
-- Returns:
--      SQL; columns ev_id, ev_time, ev_txid (xid8), ev_retry, ev_type, ev_data, ev_extra1 .. 4
-- Errors:
--      PQ003 no such open batch, PQ007 isolation level: an old snapshot would
--      not show all of the batch
-- ----------------------------------------------------------------------
declare
    c  pgq.cursor_ring;
    q  pgq.queue;
begin
    perform pgq._require_read_committed('reading a batch');
    c := pgq._open_cursor(x_batch_id);
    select * into q from pgq.queue
        where queue_id = (select sub_queue from pgq.registration where sub_id = c.sub_id);
    return pgq._window_sql(q, pgq._owner(c.sub_id), pgq._cursor_tick(q.queue_id, c.last_tick),
                           pgq._cursor_tick(q.queue_id, c.next_tick), c.acked) || ' order by ev_id';
end;
$$;
comment on function pgq.batch_event_sql(bigint) is
'SELECT for the events of an open batch that are not acknowledged yet, to be run by the client.';


create or replace function pgq.batch_event_tables(x_batch_id bigint)
returns setof text language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.batch_event_tables(1)
--
--      Tables in which the events of an open batch may be.
-- Errors:
--      PQ003, PQ007
-- ----------------------------------------------------------------------
declare
    c   pgq.cursor_ring;
    q   pgq.queue;
    hi  bigint;
begin
    perform pgq._require_read_committed('reading a batch');
    c := pgq._open_cursor(x_batch_id);
    select * into q from pgq.queue
        where queue_id = (select sub_queue from pgq.registration where sub_id = c.sub_id);
    hi := (pgq._cursor_tick(q.queue_id, c.next_tick)).hi;
    for g in greatest(c.lo, hi - q.queue_ntables + 1) .. hi loop
        return next 'pgq.' || pgq._slot('event_' || q.queue_id, q.queue_ntables, g);
    end loop;
end;
$$;
comment on function pgq.batch_event_tables(bigint) is 'Tables in which the events of an open batch may be.';


create or replace function pgq.get_batch_events(
    in x_batch_id bigint, out ev_id bigint, out ev_time timestamptz, out ev_txid bigint, out ev_retry int4,
    out ev_type text, out ev_data text, out ev_extra1 text, out ev_extra2 text, out ev_extra3 text, out ev_extra4 text)
returns setof record language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq.get_batch_events(1)
--
--      Events of an open batch that are not acknowledged yet, in ev_id order.
--
--      All of them at once, on the server and in the client: for large batches
--      run batch_event_sql() with a cursor. With the caller's rights, which
--      are on the event tables.
-- Errors:
--      PQ003, PQ007
-- ----------------------------------------------------------------------
begin
    return query execute 'select ev_id, ev_time, ev_txid::text::bigint, ev_retry, ev_type, ev_data,'
        ' ev_extra1, ev_extra2, ev_extra3, ev_extra4 from (' || pgq.batch_event_sql(x_batch_id) || ') events';
end;
$$;
comment on function pgq.get_batch_events(bigint) is 'Events of an open batch that are not acknowledged yet, in ev_id order.';


create or replace function pgq.get_batch_cursor(
    in i_batch_id bigint, in i_cursor_name text, in i_quick_limit int4, in i_extra_where text,
    out ev_id bigint, out ev_time timestamptz, out ev_txid bigint, out ev_retry int4,
    out ev_type text, out ev_data text, out ev_extra1 text, out ev_extra2 text, out ev_extra3 text, out ev_extra4 text)
returns setof record language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq.get_batch_cursor(4)
--
--      Open a cursor on the events of a batch and return the first ones.
--
--      SECURITY INVOKER on purpose: i_extra_where is SQL of the caller's and
--      must not run with any rights but the caller's.
--
-- Parameters:
--      i_batch_id     - an open batch
--      i_cursor_name  - name of the cursor, for FETCH in the same transaction
--      i_quick_limit  - how many events to return at once, may be 0
--      i_extra_where  - condition on the columns, or null
-- Errors:
--      PQ003, PQ007
-- ----------------------------------------------------------------------
declare
    statement  text;
begin
    if i_batch_id is null or i_cursor_name is null or i_quick_limit is null then
        return;
    end if;
    statement := 'select ev_id, ev_time, ev_txid::text::bigint as ev_txid, ev_retry, ev_type, ev_data,'
        ' ev_extra1, ev_extra2, ev_extra3, ev_extra4 from (' || pgq.batch_event_sql(i_batch_id) || ') events';
    if i_extra_where is not null then
        statement := 'select * from (' || statement || ') events where ' || i_extra_where || ' order by ev_id';
    end if;
    execute format('declare %I no scroll cursor for %s', i_cursor_name, statement);
    if i_quick_limit > 0 then
        return query execute format('fetch %s from %I', i_quick_limit, i_cursor_name);
    end if;
end;
$$;
comment on function pgq.get_batch_cursor(bigint, text, int4, text) is
'Open a cursor on the events of a batch, with a condition of the caller''s, and return the first ones.';


create or replace function pgq.get_batch_cursor(
    in i_batch_id bigint, in i_cursor_name text, in i_quick_limit int4,
    out ev_id bigint, out ev_time timestamptz, out ev_txid bigint, out ev_retry int4,
    out ev_type text, out ev_data text, out ev_extra1 text, out ev_extra2 text, out ev_extra3 text, out ev_extra4 text)
returns setof record language plpgsql as $$
-- as get_batch_cursor(4), without a condition
begin
    return query select * from pgq.get_batch_cursor(i_batch_id, i_cursor_name, i_quick_limit, null);
end;
$$;
comment on function pgq.get_batch_cursor(bigint, text, int4) is
'Open a cursor on the events of a batch and return the first ones.';
