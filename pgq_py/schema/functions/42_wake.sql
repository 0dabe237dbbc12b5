-- Waking the ticker, so that it need neither poll nor tick an idle queue.
--
-- The ticker that goes to sleep arms: it sets a deadline in a sequence, which every
-- producer sees at once, whatever its snapshot. A producer that finds the deadline ahead
-- notifies. The deadline is renewed while the ticker lives; when it dies, producers stop
-- by themselves. (An armed flag that outlived its ticker cost a busy server two thirds of
-- its rate.)
--
-- Somebody may have looked before the arming and commit after it. So the armed ticker
-- probes until every transaction that was running when it armed is over; from then on
-- every event is announced.

create or replace function pgq.arm_wake(i_ms int4 default 10000)
returns bigint language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.arm_wake(1)
--
--      Ask producers to notify pgq_wake, with the queue's id, for the next i_ms.
--      For the ticker; in a transaction of its own.
--
-- Parameters:
--      i_ms  - for how long, in ms: 0 (stop it) to 60000
-- Returns:
--      the deadline in ms since 1970, 0 for none
-- Errors:
--      PQ006
-- ----------------------------------------------------------------------
begin
    if (i_ms between 0 and 60000) is not true then
        raise exception 'cannot arm for % ms', coalesce(i_ms::text, 'NULL')
            using errcode = 'PQ006', hint = 'Allowed are 0 to 60000.';
    end if;
    return setval('pgq.wake_deadline'::regclass,
                  case when i_ms > 0 then pgq._now_ms() + i_ms else 0 end);
end;
$$;
comment on function pgq.arm_wake(int4) is
'Ask producers to notify pgq_wake for so many ms; 0 stops it. Returns the deadline in ms since 1970.';


create or replace function pgq.wake_armed_ms()
returns bigint language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.wake_armed_ms(0)
--
--      For how many ms producers will wake the ticker still; 0: not now. A
--      consumer takes it as a sign of a sleeping ticker that is alive.
-- ----------------------------------------------------------------------
begin
    return greatest(pg_sequence_last_value('pgq.wake_deadline'::regclass) - pgq._now_ms(), 0);
end;
$$;
comment on function pgq.wake_armed_ms() is 'For how many ms producers will wake the ticker still; 0: not now.';


create or replace function pgq._now_ms()
returns bigint language sql volatile as $$
    select (extract(epoch from clock_timestamp()) * 1000)::bigint
$$;
comment on function pgq._now_ms() is 'The time in ms since 1970';


create or replace function pgq._wake(i_queue int4, i_later boolean default false)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._wake(2)
--
--      Notify the ticker if it is armed: of an event, with the queue's id; of
--      one for later, with the id and the word "later", which consumers pass
--      over, for no tick will come of it yet. Not with pgq.wake = off: a
--      transaction that has notified cannot be prepared; the ticker's probe
--      finds its events.
-- ----------------------------------------------------------------------
begin
    if pg_sequence_last_value('pgq.wake_deadline'::regclass) > pgq._now_ms()
       and current_setting('pgq.wake', true) is distinct from 'off' then
        perform pg_notify('pgq_wake', i_queue::text || case when i_later then ' later' else '' end);
    end if;
end;
$$;
comment on function pgq._wake(int4, boolean) is 'Notify the ticker if it is armed';


create or replace function pgq.wake(i_queue_name text)
returns void language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.wake(1)
--
--      Wake the ticker for events that came by COPY, in the same transaction.
--      insert_event and send do it themselves.
-- Errors:
--      PQ001, 42501
-- ----------------------------------------------------------------------
declare
    q  pgq.queue := pgq._queue(i_queue_name);
begin
    perform pgq._require_produce(q);
    perform pgq._wake(q.queue_id);
end;
$$;
comment on function pgq.wake(text) is 'Wake the ticker for events that came by COPY, in the same transaction.';


create or replace function pgq.tick_channel(i_queue_name text)
returns text language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.tick_channel(1)
--
--      Channel to LISTEN on: every tick of the queue notifies it, with the
--      tick's id, unless it is a worker's that left nothing to others. The number
--      at its end is the queue's id, which producers send on the channel pgq_wake
--      while the ticker sleeps.
-- Errors:
--      PQ001
-- ----------------------------------------------------------------------
begin
    return 'pgq_tick_' || (pgq._queue(i_queue_name)).queue_id;
end;
$$;
comment on function pgq.tick_channel(text) is 'Channel that every tick of a queue notifies, for LISTEN.';


create or replace function pgq.queue_marks(
    out queue_name text, out queue_id int4, out event_seq bigint, out snapshot_xmin bigint, out snapshot_xmax bigint)
returns setof record language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.queue_marks(0)
--
--      Where the event sequence of each queue stands, for a ticker with many
--      idle queues: while it has not moved, and every transaction is over that
--      ran when it last did, the queue need not be probed (but now and then).
--      A few microseconds a queue, where a probe takes a hundred.
-- ----------------------------------------------------------------------
declare
    s  pg_snapshot := pg_current_snapshot();
begin
    return query
        select q.queue_name, q.queue_id, coalesce(pg_sequence_last_value(q.queue_event_seq::regclass), 0),
               pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint
        from pgq.queue q where not q.queue_external_ticker and not q.queue_ticker_paused;
end;
$$;
comment on function pgq.queue_marks() is
'Event sequence of each queue that our ticker ticks, and the bounds of the current snapshot.';
