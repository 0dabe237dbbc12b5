-- The global rings, and the views in front of them. Applied on every install and
-- upgrade; what exists stays.

do $$
begin
    if not exists (select from pgq.ring where ring_name = 'tick_ring') then
        perform pgq._declare_ring('tick_ring', 'tick', null, 3, interval '1 hour');
    end if;
    if not exists (select from pgq.ring where ring_name = 'cursor_ring') then
        perform pgq._declare_ring('cursor_ring', 'cursor', null, 3, interval '1 hour');
    end if;
    if not exists (select from pg_trigger where tgrelid = 'pgq.event_template'::regclass and tgname = 'refuse_insert') then
        create trigger refuse_insert before insert on pgq.event_template
            for each statement execute function pgq._refuse_insert();
        alter table pgq.event_template enable always trigger refuse_insert;
    end if;
    if not exists (select from pg_trigger where tgrelid = 'pgq.queue'::regclass and tgname = 'queue_changed') then
        create trigger queue_changed after update on pgq.queue
            for each row execute function pgq._queue_changed();
        alter table pgq.queue enable always trigger queue_changed;
    end if;
end;
$$;

create or replace view pgq.tick as
    select tick_queue, tick_id, tick_time, tick_snapshot, tick_event_seq
    from pgq.tick_ring
    where exists (select from pgq.queue where queue_id = tick_queue);
comment on view pgq.tick is 'Ticks of all queues, as PgQ''s table of that name';

create or replace view pgq.subscription as
    select r.sub_id, r.sub_queue, r.sub_consumer, c.last_tick as sub_last_tick,
           c.at as sub_active, c.batch_id as sub_batch, c.next_tick as sub_next_tick
    from pgq.registration r
    cross join lateral (
        select * from pgq.cursor_ring where sub_id = r.sub_id order by sub_id desc, pos desc limit 1) c;
comment on view pgq.subscription is 'Registrations with their positions, as PgQ''s table of that name';
