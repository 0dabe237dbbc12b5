-- Ticks: when one is needed, and making it.
--
-- The tick lock of a queue is its row in pgq.queue, FOR UPDATE. A tick stores the
-- ring's phase before and after its snapshot, as lo and hi: events that the snapshot
-- does not show, but an earlier slot may still get, are in slots from lo on; what it
-- shows is in slots up to hi.

create or replace function pgq._require_same_cluster(i_last pgq.tick_ring, i_now pg_snapshot)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._require_same_cluster(2)
--
--      Refuse to go on from a tick of another cluster. Its transaction ids
--      are ahead of ours, so that no event would ever look new: delivery
--      would stop without a word.
--
-- Parameters:
--      i_last  - last tick of a queue
--      i_now   - a snapshot taken since it was read
-- Errors:
--      PQ010   - the cluster's transaction ids are behind those of the tick
-- ----------------------------------------------------------------------
begin
    if pg_snapshot_xmax(i_now) < pg_snapshot_xmax(i_last.tick_snapshot) then
        raise exception 'Invalid PgQ state: last tick has xmax=%, the cluster is at %',
                pg_snapshot_xmax(i_last.tick_snapshot), pg_snapshot_xmax(i_now)
            using errcode = 'PQ010',
                  detail = 'The database was restored from a dump of another cluster; its positions mean nothing here. Nothing was changed.',
                  hint = 'Keep the ticker stopped and restore a physical backup, or start the queue anew.';
    end if;
end;
$$;
comment on function pgq._require_same_cluster(pgq.tick_ring, pg_snapshot) is 'Refuse to go on from a tick of another cluster';


create or replace function pgq._new_events(q pgq.queue, i_last pgq.tick_ring)
returns boolean language plpgsql set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq._new_events(2)
--
--      Is an event visible now that was not visible in the last tick?
--
--      Simple version: exists a visible row with ev_txid >= xmax(last) or
--      ev_txid in xip(last). Comparing event sequences instead would leave
--      a late commit waiting until somebody sends the next event.
--      1. Empty slots are not opened: most queues are idle.
--      2. Only between the transactions that run now: a bulk load in progress
--         has millions of rows that an index scan would visit to find each
--         of them invisible.
--      3. The first of these gaps is looked at alone: mostly there is no other,
--         or it has an event already, and planning that costs a third as much.
--      4. order by .. limit 1, or a slot without statistics is read in full.
--         enable_seqscan, or one with statistics is, after a bulk load: they
--         say that every event is of that one transaction.
-- Errors:
--      PQ010  - the last tick is of another cluster
-- ----------------------------------------------------------------------
declare
    ring   text := 'event_' || q.queue_id;
    now_s  pg_snapshot := pg_current_snapshot();
    start  xid8 := pg_snapshot_xmax(i_last.tick_snapshot);
    busy   xid8[];
    late   xid8[];
    slot   text;
    hit    boolean;
begin
    if pg_snapshot_xmax(now_s) < start then
        perform pgq._require_same_cluster(i_last, now_s);
    end if;
    for g in i_last.lo .. pgq._phase(ring) / 2 loop
        slot := pgq._slot(ring, q.queue_ntables, g);
        continue when pgq._slot_bytes(slot) = 0;
        if busy is null then
            busy := array(select x from pg_snapshot_xip(now_s) x where x >= start order by x) || pg_snapshot_xmax(now_s);
            late := array(select pg_snapshot_xip(i_last.tick_snapshot) except select pg_snapshot_xip(now_s));
        end if;
        execute format('select true from pgq.%I where ev_txid >= $1 and ev_txid < $2 order by ev_txid limit 1', slot)
            into hit using start, busy[1];
        if hit is null and cardinality(busy) + cardinality(late) > 1 then
            execute format($q$
                select exists (select from unnest($1, $2) gap(low, high), lateral (
                                   select from pgq.%1$I where ev_txid > low and ev_txid < high
                                   order by ev_txid limit 1) e)
                    or exists (select from unnest($3) late(x), lateral (
                                   select from pgq.%1$I where ev_txid = x order by ev_txid limit 1) e) $q$, slot)
                into hit using trim_array(busy, 1), busy[2:], late;
        end if;
        if hit then
            return true;
        end if;
    end loop;
    return false;
end;
$$;
comment on function pgq._new_events(pgq.queue, pgq.tick_ring) is 'Is there an event that the last tick did not show';


create or replace function pgq._frees_slot(q pgq.queue, i_last pgq.tick_ring)
returns boolean language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._frees_slot(2)
--
--      Would a tick let consumers leave a closed slot that holds rows? They
--      pass it as an empty batch, and an idle queue's last slot can go.
-- ----------------------------------------------------------------------
declare
    ring  text := 'event_' || q.queue_id;
    v     bigint := pgq._phase(ring);
begin
    if v % 2 = 1 then
        for g in i_last.lo .. v / 2 - 1 loop
            if pgq._slot_bytes(pgq._slot(ring, q.queue_ntables, g)) > 0 then
                return true;
            end if;
        end loop;
    end if;
    return false;
end;
$$;
comment on function pgq._frees_slot(pgq.queue, pgq.tick_ring) is 'Would a tick let consumers leave a closed slot';


create or replace function pgq._tick_due(q pgq.queue, i_last pgq.tick_ring)
returns boolean language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._tick_due(2)
--
--      Is it time for a tick?
--
--      On demand, that is with none of the three ticker settings given: as
--      soon as there is a new event, and not before. With one of them given,
--      as PgQ does: enough events, or old enough, or idle for long enough.
-- Returns:
--      true   - yes, there are new events
--      false  - yes, though there are none
--      null   - no
-- ----------------------------------------------------------------------
declare
    fresh  boolean := pgq._new_events(q, i_last);
    lag    interval := clock_timestamp() - i_last.tick_time;
    count  bigint;
begin
    if coalesce(q.queue_ticker_max_count::text, q.queue_ticker_max_lag::text, q.queue_ticker_idle_period::text) is null then
        if fresh then
            return true;
        end if;
    elsif fresh then
        count := coalesce(pg_sequence_last_value(q.queue_event_seq::regclass), 0) - i_last.tick_event_seq;
        if count >= coalesce(q.queue_ticker_max_count, 500)
           or lag >= coalesce(q.queue_ticker_max_lag, interval '3 seconds') then
            return true;
        end if;
    elsif lag >= q.queue_ticker_idle_period then
        return false;
    end if;
    if pgq._frees_slot(q, i_last) then
        return fresh;
    end if;
    return null;
end;
$$;
comment on function pgq._tick_due(pgq.queue, pgq.tick_ring) is 'Is it time for a tick: true with new events, false without, null for no';


create or replace function pgq._with_self(i_snapshot pg_snapshot)
returns pg_snapshot language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._with_self(1)
--
--      The snapshot with the current transaction among those in progress.
--
--      pg_current_snapshot() leaves it out, so an event that it sends after
--      its own tick would count as seen and never be delivered.
-- ----------------------------------------------------------------------
declare
    self  xid8 := pg_current_xact_id();
begin
    if self >= pg_snapshot_xmax(i_snapshot) then
        return i_snapshot;
    end if;
    return (select format('%s:%s:%s', (array_agg(x order by x))[1], pg_snapshot_xmax(i_snapshot), string_agg(x::text, ',' order by x))
            from (select pg_snapshot_xip(i_snapshot) union select self) running(x))::pg_snapshot;
end;
$$;
comment on function pgq._with_self(pg_snapshot) is 'A snapshot with the current transaction among those in progress';


create or replace function pgq._make_tick(
    q pgq.queue, i_last pgq.tick_ring, i_has_events boolean, i_time timestamptz default null)
returns bigint language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._make_tick(4)
--
--      Append a tick. The caller holds the tick lock and has read the last
--      tick after it. Three statements, in this order: phase, snapshot, phase.
--      Its time is i_time, or now, but never before the last tick's. Consumers
--      that LISTEN on pgq_tick_<queue id> are woken when it commits; not by the
--      first tick, so that create_queue can be part of a prepared transaction.
-- Returns:
--      id of the tick
-- Errors:
--      PQ010  - the cluster's transaction ids are behind those of the last tick
-- ----------------------------------------------------------------------
declare
    phase  regclass := 'pgq.event_' || q.queue_id || '_phase';
    t      pgq.tick_ring;
    v1     bigint;
    v2     bigint;
    s      pg_snapshot;
begin
    v1 := pg_sequence_last_value(phase);
    select pg_current_snapshot() into s;
    v2 := pg_sequence_last_value(phase);
    if pg_snapshot_xmax(s) < pg_snapshot_xmax(i_last.tick_snapshot) then
        perform pgq._require_same_cluster(i_last, s);
    end if;
    if pg_current_xact_id() < pg_snapshot_xmax(s) then
        s := pgq._with_self(s);
    end if;

    t.tick_queue := q.queue_id;
    t.tick_id := coalesce(i_last.tick_id, 0) + 1;
    t.tick_time := greatest(coalesce(i_time, clock_timestamp()), i_last.tick_time);
    t.tick_snapshot := s;
    t.tick_event_seq := coalesce(pg_sequence_last_value(q.queue_event_seq::regclass), 0);
    t.lo := v1 / 2 - 1 + v1 % 2;
    t.hi := v2 / 2;
    t.has_events := i_has_events;
    perform pgq._store_tick(t);
    if t.tick_id > 1 then
        perform pg_notify('pgq_tick_' || q.queue_id, t.tick_id::text);
    end if;
    return t.tick_id;
end;
$$;
comment on function pgq._make_tick(pgq.queue, pgq.tick_ring, boolean, timestamptz) is 'Append a tick';


create or replace function pgq._announced(q pgq.queue, i_last pgq.tick_ring)
returns boolean language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._announced(2)
--
--      When an event was announced: must it be one that the last tick did not
--      show? Knows it of an on-demand queue in quiet times, without looking
--      at any event: ids were drawn since, and every transaction that began
--      before this one is over. False where it does not know. (Rolled back,
--      they make for a tick without events, which consumers pass.)
--
--      Having an id of its own it knows the others: without one, a snapshot
--      does not tell of those that began after the last one that ended.
-- ----------------------------------------------------------------------
declare
    self  xid8;
    s     pg_snapshot;
begin
    if q.queue_ticker_max_count is not null or q.queue_ticker_max_lag is not null or q.queue_ticker_idle_period is not null
       or (pg_sequence_last_value(q.queue_event_seq::regclass) > i_last.tick_event_seq) is not true then
        return false;
    end if;
    self := pg_current_xact_id();
    select pg_current_snapshot() into s;
    return pg_snapshot_xmin(s) = self and self >= pg_snapshot_xmax(i_last.tick_snapshot);
end;
$$;
comment on function pgq._announced(pgq.queue, pgq.tick_ring) is 'Is an announced event surely a new one';


create or replace function pgq._tick_if_due(q pgq.queue, i_skip_locked boolean, i_announced boolean default false)
returns bigint language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._tick_if_due(3)
--
--      Look whether a tick is due; if so, lock, look again, and make it.
--
--      The first look takes no lock: locking a row writes WAL, and mostly
--      there is nothing to do. The second is needed only if somebody has made
--      a tick meanwhile.
-- Parameters:
--      i_skip_locked  - null as well when somebody else has the lock
--      i_announced    - a producer has notified: see _announced
-- Returns:
--      id of the tick, or null
-- ----------------------------------------------------------------------
declare
    locked  pgq.queue;
    seen    pgq.tick_ring := pgq._newest_tick(q.queue_id);
    last    pgq.tick_ring;
    due     boolean;
begin
    if i_announced and pgq._announced(q, seen) then
        due := true;
    else
        due := pgq._tick_due(q, seen);
    end if;
    if due is null then
        return null;
    end if;
    if i_skip_locked then
        select * into locked from pgq.queue where queue_id = q.queue_id for update skip locked;
    else
        select * into locked from pgq.queue where queue_id = q.queue_id for update;
    end if;
    if locked.queue_id is null or locked.queue_ticker_paused or locked.queue_external_ticker then
        return null;
    end if;
    last := pgq._newest_tick(q.queue_id);
    if last.tick_id <> seen.tick_id then
        due := pgq._tick_due(locked, last);
        if due is null then
            return null;
        end if;
    end if;
    return pgq._make_tick(locked, last, due);
end;
$$;
comment on function pgq._tick_if_due(pgq.queue, boolean, boolean) is 'Make a tick if one is due';


create or replace function pgq._require_ticking(q pgq.queue)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._require_ticking(1)
--
--      Refuse queues that our ticker may not tick.
-- Errors:
--      PQ011  - ticks come from outside
--      PQ004  - paused
-- ----------------------------------------------------------------------
begin
    if q.queue_external_ticker then
        raise exception 'This queue has external tick source.' using errcode = 'PQ011';
    end if;
    if q.queue_ticker_paused then
        raise exception 'Ticker has been paused for this queue'
            using errcode = 'PQ004', hint = 'Events are kept; pgq.resume_queue(queue) goes on with delivery.';
    end if;
end;
$$;
comment on function pgq._require_ticking(pgq.queue) is 'Refuse queues that are paused or ticked from outside';
