-- Reading the tick ring.
--
-- The current slot is looked at first: the answer is nearly always there, and a lock
-- on the previous slot, held to the end of a long transaction, would keep it from
-- being evacuated. A miss is retried over all slots in a fresh statement. The phase
-- and the slots are static SQL because these run on every poll.
--
-- A session keeps its plans. One made when a slot had just been truncated and then
-- analyzed reads the whole slot, however it has grown since: hence enable_seqscan. And
-- hence jit: before 18 the planner adds 10,000,000,000 to the cost of a scan that is
-- switched off and has no alternative, and what costs so much is compiled first, for some
-- tenths of a second.

create or replace function pgq._newest_tick(i_queue int4)
returns pgq.tick_ring language plpgsql set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq._newest_tick(1)
--
--      The queue's newest tick; null when the queue has been dropped.
-- Errors:
--      PQ012, 40001  - there is none; every queue has one from its creation on
-- ----------------------------------------------------------------------
declare
    t  pgq.tick_ring;
begin
    case pg_sequence_last_value('pgq.tick_ring_phase'::regclass) / 2 % 3
        when 0 then
            select * into t from pgq.tick_ring_0 where tick_queue = i_queue
                order by tick_queue desc, tick_id desc limit 1;
        when 1 then
            select * into t from pgq.tick_ring_1 where tick_queue = i_queue
                order by tick_queue desc, tick_id desc limit 1;
        else
            select * into t from pgq.tick_ring_2 where tick_queue = i_queue
                order by tick_queue desc, tick_id desc limit 1;
    end case;
    for attempt in 1 .. 10 loop
        exit when t.tick_id is not null;
        select * into t from pgq.tick_ring where tick_queue = i_queue
            order by tick_queue desc, tick_id desc limit 1;
    end loop;
    if t.tick_id is null and exists (select from pgq.queue where queue_id = abs(i_queue)) then
        perform pgq._raise_missing(format('queue %s has no tick', i_queue));
    end if;
    return t;
end;
$$;
comment on function pgq._newest_tick(int4) is 'Newest tick of a queue';


create or replace function pgq._find_tick(i_queue int4, i_tick bigint)
returns pgq.tick_ring language plpgsql set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq._find_tick(2)
--
--      One tick, or null when it does not exist (any more).
-- ----------------------------------------------------------------------
declare
    t  pgq.tick_ring;
begin
    case pg_sequence_last_value('pgq.tick_ring_phase'::regclass) / 2 % 3
        when 0 then
            select * into t from pgq.tick_ring_0 where tick_queue = i_queue and tick_id = i_tick;
        when 1 then
            select * into t from pgq.tick_ring_1 where tick_queue = i_queue and tick_id = i_tick;
        else
            select * into t from pgq.tick_ring_2 where tick_queue = i_queue and tick_id = i_tick;
    end case;
    for attempt in 1 .. 3 loop
        exit when t.tick_id is not null;
        select * into t from pgq.tick_ring where tick_queue = i_queue and tick_id = i_tick;
    end loop;
    return t;
end;
$$;
comment on function pgq._find_tick(int4, bigint) is 'One tick of a queue, or null';


create or replace function pgq._cursor_tick(i_queue int4, i_tick bigint)
returns pgq.tick_ring language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._cursor_tick(2)
--
--      A tick that a cursor or a lane refers to; it must exist.
-- Errors:
--      40001  - whoever stood at it, and was not locked, has gone on meanwhile
--      PQ012  - it does not, though somebody stands at it
-- ----------------------------------------------------------------------
declare
    t  pgq.tick_ring := pgq._find_tick(i_queue, i_tick);
begin
    if t.tick_id is null then
        if not exists (select from pgq._cursor_ticks() where queue_id = i_queue and tick_id = i_tick) then
            raise exception 'tick % of queue % was left at this moment', i_tick, i_queue
                using errcode = '40001', detail = 'Nothing was changed.', hint = 'Repeat the call.';
        end if;
        perform pgq._raise_missing(format('PgQ corruption: tick %s of queue %s is gone though a consumer stands at it',
                                          i_tick, i_queue));
    end if;
    return t;
end;
$$;
comment on function pgq._cursor_tick(int4, bigint) is 'A tick that a cursor refers to';


create or replace function pgq._ticks_after(i_queue int4, i_tick bigint)
returns refcursor language plpgsql set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq._ticks_after(2)
--
--      Cursor on the ticks of a queue behind one of them, rising. The caller
--      closes it.
--
--      When that one is in the current slot, so are all later ones: slots are
--      filled one after the other, and an evacuation leaves nothing behind. Then
--      no other slot is locked. Consumers that work in long transactions, with
--      never a moment without one, would keep the ring from being evacuated.
-- ----------------------------------------------------------------------
declare
    ticks  refcursor;
begin
    case pg_sequence_last_value('pgq.tick_ring_phase'::regclass) / 2 % 3
        when 0 then
            if exists (select from pgq.tick_ring_0 where tick_queue = i_queue and tick_id = i_tick) then
                open ticks for select * from pgq.tick_ring_0
                    where tick_queue = i_queue and tick_id > i_tick order by tick_queue, tick_id;
            end if;
        when 1 then
            if exists (select from pgq.tick_ring_1 where tick_queue = i_queue and tick_id = i_tick) then
                open ticks for select * from pgq.tick_ring_1
                    where tick_queue = i_queue and tick_id > i_tick order by tick_queue, tick_id;
            end if;
        else
            if exists (select from pgq.tick_ring_2 where tick_queue = i_queue and tick_id = i_tick) then
                open ticks for select * from pgq.tick_ring_2
                    where tick_queue = i_queue and tick_id > i_tick order by tick_queue, tick_id;
            end if;
    end case;
    if ticks is null then
        open ticks for select * from pgq.tick_ring
            where tick_queue = i_queue and tick_id > i_tick order by tick_queue, tick_id;
    end if;
    return ticks;
end;
$$;
comment on function pgq._ticks_after(int4, bigint) is 'Cursor on the ticks of a queue behind one of them';


create or replace function pgq._choose_tick(
    i_queue int4, i_last pgq.tick_ring, i_max_events bigint,
    i_min_lag interval, i_min_count bigint, i_min_interval interval)
returns pgq.tick_ring language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._choose_tick(6)
--
--      The tick at which the next batch ends, or null when there is none.
--
--      Plain (all null): the first tick with events, so that a run of empty
--      windows is one batch; the newest when none has any.
--      i_max_events: as many windows as have about that many events together,
--      at least one with events.
--      i_min_count, i_min_interval: the first tick that far away; null when
--      none is. i_min_lag: none younger than that.
--
--      A scan may miss ticks that are being evacuated. It then finds a later
--      one or none, and both are right answers: any two ticks bound a batch.
-- ----------------------------------------------------------------------
declare
    t           pgq.tick_ring;
    chosen      pgq.tick_ring;
    found_any   boolean := false;
    last_count  bigint := i_last.tick_event_seq + coalesce(i_max_events, 0);
    ticks       refcursor := pgq._ticks_after(i_queue, i_last.tick_id);
begin
    loop
        fetch ticks into t;
        exit when not found;
        exit when i_min_lag is not null and t.tick_time > clock_timestamp() - i_min_lag;
        if i_min_count is not null or i_min_interval is not null then
            continue when not coalesce(t.tick_event_seq - i_last.tick_event_seq >= i_min_count, false)
                      and not coalesce(t.tick_time - i_last.tick_time >= i_min_interval, false);
            chosen := t;
            exit;
        end if;
        exit when found_any and (i_max_events is null or t.tick_event_seq > last_count);
        chosen := t;
        found_any := found_any or t.has_events;
    end loop;
    close ticks;
    return chosen;
end;
$$;
comment on function pgq._choose_tick(int4, pgq.tick_ring, bigint, interval, bigint, interval) is 'Tick at which the next batch ends';


create or replace function pgq._store_tick(t pgq.tick_ring)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._store_tick(1)
--
--      Append a tick. The caller holds the queue's tick lock.
-- ----------------------------------------------------------------------
begin
    case pg_sequence_last_value('pgq.tick_ring_phase'::regclass) / 2 % 3
        when 0 then insert into pgq.tick_ring_0 values (t.*);
        when 1 then insert into pgq.tick_ring_1 values (t.*);
        else insert into pgq.tick_ring_2 values (t.*);
    end case;
end;
$$;
comment on function pgq._store_tick(pgq.tick_ring) is 'Append a tick';
