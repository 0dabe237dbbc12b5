-- Opening and reading a small batch, as one function per queue.
--
-- A consumer that keeps up is told of every event, and opens a batch for it. What that costs is
-- PL/pgSQL itself: each function that is entered and each expression is set up anew in each
-- transaction, and dynamic statements are planned, while nothing is in the processor's caches.
-- Composed of the parts in 20_tick_read, 21_cursor, 40_ticker and 51_next_batch it takes some thirty
-- functions; here it is one, with the same statements in the same order and plans that are made
-- once (and kept: the planner would make a new one each time, for these parameters).
-- It does what nearly every call needs and leaves the rest to the parts: an on-demand queue,
-- a consumer that stands at a tick of the current slot with no batch open, events of one slot.

create or replace function pgq._open_name(i_queue_id int4, i_queue_name text)
returns text language sql immutable as $$
    -- as _produce_name(2), and for the same reason
    select 'open_' || i_queue_id || '_' || left(md5(i_queue_name), 8)
$$;
comment on function pgq._open_name(int4, text) is 'Name of the function that opens a queue''s small batches';


create or replace function pgq._generate_open(q pgq.queue)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._generate_open(1)
--
--      (Re)create the queue's open function; see opener_function for what it does.
--
--      1. Nothing new and no tick asked for: neither a lock nor a row.
--      2. The registration is locked before the queue, as by the parts, and its
--         cursor is read after that. Who waits for another worker of this
--         consumer must not hold the tick lock meanwhile: hence skip locked.
--      3. The tick: as _announced(), with more that it knows for sure. Every event
--         that was announced is of a transaction that is over. When all that run
--         now ran already when the last tick was made, this tick shows them all,
--         and if ids were drawn since, one of these is new. So a transaction that
--         stays open for hours elsewhere makes no difference. (Of those that run, a
--         snapshot tells only up to its xmax; ours has to be that far.) Otherwise
--         an event is looked for before the first of them and behind the last. If there
--         is none, the parts look everywhere; in a rush the ticker's next tick will do.
--      4. All windows up to the newest tick, if they have not more than max_events
--         events: what _choose_tick() would choose.
--      5. To peek takes no lock on the registration. So whatever is left to the parts
--         first takes it, if it is free, where the tick lock may be held; who has it is
--         at work for this consumer.
-- ----------------------------------------------------------------------
declare
    fn       text := format('pgq.%I', pgq._open_name(q.queue_id, q.queue_name));
    phase    text := format('pg_sequence_last_value(%L::regclass)', format('pgq.%I', 'event_' || q.queue_id || '_phase'));
    seq      text := format('pg_sequence_last_value(%L::regclass)', q.queue_event_seq);
    parts    text := format('return query select * from pgq.open_batch_events(%L, i_consumer_name, i_max_events, i_at_once, ', q.queue_name);
    guard    text := 'if i_peek and i_tick is not false then'
                     ' perform from pgq.registration where sub_id = sub for update skip locked; if not found then return; end if; end if; ';
    find     text := format('select sub_id into sub from pgq.registration join pgq.consumer on co_id = sub_consumer'
                            ' where sub_queue = %s and co_name = i_consumer_name and sub_main is null', q.queue_id);
    cursors  text := pgq._in_current_slot_sql('cursor_ring',
                         'select * into c from SLOT where sub_id = sub order by sub_id desc, pos desc limit 1');
    move     text := pgq._in_current_slot_sql('cursor_ring', 'insert into SLOT values (c.*)');
    ring     text := 'event_' || q.queue_id;
    events   text := pgq._in_slot_sql(ring, q.queue_ntables, 'n.hi', $b$return query
                select null::bigint, null::bigint, null::bigint, null::timestamptz, null::timestamptz, null::bigint,
                       null::bigint, null::bigint, null::boolean,
                       ev_id, ev_time, ev_txid::text::bigint, ev_retry, ev_type, ev_data,
                       ev_extra1, ev_extra2, ev_extra3, ev_extra4
                from (select * from SLOT where ev_txid >= pg_snapshot_xmax(t.tick_snapshot)
                             and ev_txid < pg_snapshot_xmax(n.tick_snapshot) and pg_visible_in_snapshot(ev_txid, n.tick_snapshot)
                      union all
                      select * from SLOT where ev_txid = any (late)) e
                where ev_owner is null or ev_owner = sub
                order by ev_id limit i_at_once$b$);
    fresh    text := pgq._in_slot_sql(ring, q.queue_ntables, 'n.hi', $b$
                perform from (select (array_agg(x order by x))[1] as low, (array_agg(x order by x desc))[1] as high
                              from pg_snapshot_xip(n.tick_snapshot) x where x >= pg_snapshot_xmax(t.tick_snapshot)) busy, lateral (
                    (select from SLOT where ev_txid >= pg_snapshot_xmax(t.tick_snapshot)
                     and ev_txid < coalesce(low, pg_snapshot_xmax(n.tick_snapshot)) order by ev_txid limit 1)
                    union all
                    (select from SLOT where ev_txid > high and ev_txid < pg_snapshot_xmax(n.tick_snapshot)
                     order by ev_txid limit 1)) e limit 1$b$);
begin
    execute format($f$
        create or replace function %1$s(
            i_consumer_name text, i_max_events int4, i_at_once int4, i_tick boolean, i_peek boolean default false)
        returns table (batch_id bigint, cur_tick_id bigint, prev_tick_id bigint, cur_tick_time timestamptz,
            prev_tick_time timestamptz, cur_tick_event_seq bigint, prev_tick_event_seq bigint, acked_ev_id bigint,
            whole boolean, ev_id bigint, ev_time timestamptz, ev_txid bigint, ev_retry int4, ev_type text, ev_data text,
            ev_extra1 text, ev_extra2 text, ev_extra3 text, ev_extra4 text)
        language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp
        set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan as $b$
        #variable_conflict use_column
        declare
            sub    int4;
            c      pgq.cursor_ring;
            t      pgq.tick_ring;
            n      pgq.tick_ring;
            late   xid8[] := '{}';
            ticks  boolean := i_tick;
            self   xid8;
            v      bigint;
        begin
            if ticks and not i_peek then
                %2$s for update of registration skip locked;
            else
                %2$s;
            end if;
            if sub is null or current_setting('transaction_isolation') <> 'read committed'
               or (i_max_events > 0 and i_at_once > 0 and i_peek is not null) is not true then
                %3$s i_tick is not false);
                return;
            end if;
            -- current_user is the owner here: who has its rights need not be looked up
            if not pg_has_role(case current_setting('role') when 'none' then session_user else current_setting('role')::name end,
                               current_user, 'usage') then
                perform pgq._require_consume(%4$s, i_consumer_name);
            end if;

            if ticks is not true then
                %5$s
                if ticks is null and %6$s > t.tick_event_seq then
                    if not i_peek then
                        perform from pgq.registration where sub_id = sub for update skip locked;
                    end if;
                    ticks := i_peek or found;
                end if;
            end if;
            if ticks then
                %16$s
                if found then
                    %5$s
                    self := pg_current_xact_id();
                    -- phase, snapshot, phase, each in a statement of its own: as in _make_tick()
                    v := %7$s;
                    n.tick_snapshot := pg_current_snapshot();
                    n.hi := %7$s / 2;
                    ticks := %6$s > t.tick_event_seq and self >= pg_snapshot_xmax(t.tick_snapshot)
                        and (pg_snapshot_xmin(n.tick_snapshot) = self or pg_snapshot_xmax(n.tick_snapshot) >= self and not exists (
                             select from pg_snapshot_xip(n.tick_snapshot) x where x >= pg_snapshot_xmax(t.tick_snapshot)));
                    if ticks is not true then
                        %15$s
                        ticks := found;
                    end if;
                else
                    ticks := false;
                end if;
                if ticks is not true and i_tick then
                    -- the parts look whether there is an event
                    %14$s
                    %3$s true);
                    return;
                end if;
            end if;
            if ticks then
                if self < pg_snapshot_xmax(n.tick_snapshot) then
                    n.tick_snapshot := pgq._with_self(n.tick_snapshot);
                end if;
                %8$s
            else
                %9$s
                if c.batch_id is null and t.tick_id = c.last_tick then
                    return;
                end if;
                if not i_peek then
                    perform from pgq.registration where sub_id = sub for update;
                    if not found then
                        %3$s false);
                        return;
                    end if;
                end if;
                n := t;
            end if;

            %9$s
            if c.last_tick <> t.tick_id then
                t := null;
                %10$s
            end if;
            if c.batch_id is not null
               or (c.last_tick = t.tick_id and n.tick_id > t.tick_id and n.tick_event_seq - t.tick_event_seq <= i_max_events) is not true then
                %14$s
                %3$s false);
                return;
            end if;
            if i_peek then
                c.batch_id := -c.pos;
            else
                c.next_tick := n.tick_id;
                c.batch_id := nextval('pgq.batch_id_seq');
                c.pos := c.pos + 1;
                c.at := clock_timestamp();
                %11$s
            end if;
            if greatest(t.lo, n.hi - %12$s + 1) <> n.hi or n.tick_event_seq - t.tick_event_seq > i_at_once then
                -- to read it is left to the parts
                %14$s
                %3$s false);
                return;
            end if;
            if pg_snapshot_xmin(t.tick_snapshot) <> pg_snapshot_xmax(t.tick_snapshot) then
                late := array(select pg_snapshot_xip(t.tick_snapshot) except select pg_snapshot_xip(n.tick_snapshot));
            end if;
            %13$s
            get diagnostics v = row_count;
            batch_id := c.batch_id;
            cur_tick_id := n.tick_id;
            prev_tick_id := t.tick_id;
            cur_tick_time := n.tick_time;
            prev_tick_time := t.tick_time;
            cur_tick_event_seq := n.tick_event_seq;
            prev_tick_event_seq := t.tick_event_seq;
            whole := v < i_at_once;
            return next;
        end; $b$ $f$,
        fn, find, parts, q.queue_id, pgq._newest_tick_sql(q, 't'), seq, phase, pgq._store_tick_sql(q, 't') || pgq._tell_tick_sql(q), cursors,
        pgq._tick_sql(q, 'c.last_tick', 't'), move, q.queue_ntables, events, guard, fresh, pgq._lock_ticks_sql(q));
    execute format('comment on function %s is ''Open a small batch of one queue, with its events; generated''', fn);
    execute format('revoke all on function %s from public', fn);
    perform pgq._grant_function(fn, 'pgq_reader');
    perform pgq._grant_function(fn, role_name) from pgq.consume_grant where queue_id = q.queue_id;
end;
$$;
comment on function pgq._generate_open(pgq.queue) is 'Generate the function that opens small batches of a queue';


create or replace function pgq.opener_function(i_queue_name text)
returns text language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.opener_function(1)
--
--      Name (in schema pgq) of the queue's own function that opens batches, for
--      consumers that shall have each event within milliseconds:
--      open_N_HASH(consumer, max_events, at_once, tick, peek) does what
--      open_batch_events(queue, consumer, max_events, at_once, tick) does, faster
--      for a consumer that keeps up. With tick null it ticks only if ids were
--      drawn since the last tick: for who was told of nothing, and asks in a rush.
--
--      With peek (default false) a batch that comes with all of its events may stay
--      unopened, which saves the lock and the writing of half of what a small batch
--      costs. Its id is then negative: ack_peeked() and open_peeked() take it, with
--      the ids of its ticks. For who alone works as this consumer.
--
-- Parameters:
--      i_queue_name  - name of the queue
-- Errors:
--      PQ001         - no such queue
-- ----------------------------------------------------------------------
declare
    q  pgq.queue := pgq._queue(i_queue_name);
begin
    return pgq._open_name(q.queue_id, q.queue_name);
end;
$$;
comment on function pgq.opener_function(text) is
'Name, in schema pgq, of the queue''s own open function (consumer, max_events, at_once, tick, peek): the fastest way to open small batches, with their events.';


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
