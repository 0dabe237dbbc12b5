-- The functions of pgq_ext. Those without a_subconsumer mean ''.

create or replace function pgq_ext.version()
returns text language sql immutable as $$ select '3.3.0+pgqpy.0.1.0'::text $$;
comment on function pgq_ext.version() is 'pgq_ext version whose functions this schema has, and its own.';


create or replace function pgq_ext.upgrade_schema()
returns int4 language sql immutable as $$ select 0 $$;
comment on function pgq_ext.upgrade_schema() is 'Does nothing: pgq upgrade does. Returns 0. Kept for PgQ''s clients.';


create or replace function pgq_ext.is_batch_done(a_consumer text, a_subconsumer text, a_batch_id bigint)
returns boolean language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq_ext.is_batch_done(3)
--
--      Is this the last batch that the consumer has marked?
-- Errors:
--      PQ007
-- ----------------------------------------------------------------------
begin
    return coalesce((pgq_ext._newest(pgq_ext._known(a_consumer, a_subconsumer), 'batch')).done = a_batch_id, false);
end;
$$;
comment on function pgq_ext.is_batch_done(text, text, bigint) is 'Is this the last batch that the consumer has marked as done?';


create or replace function pgq_ext.is_batch_done(a_consumer text, a_batch_id bigint)
returns boolean language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- as is_batch_done(3)
begin
    return pgq_ext.is_batch_done(a_consumer, '', a_batch_id);
end;
$$;
comment on function pgq_ext.is_batch_done(text, bigint) is 'Is this the last batch that the consumer has marked as done?';


create or replace function pgq_ext.set_batch_done(a_consumer text, a_subconsumer text, a_batch_id bigint)
returns boolean language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq_ext.set_batch_done(3)
--
--      Mark a batch as done, in the transaction of what was done with it. The
--      last one alone is remembered; ids below 1 are not.
--
-- Returns:
--      false when it is the last one already
-- Errors:
--      PQ006, PQ007
-- ----------------------------------------------------------------------
declare
    d  pgq.done_ring;
begin
    d.ec_id := pgq_ext._locked(a_consumer, a_subconsumer);
    d.what := 'batch';
    d.pos := coalesce((pgq_ext._newest(d.ec_id, 'batch')).pos, 0) + 1;
    if pgq_ext.is_batch_done(a_consumer, a_subconsumer, a_batch_id) then
        return false;
    end if;
    if a_batch_id > 0 then
        d.done := a_batch_id;
        perform pgq_ext._append(d);
    end if;
    return true;
end;
$$;
comment on function pgq_ext.set_batch_done(text, text, bigint) is 'Mark a batch as done. False when it was the last one marked already.';


create or replace function pgq_ext.set_batch_done(a_consumer text, a_batch_id bigint)
returns boolean language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- as set_batch_done(3)
begin
    return pgq_ext.set_batch_done(a_consumer, '', a_batch_id);
end;
$$;
comment on function pgq_ext.set_batch_done(text, bigint) is 'Mark a batch as done. False when it was the last one marked already.';


create or replace function pgq_ext.is_event_done(a_consumer text, a_subconsumer text, a_batch_id bigint, a_event_id bigint)
returns boolean language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq_ext.is_event_done(4)
--
--      Has the consumer marked this event, in the batch that it is at?
-- Errors:
--      PQ007
-- ----------------------------------------------------------------------
declare
    d  pgq.done_ring := pgq_ext._newest(pgq_ext._known(a_consumer, a_subconsumer), 'event');
begin
    return coalesce(d.done = a_batch_id, false) and pgq_ext._marked(d, a_event_id);
end;
$$;
comment on function pgq_ext.is_event_done(text, text, bigint, bigint) is 'Has the consumer marked this event of its present batch as done?';


create or replace function pgq_ext.is_event_done(a_consumer text, a_batch_id bigint, a_event_id bigint)
returns boolean language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- as is_event_done(4)
begin
    return pgq_ext.is_event_done(a_consumer, '', a_batch_id, a_event_id);
end;
$$;
comment on function pgq_ext.is_event_done(text, bigint, bigint) is 'Has the consumer marked this event of its present batch as done?';


create or replace function pgq_ext.set_event_done(a_consumer text, a_subconsumer text, a_batch_id bigint, a_event_id bigint)
returns boolean language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq_ext.set_event_done(4)
--
--      Mark an event of a batch as done, in the transaction of what was done
--      with it. The first one of another batch forgets those of the last.
--
-- Returns:
--      false when it is marked already
-- Errors:
--      PQ006 also a null id, PQ007
-- ----------------------------------------------------------------------
declare
    id  int4 := pgq_ext._locked(a_consumer, a_subconsumer);
    d   pgq.done_ring := pgq_ext._newest(id, 'event');
begin
    if a_batch_id is null or a_event_id is null then
        raise exception 'Invalid NULL value' using errcode = 'PQ006', hint = 'Give the ids of the batch and of the event.';
    end if;
    if d.done = a_batch_id and pgq_ext._marked(d, a_event_id) then
        return false;
    end if;
    if (d.done = a_batch_id) is not true then
        d.run := coalesce(d.pos, 0) + 1;
        d.run_from := pg_sequence_last_value('pgq.done_ring_phase'::regclass) / 2;
    end if;
    d.ec_id := id;
    d.what := 'event';
    d.pos := coalesce(d.pos, 0) + 1;
    d.done := a_batch_id;
    d.ev_id := a_event_id;
    perform pgq_ext._append(d);
    return true;
end;
$$;
comment on function pgq_ext.set_event_done(text, text, bigint, bigint) is 'Mark an event of a batch as done. False when it was already.';


create or replace function pgq_ext.set_event_done(a_consumer text, a_batch_id bigint, a_event_id bigint)
returns boolean language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- as set_event_done(4)
begin
    return pgq_ext.set_event_done(a_consumer, '', a_batch_id, a_event_id);
end;
$$;
comment on function pgq_ext.set_event_done(text, bigint, bigint) is 'Mark an event of a batch as done. False when it was already.';


create or replace function pgq_ext.get_last_tick(a_consumer text, a_subconsumer text)
returns int8 language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq_ext.get_last_tick(2)
--
--      The tick that the consumer has marked last, or null.
-- Errors:
--      PQ007
-- ----------------------------------------------------------------------
begin
    return (pgq_ext._newest(pgq_ext._known(a_consumer, a_subconsumer), 'tick')).done;
end;
$$;
comment on function pgq_ext.get_last_tick(text, text) is 'The tick that the consumer has marked last, or null.';


create or replace function pgq_ext.get_last_tick(a_consumer text)
returns int8 language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- as get_last_tick(2)
begin
    return pgq_ext.get_last_tick(a_consumer, '');
end;
$$;
comment on function pgq_ext.get_last_tick(text) is 'The tick that the consumer has marked last, or null.';


create or replace function pgq_ext.set_last_tick(a_consumer text, a_subconsumer text, a_tick_id bigint)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq_ext.set_last_tick(3)
--
--      Mark a tick, in the transaction of what was done up to it; null forgets.
--
-- Returns:
--      1
-- Errors:
--      PQ006, PQ007
-- ----------------------------------------------------------------------
declare
    id  int4 := pgq_ext._locked(a_consumer, a_subconsumer);
    d   pgq.done_ring := pgq_ext._newest(id, 'tick');
begin
    if d.done is not distinct from a_tick_id then
        return 1;
    end if;
    perform pgq_ext._append((id, 'tick', coalesce(d.pos, 0) + 1, a_tick_id, null, null, null)::pgq.done_ring);
    return 1;
end;
$$;
comment on function pgq_ext.set_last_tick(text, text, bigint) is 'Mark a tick as done up to; null forgets it. Returns 1.';


create or replace function pgq_ext.set_last_tick(a_consumer text, a_tick_id bigint)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- as set_last_tick(3)
begin
    return pgq_ext.set_last_tick(a_consumer, '', a_tick_id);
end;
$$;
comment on function pgq_ext.set_last_tick(text, bigint) is 'Mark a tick as done up to; null forgets it. Returns 1.';


-- PgQ's tables of these names, as views: they may blink while rotation moves a row.

create or replace view pgq_ext.completed_tick as
    select e.consumer_id, e.subconsumer_id, d.done as last_tick_id
    from pgq_ext.consumer e cross join lateral (
        select * from pgq.done_ring where ec_id = e.ec_id and what = 'tick' order by ec_id desc, what desc, pos desc limit 1) d
    where d.done is not null;
comment on view pgq_ext.completed_tick is 'The last tick of each consumer, as pgq_ext''s table of that name';

create or replace view pgq_ext.completed_batch as
    select e.consumer_id, e.subconsumer_id, d.done as last_batch_id
    from pgq_ext.consumer e cross join lateral (
        select * from pgq.done_ring where ec_id = e.ec_id and what = 'batch' order by ec_id desc, what desc, pos desc limit 1) d;
comment on view pgq_ext.completed_batch is 'The last batch of each consumer, as pgq_ext''s table of that name';

create or replace view pgq_ext.partial_batch as
    select e.consumer_id, e.subconsumer_id, d.done as cur_batch_id
    from pgq_ext.consumer e cross join lateral (
        select * from pgq.done_ring where ec_id = e.ec_id and what = 'event' order by ec_id desc, what desc, pos desc limit 1) d;
comment on view pgq_ext.partial_batch is 'The batch that each consumer marks events of, as pgq_ext''s table of that name';

create or replace view pgq_ext.completed_event as
    select p.consumer_id, p.subconsumer_id, d.done as batch_id, d.ev_id as event_id
    from pgq_ext.consumer p cross join lateral (
        select * from pgq.done_ring where ec_id = p.ec_id and what = 'event' order by ec_id desc, what desc, pos desc limit 1) n
    join pgq.done_ring d on d.ec_id = n.ec_id and d.what = 'event' and d.run = n.run;
comment on view pgq_ext.completed_event is 'The marked events of those batches, as pgq_ext''s table of that name';
