-- What functions that are generated for a queue have in common: statements with the slots written in.

create or replace function pgq._in_slot_sql(i_ring text, i_slots int4, i_generation text, i_statement text)
returns text language sql as $$
    -- A statement for the slot of this generation (an expression); SLOT stands for the table
    select format('case %s %% %s ', i_generation, i_slots)
           || string_agg(format('when %s then %s; ', nr, replace(i_statement, 'SLOT', format('pgq.%I', i_ring || '_' || nr))), '' order by nr)
           || 'end case;'
    from generate_series(0, i_slots - 1) nr
$$;
comment on function pgq._in_slot_sql(text, int4, text, text) is 'SQL: a statement for a slot of a ring';


create or replace function pgq._in_current_slot_sql(i_ring text, i_statement text)
returns text language sql as $$
    -- The same for the current slot of one of the rings that all queues share
    select pgq._in_slot_sql(i_ring, 3, format('pg_sequence_last_value(%L::regclass) / 2', format('pgq.%I', i_ring || '_phase')), i_statement)
$$;
comment on function pgq._in_current_slot_sql(text, text) is 'SQL: a statement for the current slot of a ring';


create or replace function pgq._newest_tick_sql(q pgq.queue, i_into text)
returns text language sql as $$
    -- What _newest_tick() does
    select pgq._in_current_slot_sql('tick_ring', format(
        'select * into %s from SLOT where tick_queue = %s order by tick_queue desc, tick_id desc limit 1', i_into, q.queue_id))
$$;
comment on function pgq._newest_tick_sql(pgq.queue, text) is 'SQL: the newest tick of a queue';


create or replace function pgq._tick_sql(q pgq.queue, i_tick text, i_into text)
returns text language sql as $$
    -- The tick of this number (an expression)
    select pgq._in_current_slot_sql('tick_ring', format(
        'select * into %s from SLOT where tick_queue = %s and tick_id = %s', i_into, q.queue_id, i_tick))
$$;
comment on function pgq._tick_sql(pgq.queue, text, text) is 'SQL: a tick of a queue';


create or replace function pgq._lock_ticks_sql(q pgq.queue)
returns text language sql as $$
    -- FOUND is true when the tick lock is held from here on, and ticks are on demand
    select format('perform from pgq.queue where queue_id = %s and not queue_ticker_paused and not queue_external_ticker'
                  ' and queue_ticker_max_count is null and queue_ticker_max_lag is null and queue_ticker_idle_period is null'
                  ' for update skip locked;', q.queue_id)
$$;
comment on function pgq._lock_ticks_sql(pgq.queue) is 'SQL: take the lock under which a queue is ticked on demand';


create or replace function pgq._store_tick_sql(q pgq.queue, i_last text)
returns text language sql as $$
    -- Make the tick n, of which snapshot and hi are there, as _make_tick() does. v is the phase before
    -- the snapshot; the record i_last is the newest tick, read under the tick lock
    select format($f$
        n.tick_queue := %1$s;
        n.tick_id := %2$s.tick_id + 1;
        n.tick_time := greatest(clock_timestamp(), %2$s.tick_time);
        n.tick_event_seq := pg_sequence_last_value(%3$L::regclass);
        n.lo := v / 2 - 1 + v %% 2;
        n.has_events := true;
        %4$s$f$,
        q.queue_id, i_last, q.queue_event_seq, pgq._in_current_slot_sql('tick_ring', 'insert into SLOT values (n.*)'))
$$;
comment on function pgq._store_tick_sql(pgq.queue, text) is 'SQL: make a tick';


create or replace function pgq._tell_tick_sql(q pgq.queue)
returns text language sql as $$
    -- Notify of the tick n, as _make_tick() does
    select format('perform pg_notify(''pgq_tick_%s'', n.tick_id::text);', q.queue_id)
$$;
comment on function pgq._tell_tick_sql(pgq.queue) is 'SQL: notify of a tick';
