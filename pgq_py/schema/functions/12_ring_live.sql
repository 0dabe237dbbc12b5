-- What is live in each kind of ring.
--
--      event    a whole generation is dead when every cursor has left it
--      cursor   the newest row of every registration and of every queue's floor
--      tick     those that cursors refer to, the newest of each queue, and enough to seek by
--      delay    what is neither released nor cancelled (54_delay.sql)
--      dead     what is neither replayed nor purged (57_dead_letters.sql)
--      held     jobs that are not claimed or not finished (68_held.sql)
--      claim    claims that are open, the newest of each lane (68_held.sql)
--      key      keys that are taken (63_keys.sql)
--      beat     the last heartbeats of living workers (67_workers.sql)
--
-- Event slots are truncated whole. The others are evacuated: the few live rows
-- of a closed slot are copied into the current one and it is truncated, in one
-- transaction, under ACCESS EXCLUSIVE. A reader whose snapshot is older than that
-- sees neither the row nor its copy (TRUNCATE is not MVCC): it must retry in a
-- fresh statement and may never take a miss for an answer.

create or replace function pgq._events_dead(i_queue int4, i_generation bigint)
returns boolean language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._events_dead(2)
--
--      Does nobody need this generation of the queue's events any more?
--
--      The caller holds the event ring's lock, as do register and seek, so
--      no cursor moves backwards meanwhile; a cursor read a moment too early
--      is only more careful. Without consumers the newest tick decides.
--      Main consumers come before their subconsumers: a batch goes from the one
--      to the other in one transaction, and who sees the main consumer behind it
--      sees, in a later statement, the subconsumer that has it.
--      Retention is a cursor that stands at the last tick old enough.
-- ----------------------------------------------------------------------
declare
    sub   int4;
    kept  interval;
    aged  bigint;
begin
    if (pgq._newest_tick(i_queue)).lo <= i_generation then
        return false;
    end if;
    for sub in select sub_id from pgq.registration where sub_queue = i_queue
               order by sub_main nulls first loop
        if (pgq._cursor(sub)).lo <= i_generation then
            return false;
        end if;
    end loop;

    select queue_retention into kept from pgq.queue where queue_id = i_queue;
    if kept > interval '0' then
        select t.lo into aged from pgq.tick_ring t
            where t.tick_queue = i_queue and t.tick_time <= clock_timestamp() - kept
            order by t.tick_queue desc, t.tick_id desc limit 1;
        return coalesce(aged > i_generation, false);
    end if;
    return true;
end;
$$;
comment on function pgq._events_dead(int4, bigint) is 'Does nobody need a generation of events any more';


create or replace function pgq._raise_floor(i_queue int4, i_lo bigint)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._raise_floor(2)
--
--      Record that generations before i_lo are gone. In the truncating
--      transaction, so that no register_at or seek can choose a tick whose
--      events are no longer there.
-- ----------------------------------------------------------------------
declare
    floor_now  pgq.cursor_ring := pgq._cursor(-i_queue);
begin
    if i_lo > floor_now.lo then
        floor_now.lo := i_lo;
        perform pgq._move_cursor(floor_now);
    end if;
end;
$$;
comment on function pgq._raise_floor(int4, bigint) is 'Record that old generations of a queue are gone';


create or replace function pgq._live_cursors(i_slot text)
returns setof pgq.cursor_ring language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._live_cursors(1)
--
--      The rows of a closed slot of the cursor ring that are still needed.
-- ----------------------------------------------------------------------
begin
    return query execute format($q$
        select distinct on (c.sub_id) c.* from pgq.%I c
        where (c.sub_id, c.pos) in (select sub_id, max(pos) from pgq.cursor_ring group by sub_id)
          and (exists (select from pgq.registration where sub_id = c.sub_id)
               or exists (select from pgq.queue where queue_id = -c.sub_id))
        order by c.sub_id, c.pos desc $q$, i_slot);
end;
$$;
comment on function pgq._live_cursors(text) is 'Rows of a slot of the cursor ring that are still needed';


create or replace function pgq._cursor_ticks()
returns table (queue_id int4, tick_id int8) language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._cursor_ticks()
--
--      The ticks that cursors and lanes refer to.
--
--      A consumer that has read a tick and not yet committed its cursor
--      still has its lock on the tick's slot, so with that slot locked
--      every reference into it is committed and is seen here.
-- ----------------------------------------------------------------------
declare
    r  record;
    c  pgq.cursor_ring;
begin
    for r in select sub_id, sub_queue from pgq.registration loop
        c := pgq._cursor(r.sub_id);
        return query values (r.sub_queue, c.last_tick), (r.sub_queue, c.next_tick);
    end loop;
    return query select l.queue_id, unnest(array[s.base_tick, s.top_tick])
        from pgq.lane l cross join lateral pgq._lane_state(l.queue_id, l.lane) s;
end;
$$;
comment on function pgq._cursor_ticks() is 'Ticks that cursors refer to';


create or replace function pgq._live_ticks(i_slot text)
returns setof pgq.tick_ring language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._live_ticks(1)
--
--      The rows of a closed slot of the tick ring that are still needed.
--
--      Any two ticks bound a batch, so others may go. To seek by, one per
--      minute and per 10,000 events is kept while its events are: a consumer
--      stuck at 200 ticks a second would otherwise have all of them copied
--      again and again.
--
--      Which one is the newest is computed once for the whole ring: asked row
--      by row ("no later one exists"), 12,000 ticks took 13 seconds, with the
--      slot locked.
-- ----------------------------------------------------------------------
begin
    return query execute format($q$
        with floors as materialized (
            select q.queue_id, (pgq._cursor(-q.queue_id)).lo as lo from pgq.queue q
            union all
            select -q.queue_id, 9223372036854775807 from pgq.queue q),  -- of release marks, the newest alone
        referred as materialized (
            select queue_id, tick_id from pgq._cursor_ticks()),
        ranked as (
            select t.*, row_number() over (
                    partition by t.tick_queue, date_trunc('minute', t.tick_time), t.tick_event_seq / 10000
                    order by t.tick_id) as nth
            from pgq.%I t)
        select t.tick_queue, t.tick_id, t.tick_time, t.tick_snapshot, t.tick_event_seq, t.lo, t.hi, t.has_events
        from ranked t join floors f on f.queue_id = t.tick_queue
        where (t.nth = 1 and t.lo >= f.lo)
           or (t.tick_queue, t.tick_id) in (select queue_id, tick_id from referred)
           or (t.tick_queue, t.tick_id) in (
                  select tick_queue, max(tick_id) from pgq.tick_ring group by tick_queue) $q$, i_slot);
end;
$$;
comment on function pgq._live_ticks(text) is 'Rows of a slot of the tick ring that are still needed';


create or replace function pgq._mostly_dead(r pgq.ring, i_slot text)
returns boolean language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._mostly_dead(2)
--
--      Is a slot worth evacuating? Yes when its live rows are at most half
--      of it, or fewer than those written since into the current slot. Both
--      pay for the copies: a row is copied O(1) times per row written, and a
--      slot full of idle cursors cannot stop the ring for ever.
-- ----------------------------------------------------------------------
declare
    live     bigint;
    total    bigint;
    written  bigint;
begin
    execute format('select count(*) from pgq._live_%ss(%L)', r.ring_kind, i_slot) into live;
    execute format('select count(*) from pgq.%I', i_slot) into total;
    execute format('select count(*) from pgq.%I',
                   pgq._slot(r.ring_name, r.ring_slots, pgq._phase(r.ring_name) / 2)) into written;
    return live <= greatest(total / 2, written);
end;
$$;
comment on function pgq._mostly_dead(pgq.ring, text) is 'Is a slot worth evacuating';


create or replace function pgq._evacuate(r pgq.ring, i_slot text, g bigint)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._evacuate(3)
--
--      Copy the live rows of a closed slot, on which the caller holds ACCESS
--      EXCLUSIVE, into the current slot of generation g.
-- ----------------------------------------------------------------------
begin
    if r.ring_kind in ('claim', 'key') then
        perform pgq._note_move(r.ring_name);
    end if;
    if r.ring_kind = 'claim' then
        perform pgq._sweep_all();
        perform pgq._archive(i_slot);
    end if;
    execute format('insert into pgq.%I select * from pgq._live_%ss(%L)',
                   pgq._slot(r.ring_name, r.ring_slots, g), r.ring_kind, i_slot);
end;
$$;
comment on function pgq._evacuate(pgq.ring, text, bigint) is 'Copy the live rows of a slot into the current one';
