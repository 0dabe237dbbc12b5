-- Cursors: where each consumer stands, without UPDATE.
--
-- Every move appends a row; the newest row of a registration is its state. The
-- registration's own static row is locked by whoever moves its cursor, so within
-- one registration moves are serial.

create or replace function pgq._cursor(i_sub int4)
returns pgq.cursor_ring language plpgsql set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq._cursor(1)
--
--      State of a registration (or, with -queue_id, of a queue's floor); null when
--      it has been removed, which a caller who has locked it cannot meet.
--
--      What is found in the current slot is the newest: generations rise.
--      Ordered by both columns descending, or the planner walks the primary
--      key of every registration.
-- Errors:
--      PQ012, 40001  - it has no row; every registration has one from the start
-- ----------------------------------------------------------------------
declare
    c  pgq.cursor_ring;
begin
    case pg_sequence_last_value('pgq.cursor_ring_phase'::regclass) / 2 % 3
        when 0 then
            select * into c from pgq.cursor_ring_0 where sub_id = i_sub order by sub_id desc, pos desc limit 1;
        when 1 then
            select * into c from pgq.cursor_ring_1 where sub_id = i_sub order by sub_id desc, pos desc limit 1;
        else
            select * into c from pgq.cursor_ring_2 where sub_id = i_sub order by sub_id desc, pos desc limit 1;
    end case;
    for attempt in 1 .. 10 loop
        exit when c.sub_id is not null;
        select * into c from pgq.cursor_ring where sub_id = i_sub order by sub_id desc, pos desc limit 1;
    end loop;
    if c.sub_id is null and (exists (select from pgq.registration where sub_id = i_sub)
                             or exists (select from pgq.queue where queue_id = -i_sub)) then
        perform pgq._raise_missing(format('registration %s has no cursor', i_sub));
    end if;
    return c;
end;
$$;
comment on function pgq._cursor(int4) is 'State of a registration';


create or replace function pgq._move_cursor(c pgq.cursor_ring)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._move_cursor(1)
--
--      Append the state that follows c.pos. The caller has locked the
--      registration (or, for a floor, the event ring).
-- ----------------------------------------------------------------------
begin
    c.pos := c.pos + 1;
    c.at := clock_timestamp();
    case pg_sequence_last_value('pgq.cursor_ring_phase'::regclass) / 2 % 3
        when 0 then insert into pgq.cursor_ring_0 values (c.*);
        when 1 then insert into pgq.cursor_ring_1 values (c.*);
        else insert into pgq.cursor_ring_2 values (c.*);
    end case;
end;
$$;
comment on function pgq._move_cursor(pgq.cursor_ring) is 'Append the next state of a registration';


create or replace function pgq._place_cursor(c pgq.cursor_ring, t pgq.tick_ring)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._place_cursor(2)
--
--      Set a registration to a tick, with no open batch. A subconsumer then
--      needs no event, and keeps no slot.
-- ----------------------------------------------------------------------
begin
    c.last_tick := t.tick_id;
    c.lo := case when pgq._owner(c.sub_id) = c.sub_id then t.lo else 9223372036854775807 end;
    c.next_tick := null;
    c.batch_id := null;
    c.acked := null;
    c.handed := null;
    perform pgq._move_cursor(c);
end;
$$;
comment on function pgq._place_cursor(pgq.cursor_ring, pgq.tick_ring) is 'Set a registration to a tick';


create or replace function pgq._owner(i_sub int4)
returns int4 language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._owner(1)
--
--      The registration that a registration's retries belong to: the main
--      consumer's for a subconsumer, for any of them may get the batch in which
--      they come again; else itself.
-- ----------------------------------------------------------------------
begin
    return coalesce((select sub_main from pgq.registration where sub_id = i_sub), i_sub);
end;
$$;
comment on function pgq._owner(int4) is 'Registration that the retries of a registration belong to';


create or replace function pgq._main_consumer(r pgq.registration)
returns text language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._main_consumer(1)
--
--      Name of the consumer that a registration consumes for: rights, retry
--      policy and dead letters are that one's.
-- ----------------------------------------------------------------------
begin
    return (select co_name from pgq.registration join pgq.consumer on co_id = sub_consumer
            where sub_id = coalesce(r.sub_main, r.sub_id));
end;
$$;
comment on function pgq._main_consumer(pgq.registration) is 'Name of the consumer that a registration consumes for';


create or replace function pgq._require_position(r pgq.registration)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._require_position(1)
--
--      Refuse a subconsumer where a position of its own is needed.
-- Errors:
--      PQ006
-- ----------------------------------------------------------------------
begin
    if r.sub_main is not null then
        raise exception 'subconsumer of % has no position of its own', quote_literal(pgq._main_consumer(r))
            using errcode = 'PQ006', hint = 'Take its batches with pgq_coop.next_batch(); move the main consumer.';
    end if;
end;
$$;
comment on function pgq._require_position(pgq.registration) is 'Refuse a subconsumer where a position of its own is needed';


create or replace function pgq._registration(i_queue_name text, i_consumer_name text)
returns pgq.registration language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._registration(2)
--
--      Look up a registration by names.
-- Errors:
--      PQ001  - no such queue
--      PQ002  - the consumer is not registered on it
--      42501  - the caller may not act for it
-- ----------------------------------------------------------------------
declare
    r  pgq.registration;
    e  text;
    m  text := format('Not subscriber to queue: %s/%s', coalesce(i_queue_name, 'NULL'), coalesce(i_consumer_name, 'NULL'));
begin
    select s.* into r
        from pgq.queue q
        join pgq.registration s on s.sub_queue = q.queue_id
        join pgq.consumer c on c.co_id = s.sub_consumer
        where q.queue_name = i_queue_name and c.co_name = i_consumer_name;
    if not found then
        perform pgq._queue(i_queue_name, m);
        select format('It was evicted at %s, %s behind; events after tick %s were not delivered to it.',
                      evicted_at, lag, last_tick) into e
            from pgq.eviction join pgq.queue using (queue_id)
            where queue_name = i_queue_name and consumer_name = i_consumer_name;
        raise exception '%', m
            using errcode = 'PQ002', detail = coalesce(e, ''),
                  hint = 'Register it with pgq.register_consumer(queue, consumer).';
    end if;
    perform pgq._require_consume_as(r);
    return r;
end;
$$;
comment on function pgq._registration(text, text) is 'Look up a registration by names or raise';


create or replace function pgq._lock_registration(i_sub int4)
returns boolean language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._lock_registration(1)
--
--      Lock a registration until the end of the transaction. The state is
--      to be read afterwards, in a statement of its own.
-- Returns:
--      false when it has been removed meanwhile
-- ----------------------------------------------------------------------
begin
    perform from pgq.registration where sub_id = i_sub for update;
    return found;
end;
$$;
comment on function pgq._lock_registration(int4) is 'Lock a registration';


create or replace function pgq._locked_registration(i_queue_name text, i_consumer_name text)
returns pgq.registration language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._locked_registration(2)
--
--      Look up a registration by names and lock it; again, if it is removed
--      and made anew meanwhile.
-- Errors:
--      PQ001, PQ002, 42501 as _registration(2)
-- ----------------------------------------------------------------------
declare
    r  pgq.registration;
begin
    loop
        r := pgq._registration(i_queue_name, i_consumer_name);
        exit when pgq._lock_registration(r.sub_id);
    end loop;
    return r;
end;
$$;
comment on function pgq._locked_registration(text, text) is 'Look up a registration by names and lock it';


create or replace function pgq._batch_registration(i_batch bigint)
returns pgq.registration language plpgsql set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq._batch_registration(1)
--
--      The registration that a batch id was given to, or null. Whether the
--      batch is still open is for its cursor to say.
--
--      The last one, where a subconsumer took the batch of another: it writes a
--      greater pos. The order also serves the plan: without it, a plan made
--      while the slot was empty reads the slot from its beginning ever after.
-- ----------------------------------------------------------------------
declare
    sub  int4;
    r    pgq.registration;
begin
    case pg_sequence_last_value('pgq.cursor_ring_phase'::regclass) / 2 % 3
        when 0 then
            select sub_id into sub from pgq.cursor_ring_0 where batch_id = i_batch order by batch_id desc, pos desc limit 1;
        when 1 then
            select sub_id into sub from pgq.cursor_ring_1 where batch_id = i_batch order by batch_id desc, pos desc limit 1;
        else
            select sub_id into sub from pgq.cursor_ring_2 where batch_id = i_batch order by batch_id desc, pos desc limit 1;
    end case;
    for attempt in 1 .. 3 loop
        exit when sub is not null;
        select sub_id into sub from pgq.cursor_ring where batch_id = i_batch order by batch_id desc, pos desc limit 1;
    end loop;
    select * into r from pgq.registration where sub_id = sub;
    return r;
end;
$$;
comment on function pgq._batch_registration(bigint) is 'Registration that a batch was given to';
