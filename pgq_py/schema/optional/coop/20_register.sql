-- Registering and removing subconsumers.

create or replace function pgq_coop.version()
returns text language sql immutable as $$ select '3.4.0+pgqpy.0.1.0'::text $$;
comment on function pgq_coop.version() is 'pgq_coop version whose functions this schema has, and its own.';


create or replace function pgq_coop._find(i_queue int4, i_consumer_name text, i_subconsumer_name text)
returns pgq.registration language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq_coop._find(3)
--
--      The registration of a subconsumer, or null.
-- Errors:
--      PQ006  - there is a consumer of that name, but it is nobody's subconsumer,
--               or another's: of "a.b" and "c", when "a" and "b.c" is meant
-- ----------------------------------------------------------------------
declare
    r  pgq.registration;
begin
    select s.* into r from pgq.registration s join pgq.consumer on co_id = s.sub_consumer
        where s.sub_queue = i_queue and co_name = i_consumer_name || '.' || i_subconsumer_name;
    if found and (r.sub_main is null or pgq._main_consumer(r) <> i_consumer_name) then
        raise exception 'consumer % is registered, but not as a subconsumer of %',
                quote_literal(i_consumer_name || '.' || i_subconsumer_name), quote_literal(i_consumer_name)
            using errcode = 'PQ006', hint = 'Choose another name for the subconsumer.';
    end if;
    return r;
end;
$$;
comment on function pgq_coop._find(int4, text, text) is 'Registration of a subconsumer, or null';


create or replace function pgq_coop.register_subconsumer(
    i_queue_name text, i_consumer_name text, i_subconsumer_name text)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq_coop.register_subconsumer(3)
--
--      Register a subconsumer, and the main consumer when it is not yet: at
--      the queue's newest tick.
--
-- Returns:
--      1 registered, 0 it was already
-- Errors:
--      PQ001, PQ006 a name, PQ007, 42501
-- Tables touched:
--      pgq.consumer, pgq.registration, pgq.cursor_ring (insert), pgq.ring (locked)
-- ----------------------------------------------------------------------
declare
    q     pgq.queue := pgq._queue(i_queue_name, 'Event queue not created yet');
    main  pgq.registration;
begin
    perform pgq._require_read_committed('register_subconsumer');
    perform pgq._check_name('consumer', i_consumer_name || '.' || i_subconsumer_name);
    perform pgq._require_consume(q.queue_id, i_consumer_name);
    if (pgq_coop._find(q.queue_id, i_consumer_name, i_subconsumer_name)).sub_id is not null then
        return 0;
    end if;
    perform pgq.register_consumer(i_queue_name, i_consumer_name);
    main := pgq._registration(i_queue_name, i_consumer_name);
    perform pgq._require_position(main);
    return pgq._register(q, i_consumer_name || '.' || i_subconsumer_name, null, main.sub_id);
end;
$$;
comment on function pgq_coop.register_subconsumer(text, text, text) is
'Register a subconsumer, and its main consumer when it is not yet. Returns 1, or 0 when it was.';


create or replace function pgq_coop.unregister_subconsumer(
    i_queue_name text, i_consumer_name text, i_subconsumer_name text, i_batch_handling integer)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq_coop.unregister_subconsumer(4)
--
--      Remove a subconsumer; the main consumer stays.
--
-- Parameters:
--      i_batch_handling  - 1: also with an open batch, whose events are then
--                          passed; 0: not then
-- Returns:
--      1, or 0 when it was not registered
-- Errors:
--      PQ007, 42501
--      PQ009  - it has a batch open and i_batch_handling is not 1
-- ----------------------------------------------------------------------
declare
    q  pgq.queue;
    r  pgq.registration;
begin
    perform pgq._require_read_committed('unregister_subconsumer');
    select * into q from pgq.queue where queue_name = i_queue_name;
    if not found then
        return 0;
    end if;
    perform pgq._require_consume(q.queue_id, i_consumer_name);
    perform pgq._lock_event_ring(q.queue_id, 'No such queue');
    r := pgq_coop._find(q.queue_id, i_consumer_name, i_subconsumer_name);
    if r.sub_id is null or not pgq._lock_registration(r.sub_id) then
        return 0;
    end if;
    if (pgq._cursor(r.sub_id)).batch_id is not null and (i_batch_handling = 1) is not true then
        raise exception 'subconsumer has active batch'
            using errcode = 'PQ009', hint = 'Finish it, or pass 1 to pass its events.';
    end if;
    return pgq._remove_registration(r, 'its subconsumer was unregistered')::int;
end;
$$;
comment on function pgq_coop.unregister_subconsumer(text, text, text, integer) is
'Remove a subconsumer; with 1 also when it has a batch open. Returns 1, or 0 when it was not registered.';
