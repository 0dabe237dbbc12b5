-- Lanes: where one stands, and which jobs come next in it. Reads only; 65_claim.sql writes.
--
-- A lane stands at a position (ev_txid, ev_id) of a window (base, top] of ticks. What a window
-- holds never changes any more, so the next jobs are the next rows behind the position.
--
-- When the window is used up, (top, newest tick] is the next. Within a window the order is
-- that of transactions, those first that were running at base and are over at top.

create or replace function pgq._lane_state(i_queue int4, i_lane int2)
returns pgq.claim_ring language plpgsql set enable_seqscan = off set jit = off set enable_sort = off set enable_bitmapscan = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq._lane_state(2)
--
--      Newest claim of a lane: where it stands. As _cursor(1), in every respect; and
--      without a sort, or a plan made on an empty slot takes another index of the lane
--      and reads all of its claims ever after.
-- Errors:
--      PQ001  - its queue has been dropped
--      PQ012, 40001  - it has none; every lane has one from the start
-- ----------------------------------------------------------------------
declare
    c  pgq.claim_ring;
begin
    case pg_sequence_last_value('pgq.claim_ring_phase'::regclass) / 2 % 3
        when 0 then
            select * into c from pgq.claim_ring_0 where queue_id = i_queue and lane = i_lane and ev_ids is not null
                order by queue_id desc, lane desc, claim_id desc limit 1;
        when 1 then
            select * into c from pgq.claim_ring_1 where queue_id = i_queue and lane = i_lane and ev_ids is not null
                order by queue_id desc, lane desc, claim_id desc limit 1;
        else
            select * into c from pgq.claim_ring_2 where queue_id = i_queue and lane = i_lane and ev_ids is not null
                order by queue_id desc, lane desc, claim_id desc limit 1;
    end case;
    for attempt in 1 .. 10 loop
        exit when c.claim_id is not null;
        select * into c from pgq.claim_ring where queue_id = i_queue and lane = i_lane and ev_ids is not null
            order by queue_id desc, lane desc, claim_id desc limit 1;
    end loop;
    if c.claim_id is null then
        if not exists (select from pgq.lane where queue_id = i_queue and lane = i_lane) then
            raise exception 'No such queue' using errcode = 'PQ001', hint = 'The queue was dropped meanwhile.';
        end if;
        perform pgq._raise_missing(format('lane %s of queue %s has no cursor', i_lane, i_queue));
    end if;
    return c;
end;
$$;
comment on function pgq._lane_state(int4, int2) is 'Newest claim of a lane';


create or replace function pgq._next_xid(i_xid xid8)
returns xid8 language sql immutable as $$
    select (i_xid::text::numeric + 1)::text::xid8
$$;
comment on function pgq._next_xid(xid8) is 'The transaction id that follows';


create or replace function pgq._gaps(a pg_snapshot, b pg_snapshot, i_after xid8, out lows xid8[], out highs xid8[])
returns record language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._gaps(3)
--
--      The transactions of a window as ranges [low, high), rising: those that ran at
--      a and are over at b, one by one, then all from xmax(a) to xmax(b) but those that
--      run at b. A bulk load in progress has millions of rows that a scan would visit to
--      find each of them invisible: the ranges leave it out.
--
-- Parameters:
--      a, b     - snapshots of the window's ticks
--      i_after  - ranges that end at or before it are left out
-- ----------------------------------------------------------------------
declare
    start  xid8 := pg_snapshot_xmax(a);
    stop   xid8 := pg_snapshot_xmax(b);
    busy   xid8[];
begin
    if pg_snapshot_xmin(a) = start and pg_snapshot_xmin(b) = stop then
        lows := array[start];
        highs := array[stop];
        return;
    end if;
    busy := array(select x from pg_snapshot_xip(b) x where x >= start order by x);
    select array_agg(low order by low), array_agg(high order by low) into lows, highs from (
        select x, pgq._next_xid(x) from pg_snapshot_xip(a) x where pg_visible_in_snapshot(x, b)
        union all
        select * from unnest(start || array(select pgq._next_xid(x) from unnest(busy) x), busy || stop)) g(low, high)
        where low < high and high > i_after;
end;
$$;
comment on function pgq._gaps(pg_snapshot, pg_snapshot, xid8) is 'Transactions of a window as ranges';


create or replace function pgq._next_in_lane(
    q pgq.queue, c pgq.claim_ring, i_newest pgq.tick_ring, i_n int4)
returns pgq.claim_ring language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._next_in_lane(4)
--
--      What the next claim of a lane that stands at c would be: the jobs and where the
--      lane stands then. With one more row than asked for it finds out whether anything
--      is left, which saves the next claim a look.
--
-- Parameters:
--      i_n  - at most so many jobs
-- Returns:
--      the claim, without number and token, not written; null when there is none
-- ----------------------------------------------------------------------
declare
    a       pgq.tick_ring;
    b       pgq.tick_ring;
    picked  record;
begin
    if c.exhausted then
        if c.top_tick >= i_newest.tick_id then
            return null;
        end if;
        a := pgq._cursor_tick(c.queue_id, c.top_tick);
        b := i_newest;
        c.base_tick := a.tick_id;
        c.top_tick := b.tick_id;
        c.to_txid := '0';
        c.to_id := 0;
        c.lo := a.lo;
        c.hi := b.hi;
        select lows, highs into c.lows, c.highs from pgq._gaps(a.tick_snapshot, b.tick_snapshot, '0');
    elsif c.lows is null then
        a := pgq._cursor_tick(c.queue_id, c.base_tick);
        b := pgq._cursor_tick(c.queue_id, c.top_tick);
        select lows, highs into c.lows, c.highs from pgq._gaps(a.tick_snapshot, b.tick_snapshot, c.to_txid);
    end if;
    execute 'select * from pgq.' || pgq._job_function('next_jobs', q) || '($1, $2, $3, $4, $5, $6, $7, $8)'
        into picked using c.lane, c.lows, c.highs, c.to_txid, c.to_id, i_n + 1, c.lo, c.hi;
    if picked.ids is null then
        return null;
    end if;
    c.exhausted := cardinality(picked.ids) <= i_n;
    c.ev_ids := picked.ids[:i_n];
    c.from_txid := picked.txids[1];
    c.from_id := picked.ids[1];
    c.to_txid := picked.txids[cardinality(c.ev_ids)];
    c.to_id := c.ev_ids[cardinality(c.ev_ids)];
    c.keyed := picked.keyed;
    if c.exhausted or cardinality(c.lows) > 16 then
        -- too long to be carried from claim to claim
        c.lows := null;
        c.highs := null;
    end if;
    return c;
end;
$$;
comment on function pgq._next_in_lane(pgq.queue, pgq.claim_ring, pgq.tick_ring, int4) is 'What the next claim of a lane would be';
