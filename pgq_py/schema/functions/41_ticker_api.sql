-- Ticking: the public functions.

create or replace function pgq.ticker(i_queue_name text)
returns bigint language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.ticker(1)
--
--      Make a tick for the queue if one is due.
--
-- Returns:
--      id of the tick, or null when none was due
-- Errors:
--      PQ001 no such queue, PQ004 paused, PQ007 isolation level,
--      PQ010 restored from another cluster, PQ011 external ticker
-- Tables touched:
--      pgq.queue (locked), pgq.tick_ring (insert)
-- ----------------------------------------------------------------------
declare
    q  pgq.queue := pgq._queue(i_queue_name, 'no such queue');
begin
    perform pgq._require_read_committed('ticker');
    perform pgq._require_ticking(q);
    return pgq._tick_if_due(q, false);
end;
$$;
comment on function pgq.ticker(text) is 'Make a tick for a queue if one is due. Returns its id, or null.';


create or replace function pgq.ticker_if_late(i_queue_name text, i_age interval)
returns bigint language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.ticker_if_late(2)
--
--      ticker(1) for an event that was announced some time ago, unless there is a
--      tick since: of a consumer or a worker that ticked on its own way to the event.
--      To see that takes no look for an event.
--
--      The snapshot of such a tick may be a little older than its time, so whoever
--      relies on this alone looks once more when nothing else comes.
--
-- Parameters:
--      i_age  - how long ago it was announced; null: not known
-- Returns:
--      id of the tick, null when none was due, 0 when there is one since
-- Errors:
--      as ticker(1)
-- ----------------------------------------------------------------------
declare
    q  pgq.queue := pgq._queue(i_queue_name, 'no such queue');
begin
    perform pgq._require_read_committed('ticker_if_late');
    perform pgq._require_ticking(q);
    if (pgq._newest_tick(q.queue_id)).tick_time > clock_timestamp() - i_age then
        return 0;
    end if;
    return pgq._tick_if_due(q, false);
end;
$$;
comment on function pgq.ticker_if_late(text, interval) is
'ticker(queue) for an event that was announced so long ago. Returns the tick''s id, null when none was due, 0 when there is one since.';


create or replace function pgq.ticker()
returns bigint language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.ticker(0)
--
--      Make ticks for all queues where one is due.
--
--      In one go. Only if a queue fails, each due queue is tried in a block of
--      its own, at most 32 a call: a hundred subtransactions would overflow
--      every snapshot taken meanwhile. A queue that is locked is passed: somebody
--      else is ticking it, or has changed its settings and not committed yet, and
--      the other queues must not wait for that.
-- Returns:
--      number of ticks made; failures are warnings
-- ----------------------------------------------------------------------
declare
    q       pgq.queue;
    made    bigint := 0;
    blocks  int4 := 0;
begin
    perform pgq._require_read_committed('ticker');
    begin
        for q in select * from pgq.queue
            where not queue_external_ticker and not queue_ticker_paused order by queue_name
        loop
            made := made + (pgq._tick_if_due(q, true) is not null)::int;
        end loop;
        return made;
    exception
        when others then
            made := 0;
    end;
    for q in select * from pgq.queue
        where queue_name in (select * from pgq.queues_due()) order by random()
    loop
        exit when blocks = 32;
        begin
            blocks := blocks + 1;
            made := made + (pgq._tick_if_due(q, true) is not null)::int;
        exception
            when others then
                raise warning 'queue %: %', q.queue_name, sqlerrm using errcode = sqlstate;
        end;
    end loop;
    return made;
end;
$$;
comment on function pgq.ticker() is 'Make ticks for all queues where one is due. Returns how many.';


create or replace function pgq.ticker(i_queue_name text, i_tick_id bigint, i_orig_timestamp timestamptz, i_event_seq bigint)
returns bigint language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.ticker(4)
--
--      External ticker: make a tick with a given id.
--
-- Parameters:
--      i_queue_name      - a queue with queue_external_ticker
--      i_tick_id         - its id, greater than the last one's
--      i_orig_timestamp  - its time
--      i_event_seq       - the event sequence it stands for
-- Returns:
--      i_tick_id
-- Errors:
--      PQ001 not such a queue, PQ006 the id does not rise or the time is infinite, PQ007, PQ010
-- ----------------------------------------------------------------------
declare
    q     pgq.queue;
    last  pgq.tick_ring;
begin
    perform pgq._require_read_committed('ticker');
    select * into q from pgq.queue
        where queue_name = i_queue_name and queue_external_ticker and not queue_ticker_paused for update;
    if not found then
        raise exception 'queue not found or ticker disabled: %', i_queue_name using errcode = 'PQ001';
    end if;
    last := pgq._newest_tick(q.queue_id);
    if (i_tick_id > last.tick_id) is not true then
        raise exception 'tick id % is not greater than the last one, %', i_tick_id, last.tick_id
            using errcode = 'PQ006', hint = 'Ids of external ticks must rise; nothing was changed.';
    end if;
    if not isfinite(i_orig_timestamp) then
        raise exception 'tick time cannot be %', i_orig_timestamp
            using errcode = 'PQ006', hint = 'Tick times never go back, so no later tick could have a time.';
    end if;
    if i_event_seq > coalesce(pg_sequence_last_value(q.queue_event_seq::regclass), 0) then
        perform setval(q.queue_event_seq::regclass, i_event_seq);
    end if;
    last.tick_id := i_tick_id - 1;
    return pgq._make_tick(q, last, true, i_orig_timestamp);
end;
$$;
comment on function pgq.ticker(text, bigint, timestamptz, bigint) is 'External ticker: make a tick with a given id. Returns it.';


create or replace function pgq.poke(i_queue_name text)
returns bigint language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.poke(1)
--
--      What a ticker would do for this queue now, if nobody else is at it:
--      release delayed events that are due, or make a tick that is due. For
--      consumers that find nothing while no ticker runs: delivery then goes on
--      without it.
--
-- Returns:
--      id of the tick; 0 when delayed events were released, and a tick is due
--      for them; null: nothing due, paused, or somebody else is at it
-- Errors:
--      PQ001, PQ007, PQ010, 42501
-- ----------------------------------------------------------------------
declare
    q  pgq.queue := pgq._queue(i_queue_name, 'no such queue');
begin
    perform pgq._require_read_committed('poke');
    perform pgq._require_consume(q.queue_id, null);
    if q.queue_ticker_paused or q.queue_external_ticker then
        return null;
    end if;
    -- not both in one transaction: the tick could not show what this transaction released
    if pgq.release(i_queue_name) > 0 then
        return 0;
    end if;
    return pgq._tick_if_due(q, true);
end;
$$;
comment on function pgq.poke(text) is
'Release what is due or else make a tick that is due, if nobody else is at it. Returns the tick''s id, 0 after a release, or null.';


create or replace function pgq._locked_for_tick(i_queue_name text)
returns pgq.queue language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._locked_for_tick(1)
--
--      The queue, with its tick lock, for a caller who may force a tick.
-- Errors:
--      PQ001, PQ007, 42501
-- ----------------------------------------------------------------------
declare
    q  pgq.queue := pgq._queue(i_queue_name, 'no such queue');
begin
    perform pgq._require_read_committed('force_tick');
    perform pgq._require_consume(q.queue_id, null);
    select * into q from pgq.queue where queue_id = q.queue_id for update;
    if not found then
        raise exception 'no such queue' using errcode = 'PQ001', hint = 'The queue was dropped meanwhile.';
    end if;
    return q;
end;
$$;
comment on function pgq._locked_for_tick(text) is 'A queue with its tick lock, for a caller who may force a tick';


create or replace function pgq.tick_now(i_queue_name text)
returns bigint language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.tick_now(1)
--
--      Make a tick now, due or not.
--
-- Returns:
--      id of the tick; of the last one when the queue is paused or ticked from outside
-- Errors:
--      PQ001, PQ007, PQ010, 42501
-- ----------------------------------------------------------------------
declare
    q     pgq.queue := pgq._locked_for_tick(i_queue_name);
    last  pgq.tick_ring := pgq._newest_tick(q.queue_id);
begin
    if q.queue_ticker_paused or q.queue_external_ticker then
        return last.tick_id;
    end if;
    return pgq._make_tick(q, last, pgq._new_events(q, last));
end;
$$;
comment on function pgq.tick_now(text) is 'Make a tick now, due or not. Returns its id.';


create or replace function pgq.force_tick(i_queue_name text)
returns bigint language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.force_tick(1)
--
--      As tick_now(1), for PgQ's clients: they wait until the queue's last
--      tick is a later one than this returned, so it is the one before.
--
--      Where one of PgQ's ticker settings is given the event sequence makes
--      the leap that PgQ has its ticker woken by, for those who watch it.
-- Returns:
--      id of the last tick before this one; null when there is no such queue
-- Errors:
--      PQ007, PQ010, 42501
-- ----------------------------------------------------------------------
declare
    q     pgq.queue;
    last  pgq.tick_ring;
begin
    if not exists (select from pgq.queue where queue_name = i_queue_name) then
        return null;
    end if;
    q := pgq._locked_for_tick(i_queue_name);
    last := pgq._newest_tick(q.queue_id);
    if q.queue_ticker_paused or q.queue_external_ticker then
        return last.tick_id;
    end if;
    if coalesce(q.queue_ticker_max_count::text, q.queue_ticker_max_lag::text, q.queue_ticker_idle_period::text) is not null then
        perform setval(q.queue_event_seq::regclass, nextval(q.queue_event_seq::regclass)
                       + coalesce(q.queue_ticker_max_count, 500) * 2 + 1000);
    end if;
    perform pgq._make_tick(q, last, pgq._new_events(q, last));
    return last.tick_id;
end;
$$;
comment on function pgq.force_tick(text) is
'Make a tick now, due or not, as PgQ does: returns the id of the last one before it, for a client that waits for a later one.';


create or replace function pgq.queues_due(i_queues text[] default null)
returns setof text language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.queues_due(1)
--
--      Names of the queues for which a tick is due. Reads only.
--
--      A queue that cannot be looked at is named too, so that ticking it
--      shows its error and no other queue suffers.
-- Parameters:
--      i_queues  - look at these only; null: at all
-- ----------------------------------------------------------------------
declare
    q  pgq.queue;
begin
    for q in select * from pgq.queue
        where not queue_external_ticker and not queue_ticker_paused
          and (i_queues is null or queue_name = any (i_queues))
    loop
        begin
            continue when pgq._tick_due(q, pgq._newest_tick(q.queue_id)) is null;
        exception
            when others then null;
        end;
        return next q.queue_name;
    end loop;
end;
$$;
comment on function pgq.queues_due(text[]) is
'Names of the queues, of those given or of all (null), for which a tick is due; reads only.';
