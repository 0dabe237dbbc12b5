-- Registering, moving and removing consumers. All of it under the lock of the queue's
-- event ring, which rotation takes too: an uncommitted registration must not be
-- overtaken by a truncation of the events that it is going to read.

create or replace function pgq._lock_event_ring(i_queue int4, i_message text)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._lock_event_ring(2)
--
--      Take the maintenance lock of a queue's event ring, waiting for it.
-- Errors:
--      PQ001  - the queue was dropped meanwhile
-- ----------------------------------------------------------------------
begin
    perform from pgq.ring where ring_name = 'event_' || i_queue for update;
    if not found then
        raise exception '%', i_message using errcode = 'PQ001', hint = 'The queue was dropped meanwhile.';
    end if;
end;
$$;
comment on function pgq._lock_event_ring(int4, text) is 'Take the maintenance lock of a queue''s event ring';


create or replace function pgq._seekable_tick(i_queue int4, i_tick bigint)
returns pgq.tick_ring language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._seekable_tick(2)
--
--      A tick that a consumer may be placed at: it is known, and the events
--      after it are all still there. The caller holds the event ring's lock.
-- Errors:
--      PQ008  - no such tick, or its events are gone
-- ----------------------------------------------------------------------
declare
    t  pgq.tick_ring := pgq._find_tick(i_queue, i_tick);
begin
    if (t.lo >= (pgq._cursor(-i_queue)).lo) is not true then
        raise exception 'cannot reposition, tick not found: %', i_tick
            using errcode = 'PQ008',
                  hint = 'pgq.seek(queue, consumer, ''earliest'') goes to the first one whose events are all there.';
    end if;
    return t;
end;
$$;
comment on function pgq._seekable_tick(int4, bigint) is 'A tick that a consumer may be placed at';


create or replace function pgq._register(q pgq.queue, i_name text, i_tick bigint, i_main int4)
returns integer language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._register(4)
--
--      Register a consumer behind a tick (null: the newest), or move it there
--      when it is registered and a tick is given.
--
-- Parameters:
--      i_main  - make it a subconsumer of this registration; null: of none
-- Returns:
--      1 registered, 0 it was already
-- Errors:
--      PQ001, PQ006 a tick for a subconsumer, PQ008
-- ----------------------------------------------------------------------
declare
    r   pgq.registration;
    c   pgq.cursor_ring;
    t   pgq.tick_ring;
    e   pgq.eviction;
    co  int4;
begin
    insert into pgq.consumer (co_name) values (i_name) on conflict do nothing;
    select co_id into co from pgq.consumer where co_name = i_name;
    perform pgq._lock_event_ring(q.queue_id, 'Event queue not created yet');
    if i_tick is not null then
        t := pgq._seekable_tick(q.queue_id, i_tick);
    end if;

    select * into r from pgq.registration where sub_queue = q.queue_id and sub_consumer = co for update;
    if found then
        if i_tick is not null then
            perform pgq._require_position(r);
            perform pgq._place_cursor(pgq._cursor(r.sub_id), t);
        end if;
        return 0;
    end if;
    delete from pgq.eviction where queue_id = q.queue_id and consumer_name = i_name returning * into e;
    if found then
        raise warning 'consumer % was evicted from queue % at %: events after tick % were not delivered to it',
            i_name, q.queue_name, e.evicted_at, e.last_tick;
    end if;
    insert into pgq.registration (sub_queue, sub_consumer, sub_main) values (q.queue_id, co, i_main)
        returning sub_id into c.sub_id;
    c.pos := 0;
    perform pgq._place_cursor(c, case when i_tick is null then pgq._newest_tick(q.queue_id) else t end);
    return 1;
end;
$$;
comment on function pgq._register(pgq.queue, text, bigint, int4) is 'Register a consumer or subconsumer, or move it';


create or replace function pgq.register_consumer_at(x_queue_name text, x_consumer_name text, x_tick_pos bigint)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.register_consumer_at(3)
--
--      Register a consumer, or move it when it is registered.
--
-- Parameters:
--      x_queue_name     - queue
--      x_consumer_name  - consumer, 1 to 128 characters
--      x_tick_pos       - tick behind which it starts; null: the newest, and
--                         an existing registration stays where it is
-- Returns:
--      1 registered, 0 it was already (and was moved, if a tick was given)
-- Errors:
--      PQ001, PQ006 name, PQ007, PQ008 the tick or its events are gone
-- Tables touched:
--      pgq.consumer, pgq.registration, pgq.cursor_ring (insert), pgq.ring (locked)
-- ----------------------------------------------------------------------
declare
    q  pgq.queue := pgq._queue(x_queue_name, 'Event queue not created yet');
begin
    perform pgq._require_read_committed('register_consumer');
    perform pgq._check_name('consumer', x_consumer_name);
    perform pgq._require_consume(q.queue_id, x_consumer_name);
    if x_tick_pos is null and exists (
        select from pgq.registration join pgq.consumer on co_id = sub_consumer
        where sub_queue = q.queue_id and co_name = x_consumer_name)
    then
        return 0;
    end if;
    return pgq._register(q, x_consumer_name, x_tick_pos, null);
end;
$$;
comment on function pgq.register_consumer_at(text, text, bigint) is
'Register a consumer behind a tick, or move it there. Returns 1 when it is new.';


create or replace function pgq.register_consumer(x_queue_name text, x_consumer_id text)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- as register_consumer_at(3), at the newest tick
begin
    return pgq.register_consumer_at(x_queue_name, x_consumer_id, null);
end;
$$;
comment on function pgq.register_consumer(text, text) is
'Register a consumer at the queue''s newest tick. Returns 1, or 0 when it is registered already.';


create or replace function pgq._remove_registration(r pgq.registration, i_reason text)
returns boolean language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._remove_registration(2)
--
--      Remove a registration, with its subconsumers, and bury the events that
--      are its alone: retries that wait, and those that are back in the log and
--      not finished. The caller has the event ring's lock; with the delay and dead rings' locks
--      no release and no replay is under way either.
-- Returns:
--      false when it was gone already
-- ----------------------------------------------------------------------
declare
    c     pgq.cursor_ring;
    last  pgq.tick_ring;
    next  pgq.tick_ring;
begin
    if not pgq._lock_registration(r.sub_id) then
        return false;
    end if;
    perform pgq._lock_delays(r.sub_queue);
    perform from pgq.ring where ring_name = 'dead_ring' for update;
    c := pgq._cursor(r.sub_id);
    last := pgq._cursor_tick(r.sub_queue, c.last_tick);
    if c.acked is not null then
        next := pgq._cursor_tick(r.sub_queue, c.next_tick);
    end if;
    execute format($q$
        insert into pgq.%s (dl_id, queue_name, consumer_name, reason, attempts, ev_id, ev_time, ev_retry,
                            ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4)
        select nextval('pgq.dead_letter_id_seq'), q.queue_name, co.co_name, $5, coalesce(o.ev_retry, 0), o.*
        from (select ev_id, ev_time, ev_retry, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4
              from (%s) d where ev_owner = $1 and not cancels
              union all
              select ev_id, ev_time, ev_retry, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4
              from pgq.%I where ev_owner = $1 and not pg_visible_in_snapshot(ev_txid, $2)
              and not coalesce(ev_id <= $3 and pg_visible_in_snapshot(ev_txid, $4), false)) o,
             pgq.queue q, pgq.consumer co
        where q.queue_id = $6 and co.co_id = $7 order by o.ev_id $q$,
        pgq._dead_slot(), pgq._pending_sql(r.sub_queue, pgq._newest_tick(-r.sub_queue)), 'event_' || r.sub_queue)
        using r.sub_id, last.tick_snapshot, c.acked, next.tick_snapshot, i_reason, r.sub_queue, r.sub_consumer;
    perform pgq._remove_registration(s, i_reason) from pgq.registration s where s.sub_main = r.sub_id;
    delete from pgq.registration where sub_id = r.sub_id;
    return true;
end;
$$;
comment on function pgq._remove_registration(pgq.registration, text) is 'Remove a registration and bury the events that are its alone';


create or replace function pgq.unregister_consumer(x_queue_name text, x_consumer_name text)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.unregister_consumer(2)
--
--      Remove a consumer from a queue. Its name stays in pgq.consumer. Retries
--      that it has not finished become dead letters.
--
-- Returns:
--      1, and one for each of its subconsumers, or 0 when it was not registered
-- Errors:
--      PQ007
-- ----------------------------------------------------------------------
declare
    r  pgq.registration;
    n  int4;
begin
    perform pgq._require_read_committed('unregister_consumer');
    select s.* into r from pgq.registration s
        join pgq.queue on queue_id = sub_queue join pgq.consumer on co_id = sub_consumer
        where queue_name = x_queue_name and co_name = x_consumer_name;
    if not found then
        return 0;
    end if;
    perform pgq._require_consume_as(r);
    perform pgq._lock_event_ring(r.sub_queue, 'No such queue');
    select 1 + count(*) into n from pgq.registration where sub_main = r.sub_id;
    return case when pgq._remove_registration(r, 'its consumer was unregistered') then n else 0 end;
end;
$$;
comment on function pgq.unregister_consumer(text, text) is
'Remove a consumer from a queue, with its subconsumers. Returns how many registrations went; 0: it was not registered.';


create or replace function pgq.seek(i_queue_name text, i_consumer_name text, i_tick_id bigint)
returns bigint language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.seek(3) with a tick
--
--      Place a consumer behind a tick, forwards or back. An open batch is
--      dropped: its events come again, or are passed.
--
-- Returns:
--      the tick
-- Errors:
--      PQ001, PQ002, PQ007, PQ008 the tick or its events are gone
-- ----------------------------------------------------------------------
declare
    r  pgq.registration;
    t  pgq.tick_ring;
begin
    perform pgq._require_read_committed('seek');
    r := pgq._registration(i_queue_name, i_consumer_name);
    perform pgq._require_position(r);
    perform pgq._lock_event_ring(r.sub_queue, 'No such queue');
    t := pgq._seekable_tick(r.sub_queue, i_tick_id);
    r := pgq._locked_registration(i_queue_name, i_consumer_name);
    perform pgq._place_cursor(pgq._cursor(r.sub_id), t);
    return t.tick_id;
end;
$$;
comment on function pgq.seek(text, text, bigint) is 'Place a consumer behind a tick. Returns the tick.';


create or replace function pgq._lock_for_seek(i_queue_name text, i_consumer_name text)
returns int4 language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._lock_for_seek(2)
--
--      Locks for a seek that searches the ticks: the event ring's, and the
--      tick ring's so that none is being moved while they are looked through.
-- Returns:
--      the queue's id
-- ----------------------------------------------------------------------
declare
    r  pgq.registration;
begin
    perform pgq._require_read_committed('seek');
    r := pgq._registration(i_queue_name, i_consumer_name);
    perform pgq._require_position(r);
    perform pgq._lock_event_ring(r.sub_queue, 'No such queue');
    perform from pgq.ring where ring_name = 'tick_ring' for update;
    return r.sub_queue;
end;
$$;
comment on function pgq._lock_for_seek(text, text) is 'Locks for a seek that searches the ticks';


create or replace function pgq._tick_at(i_queue int4, i_time timestamptz)
returns bigint language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._tick_at(2)
--
--      The last tick at or before a time, of those whose events are all there.
--      The caller has called _lock_for_seek.
-- Errors:
--      PQ006  - null
--      PQ008  - the events of that time are gone
-- ----------------------------------------------------------------------
declare
    floor_lo  bigint := (pgq._cursor(-i_queue)).lo;
    tick      bigint;
    first     timestamptz;
begin
    if i_time is null then
        raise exception 'Invalid NULL value'
            using errcode = 'PQ006', hint = 'Give a time, a tick, ''earliest'' or ''latest''.';
    end if;
    select max(tick_id) into tick from pgq.tick_ring
        where tick_queue = i_queue and lo >= floor_lo and tick_time <= i_time;
    if tick is null then
        select min(tick_time) into first from pgq.tick_ring where tick_queue = i_queue and lo >= floor_lo;
        raise exception 'no position at or before %', i_time
            using errcode = 'PQ008', detail = format('The earliest position is at %s.', first),
                  hint = 'pgq.seek(queue, consumer, ''earliest'') goes there.';
    end if;
    return tick;
end;
$$;
comment on function pgq._tick_at(int4, timestamptz) is 'The last tick at or before a time';


create or replace function pgq.seek_target(i_queue_name text, i_consumer_name text, i_target text)
returns bigint language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.seek_target(3)
--
--      The tick that seek() would go to; moves nothing.
--
-- Parameters:
--      i_target  - 'earliest' (the first tick whose events are all still
--                  there), 'latest' (the newest), a tick or a time as text
-- Errors:
--      PQ001, PQ002, PQ006 not such a text, PQ007
--      PQ008  - the events of that time or tick are gone
-- ----------------------------------------------------------------------
declare
    queue  int4 := pgq._lock_for_seek(i_queue_name, i_consumer_name);
begin
    if i_target = 'earliest' then
        return (select min(tick_id) from pgq.tick_ring
                where tick_queue = queue and lo >= (select (pgq._cursor(-queue)).lo));
    elsif i_target = 'latest' then
        return (pgq._newest_tick(queue)).tick_id;
    elsif i_target ~ '^[0-9]{1,18}$' then
        return (pgq._seekable_tick(queue, i_target::bigint)).tick_id;
    end if;
    begin
        return pgq._tick_at(queue, i_target::timestamptz);
    exception
        when invalid_datetime_format or datetime_field_overflow or invalid_parameter_value then
            raise exception 'cannot seek to %', coalesce(quote_literal(i_target), 'NULL')
                using errcode = 'PQ006', hint = 'Give a time, a tick, ''earliest'' or ''latest''.';
    end;
end;
$$;
comment on function pgq.seek_target(text, text, text) is
'The tick that seek() would go to for ''earliest'', ''latest'', a tick or a time; moves nothing.';


create or replace function pgq.seek(i_queue_name text, i_consumer_name text, i_time timestamptz)
returns bigint language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.seek(3) with a time
--
--      Place a consumer behind the last tick at or before a time: every event
--      that came after that time is delivered, and a few before it may be.
--
-- Returns:
--      the tick
-- Errors:
--      PQ001, PQ002, PQ006 null, PQ007, PQ008 the events of that time are gone
-- ----------------------------------------------------------------------
begin
    return pgq.seek(i_queue_name, i_consumer_name,
                    pgq._tick_at(pgq._lock_for_seek(i_queue_name, i_consumer_name), i_time));
end;
$$;
comment on function pgq.seek(text, text, timestamptz) is
'Place a consumer behind the last tick at or before a time. Returns the tick.';


create or replace function pgq.seek(i_queue_name text, i_consumer_name text, i_target text)
returns bigint language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.seek(3) with a word
--
--      Place a consumer where seek_target(3) says.
--
-- Returns:
--      the tick
-- Errors:
--      as seek_target(3)
-- ----------------------------------------------------------------------
begin
    return pgq.seek(i_queue_name, i_consumer_name, pgq.seek_target(i_queue_name, i_consumer_name, i_target));
end;
$$;
comment on function pgq.seek(text, text, text) is
'Place a consumer at ''earliest'', ''latest'', a tick or a time. Returns the tick.';
