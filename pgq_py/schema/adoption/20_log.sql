-- Copy PgQ's log into ours. Both are in one cluster, so transaction ids, snapshots, ticks,
-- event ids and batch ids mean the same: they are kept, and every consumer goes on at the
-- tick, and in the batch, where it was. All locks on the old tables are held.

do $$
declare
    o       pgq_before.queue;
    q       pgq.queue;
    limits  int4;
    first   bigint;
    start   pg_snapshot;
    at      bigint;
    called  boolean;
begin
    insert into pgq.consumer (co_id, co_name) select co_id, co_name from pgq_before.consumer;
    perform setval(pg_get_serial_sequence('pgq.consumer', 'co_id'), max(co_id)) from pgq.consumer having count(*) > 0;
    select last_value, is_called into at, called from pgq_before.batch_id_seq;
    perform setval('pgq.batch_id_seq', at, called);

    for o in select * from pgq_before.queue order by queue_id loop
        perform setval(pg_get_serial_sequence('pgq.queue', 'queue_id'), o.queue_id, false);
        perform pgq.create_queue(o.queue_name, greatest(least(o.queue_ntables, 64), 3));
        -- PgQ's defaults were given by nobody: such a queue ticks on demand
        update pgq.queue set
            queue_rotation_period = o.queue_rotation_period, queue_external_ticker = o.queue_external_ticker,
            queue_disable_insert = o.queue_disable_insert, queue_ticker_paused = o.queue_ticker_paused,
            queue_ticker_max_count = nullif(o.queue_ticker_max_count, 500),
            queue_ticker_max_lag = nullif(o.queue_ticker_max_lag, interval '3 seconds'),
            queue_ticker_idle_period = nullif(o.queue_ticker_idle_period, interval '1 minute'),
            queue_extra_maint = o.queue_extra_maint
            where queue_id = o.queue_id returning * into q;
        limits := (to_jsonb(o) ->> 'queue_per_tx_limit')::int4;
        if limits is not null then
            execute 'update pgq.queue set queue_per_tx_limit = $1 where queue_id = $2' using limits, o.queue_id;
        end if;
        execute format('select last_value, is_called from pgq_before.%I', split_part(o.queue_event_seq, '.', 2)) into at, called;
        perform setval(q.queue_event_seq::regclass, at, called);

        select coalesce((select min(sub_last_tick) from pgq_before.subscription where sub_queue = o.queue_id),
                        (select max(tick_id) from pgq_before.tick where tick_queue = o.queue_id)) into first;
        continue when first is null;
        -- of the present generation, in which all of the events are going to be
        delete from pgq.tick_ring where tick_queue = o.queue_id;
        execute format($q$
            insert into pgq.%I
            select tick_queue, tick_id, tick_time, tick_snapshot::text::pg_snapshot, coalesce(tick_event_seq, 0), $3, $3,
                   coalesce(tick_event_seq > lag(tick_event_seq) over (order by tick_id), true)
            from pgq_before.tick where tick_queue = $1 and tick_id >= $2 $q$, pgq._slot('tick_ring', 3, pgq._phase('tick_ring') / 2))
            using o.queue_id, first, pgq._phase('event_' || o.queue_id) / 2;
        select tick_snapshot into start from pgq.tick_ring where tick_queue = o.queue_id and tick_id = first;
        execute format($q$
            insert into pgq.%I (ev_id, ev_time, ev_txid, ev_owner, ev_retry, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4)
            select ev_id, ev_time, ev_txid::text::xid8, ev_owner, ev_retry, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4
            from pgq_before.%I
            where not pg_visible_in_snapshot(ev_txid::text::xid8, $1)
              and (ev_owner is null or ev_owner in (select sub_id from pgq_before.subscription))
            order by ev_id $q$, pgq._current_slot(q), split_part(o.queue_data_pfx, '.', 2))
            using start;
        execute format($q$
            insert into pgq.%I (due, ev_queue, ev_id, ev_time, ev_owner, ev_retry, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4)
            select ev_retry_after, ev_queue, ev_id, ev_time, ev_owner, ev_retry, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4
            from pgq_before.retry_queue
            where ev_queue = $1 and ev_owner in (select sub_id from pgq_before.subscription) $q$, pgq._delay_slot(o.queue_id))
            using o.queue_id;
    end loop;
    perform setval(pg_get_serial_sequence('pgq.queue', 'queue_id'), max(queue_id)) from pgq.queue having count(*) > 0;
end;
$$;

-- Registrations. PgQ's subconsumers have the sub_id of their main consumer, whose name is
-- the shortest of them; here each has one of its own.
do $$
declare
    s     record;
    c     pgq.cursor_ring;
    mark  pgq.tick_ring;
begin
    perform setval(pg_get_serial_sequence('pgq.registration', 'sub_id'), max(sub_id))
        from pgq_before.subscription having count(*) > 0;
    for s in
        select b.*, rank() over (partition by b.sub_id order by length(co_name)) as nth
        from pgq_before.subscription b join pgq_before.consumer on co_id = b.sub_consumer
        order by 8, b.sub_id
    loop
        mark := pgq._newest_tick(s.sub_queue);
        c := null;
        if s.nth = 1 then
            insert into pgq.registration (sub_id, sub_queue, sub_consumer) values (s.sub_id, s.sub_queue, s.sub_consumer)
                returning sub_id into c.sub_id;
        else
            insert into pgq.registration (sub_queue, sub_consumer, sub_main) values (s.sub_queue, s.sub_consumer, s.sub_id)
                returning sub_id into c.sub_id;
        end if;
        c.pos := 1;
        c.last_tick := coalesce(s.sub_last_tick, mark.tick_id);
        c.next_tick := s.sub_next_tick;
        c.batch_id := s.sub_batch;
        c.lo := case when s.sub_last_tick is null then 9223372036854775807
                     else (pgq._cursor_tick(s.sub_queue, s.sub_last_tick)).lo end;
        c.at := s.sub_active;
        execute format('insert into pgq.%I values ($1.*)', pgq._slot('cursor_ring', 3, pgq._phase('cursor_ring') / 2)) using c;
    end loop;
end;
$$;
