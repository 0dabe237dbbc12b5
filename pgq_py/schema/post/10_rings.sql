-- The global rings, the functions of each queue, and the views in front of them. Applied on every install and
-- upgrade; what exists stays.

do $$
declare
    template  text;
begin
    if not exists (select from pgq.ring where ring_name = 'tick_ring') then
        perform pgq._declare_ring('tick_ring', 'tick', null, 3, interval '1 hour');
    end if;
    if not exists (select from pgq.ring where ring_name = 'cursor_ring') then
        perform pgq._declare_ring('cursor_ring', 'cursor', null, 3, interval '1 hour');
    end if;
    if not exists (select from pgq.ring where ring_name = 'dead_ring') then
        perform pgq._declare_ring('dead_ring', 'dead', null, 3, interval '1 hour');
    end if;
    if not exists (select from pgq.ring where ring_name = 'claim_ring') then
        perform pgq._declare_ring('claim_ring', 'claim', null, 3, interval '1 hour');
        perform pgq._declare_ring('key_ring', 'key', null, 3, interval '1 hour');
        perform pgq._declare_ring('beat_ring', 'beat', null, 3, interval '1 hour');
    end if;
    foreach template in array array['event_template', 'delay_template', 'job_template', 'held_template'] loop
        if not exists (select from pg_trigger
                       where tgrelid = format('pgq.%I', template)::regclass and tgname = 'refuse_insert') then
            execute format('create trigger refuse_insert before insert on pgq.%I'
                           ' for each statement execute function pgq._refuse_insert()', template);
            execute format('alter table pgq.%I enable always trigger refuse_insert', template);
        end if;
    end loop;
    if not exists (select from pg_trigger where tgrelid = 'pgq.queue'::regclass and tgname = 'queue_changed') then
        create trigger queue_changed after update on pgq.queue
            for each row execute function pgq._queue_changed();
        alter table pgq.queue enable always trigger queue_changed;
    end if;
    -- an earlier version may have generated them in another form
    perform pgq._generate_produce(q), pgq._generate_open(q) from pgq.queue q;
end;
$$;

create or replace view pgq.tick as
    select tick_queue, tick_id, tick_time, tick_snapshot, tick_event_seq
    from pgq.tick_ring
    where exists (select from pgq.queue where queue_id = tick_queue);
comment on view pgq.tick is 'Ticks of all queues, as PgQ''s table of that name';

create or replace view pgq.subscription as
    select r.sub_id, r.sub_queue, r.sub_consumer,
           case when c.lo < 9223372036854775807 then c.last_tick end as sub_last_tick,
           c.at as sub_active, c.batch_id as sub_batch, c.next_tick as sub_next_tick
    from pgq.registration r
    cross join lateral (
        select * from pgq.cursor_ring where sub_id = r.sub_id order by sub_id desc, pos desc limit 1) c;
comment on view pgq.subscription is 'Registrations with their positions, as PgQ''s table of that name';

create or replace view pgq.delayed_event as
    select q.queue_name, d.*
    from pgq.delay_template d
    join pgq.queue q on q.queue_id = d.ev_queue
    cross join lateral (
        select tick_time, tick_snapshot from pgq.tick_ring where tick_queue = -d.ev_queue
        order by tick_queue desc, tick_id desc limit 1) released
    where not d.cancels
      and (d.due > released.tick_time or not pg_visible_in_snapshot(d.ev_txid, released.tick_snapshot))
      and not exists (select from pgq.delay_template c where c.ev_queue = d.ev_queue and c.ev_id = d.ev_id
                      and c.cancels and c.ev_owner is not distinct from d.ev_owner);
comment on view pgq.delayed_event is 'Events that wait for their time, retries among them';

create or replace view pgq.retry_queue as
    select due as ev_retry_after, ev_queue, ev_id, ev_time, null::int8 as ev_txid, ev_owner, ev_retry,
           ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4
    from pgq.delayed_event where ev_owner is not null;
comment on view pgq.retry_queue is 'Events that wait for a retry, as PgQ''s table of that name';

create or replace view pgq.dead_letter as
    select dl_id, queue_name, consumer_name, reason, attempts, failed_at, ev_id, ev_time, ev_retry,
           ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4
    from pgq.dead_ring d
    where done = '' and not exists (select from pgq.dead_ring g where g.dl_id = d.dl_id and g.done <> '');
comment on view pgq.dead_letter is 'Events that were given up, neither replayed nor purged';
