-- Reading the few events of a small batch with a plan that is made once. To plan such
-- a statement costs three times what it costs to run it, and while a queue is calm and
-- nothing is in the processor's caches, a third of a millisecond.

create or replace function pgq._generate_read(q pgq.queue)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._generate_read(1)
--
--      (Re)create the queue's read function: what _window_sql selects, of one
--      slot, in ev_id order, in the columns of open_batch_events.
-- ----------------------------------------------------------------------
declare
    branches  text;
begin
    select string_agg(format($b$ when %1$s then return query
            select null::bigint, null::bigint, null::bigint, null::timestamptz, null::timestamptz, null::bigint,
                   null::bigint, null::bigint, null::boolean,
                   ev_id, ev_time, ev_txid::text::bigint, ev_retry, ev_type, ev_data,
                   ev_extra1, ev_extra2, ev_extra3, ev_extra4
            from (select * from pgq.%2$I where ev_txid >= i_low and ev_txid < i_high
                         and pg_visible_in_snapshot(ev_txid, i_snapshot)
                  union all
                  select * from pgq.%2$I where ev_txid = any (i_late)) e
            where (ev_owner is null or ev_owner = i_sub) and (i_after is null or ev_id > i_after)
            order by ev_id limit i_limit; $b$, nr, 'event_' || q.queue_id || '_' || nr), '' order by nr)
        into branches from generate_series(0, q.queue_ntables - 1) nr;
    execute format($f$
        create or replace function pgq.%I(
            i_slot bigint, i_sub int4, i_low xid8, i_high xid8, i_late xid8[], i_snapshot pg_snapshot,
            i_after bigint, i_limit bigint)
        returns table (batch_id bigint, cur_tick_id bigint, prev_tick_id bigint, cur_tick_time timestamptz,
            prev_tick_time timestamptz, cur_tick_event_seq bigint, prev_tick_event_seq bigint, acked_ev_id bigint,
            whole boolean, ev_id bigint, ev_time timestamptz, ev_txid bigint, ev_retry int4, ev_type text, ev_data text,
            ev_extra1 text, ev_extra2 text, ev_extra3 text, ev_extra4 text)
        language plpgsql as $b$
        #variable_conflict use_column
        begin
            case i_slot %s end case;
        end; $b$ $f$, '_read_' || q.queue_id, branches);
    execute format('comment on function pgq.%I is ''Events of a small batch of one queue; generated''', '_read_' || q.queue_id);
    execute format('revoke all on function pgq.%I from public', '_read_' || q.queue_id);
end;
$$;
comment on function pgq._generate_read(pgq.queue) is 'Generate the read function of a queue';


create or replace function pgq._used_slots(q pgq.queue, a pgq.tick_ring, b pgq.tick_ring)
returns int8[] language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._used_slots(3)
--
--      Numbers of the slots that may hold events of (a, b], at least one.
--
--      None that is empty now: what b shows was committed before b. Each once:
--      the ring passes a slot that VACUUM found to hold aborted rows only, and
--      then there are more generations than slots.
-- ----------------------------------------------------------------------
declare
    used  int8[] := '{}';
begin
    for g in greatest(a.lo, b.hi - q.queue_ntables + 1) .. b.hi - 1 loop
        if pgq._slot_bytes(pgq._slot('event_' || q.queue_id, q.queue_ntables, g)) > 0 then
            used := used || g % q.queue_ntables;
        end if;
    end loop;
    return used || b.hi % q.queue_ntables;
end;
$$;
comment on function pgq._used_slots(pgq.queue, pgq.tick_ring, pgq.tick_ring) is 'Slots that may hold events between two ticks';
