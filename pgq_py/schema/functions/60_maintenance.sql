-- Maintenance as PgQ's daemons drive it: maint_operations() lists what to call.

create or replace function pgq.rotate_queue(i_queue_name text)
returns text language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.rotate_queue(1)
--
--      Do the next step of a queue's rotation now, whatever its rotation period.
--
-- Returns:
--      closed, truncated, switched  - done
--      blocked  - a transaction is inside the slot: see pgq.ring_blockers()
--      waiting  - a consumer still needs the oldest slot
--      idle     - nothing to do
--      busy     - somebody else is at it
-- Errors:
--      PQ001, PQ007
-- ----------------------------------------------------------------------
begin
    return pgq._ring_step('event_' || (pgq._queue(i_queue_name)).queue_id, true);
end;
$$;
comment on function pgq.rotate_queue(text) is
'Do the next step of a queue''s rotation now: closed, truncated, switched, blocked, waiting, idle or busy.';


create or replace function pgq.maint_rotate_tables_step1(i_queue_name text)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.maint_rotate_tables_step1(1)
--
--      Do one step of the rotation of each of the queue's rings, if it is time.
--
-- Returns:
--      1 after a close or truncate: call again, in a transaction of its own;
--      0 after a switch, or when nothing could be done
-- Errors:
--      PQ007; an unknown queue is nothing to do, as in PgQ
-- ----------------------------------------------------------------------
declare
    ring   text;
    again  boolean := false;
begin
    for ring in select ring_name from pgq.ring join pgq.queue on queue_id = ring_queue
                where queue_name = i_queue_name order by ring_kind loop
        again := pgq._ring_step(ring) in ('closed', 'truncated') or again;
    end loop;
    return again::int;
end;
$$;
comment on function pgq.maint_rotate_tables_step1(text) is
'Do one step of a queue''s rotation if it is time. Returns 1: call again; 0: done.';


create or replace function pgq.maint_rotate_tables_step2()
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.maint_rotate_tables_step2(0)
--
--      Do one step of each global ring, if it is time.
--
-- Returns:
--      0
-- Errors:
--      PQ007
-- ----------------------------------------------------------------------
begin
    perform pgq._ring_step(ring_name) from pgq.ring where ring_queue is null order by ring_name;
    return 0;
end;
$$;
comment on function pgq.maint_rotate_tables_step2() is 'Do one step of each global ring if it is time. Returns 0.';


create or replace function pgq._consumer_lag(r pgq.registration)
returns interval language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._consumer_lag(1)
--
--      For how long the first unfinished events of a registration have been
--      waiting: the age of the tick that follows its last one; null when
--      none does, and for a subconsumer without a batch.
-- ----------------------------------------------------------------------
declare
    at  timestamptz;
    c   pgq.cursor_ring := pgq._cursor(r.sub_id);
begin
    if c.lo < 9223372036854775807 then
        select min(tick_time) into at from pgq.tick_ring where tick_queue = r.sub_queue and tick_id > c.last_tick;
    end if;
    return clock_timestamp() - at;
end;
$$;
comment on function pgq._consumer_lag(pgq.registration) is 'For how long events have been waiting for a registration';


create or replace function pgq.maint_evict_consumers(i_queue_name text)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.maint_evict_consumers(1)
--
--      Remove the consumers that lag by more than queue_max_consumer_lag, so
--      that the queue's slots can be truncated. With a warning and a row in
--      pgq.eviction each; the consumer's next call raises and says so.
--
-- Returns:
--      0
-- Errors:
--      PQ007; an unknown queue is nothing to do
-- ----------------------------------------------------------------------
declare
    q    pgq.queue;
    r    pgq.registration;
    name text;
    late interval;
begin
    perform pgq._require_read_committed('maint_evict_consumers');
    select * into q from pgq.queue where queue_name = i_queue_name;
    if q.queue_max_consumer_lag is null then
        return 0;
    end if;
    perform pgq._lock_event_ring(q.queue_id, 'No such queue');
    for r in select * from pgq.registration where sub_queue = q.queue_id for update loop
        continue when not exists (select from pgq.registration where sub_id = r.sub_id);  -- it went with its main consumer
        late := pgq._consumer_lag(r);
        continue when (late > q.queue_max_consumer_lag) is not true;
        select co_name into name from pgq.consumer where co_id = r.sub_consumer;
        insert into pgq.eviction (queue_id, consumer_name, last_tick, lag)
            values (q.queue_id, name, (pgq._cursor(r.sub_id)).last_tick, late)
            on conflict (queue_id, consumer_name)
            do update set evicted_at = excluded.evicted_at, last_tick = excluded.last_tick, lag = excluded.lag;
        perform pgq._remove_registration(r, 'its consumer was evicted');
        raise warning 'consumer % of queue % was evicted: % behind, allowed are %',
            name, i_queue_name, late, q.queue_max_consumer_lag;
    end loop;
    return 0;
end;
$$;
comment on function pgq.maint_evict_consumers(text) is
'Remove the consumers of a queue that lag by more than its max_consumer_lag. Returns 0.';


create or replace function pgq.maint_operations(out func_name text, out func_arg text)
returns setof record language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.maint_operations(0)
--
--      Maintenance functions that have something to do now. Each is to be
--      called in a transaction of its own, and again while it returns 1.
--
-- Returns:
--      func_name  - function to call
--      func_arg   - its argument (a queue's name), or null: it has none
-- ----------------------------------------------------------------------
declare
    rotates  boolean := false;
    q        pgq.queue;
begin
    func_name := 'pgq.maint_rotate_tables_step1';
    for func_arg in
        select queue_name from pgq.queue where exists (
            select from pgq.ring r where r.ring_queue = queue_id and pgq._ring_wants_step(r)
            and (queue_rotation_period is not null or r.ring_kind <> 'event'))
        order by queue_name
    loop
        rotates := true;
        return next;
    end loop;

    -- after any step1, as in PgQ: there it is the second half of the same rotation
    func_arg := null;
    if rotates or exists (select from pgq.ring r where r.ring_queue is null and pgq._ring_wants_step(r)) then
        func_name := 'pgq.maint_rotate_tables_step2';
        return next;
    end if;

    func_name := 'pgq.maint_evict_consumers';
    for func_arg in
        select queue_name from pgq.queue where exists (
            select from pgq.registration r where r.sub_queue = queue_id and pgq._consumer_lag(r) > queue_max_consumer_lag)
        and queue_max_consumer_lag is not null order by queue_name
    loop
        return next;
    end loop;

    return query select * from pgq._maint_jobs();

    for q in select * from pgq.queue where queue_extra_maint is not null order by queue_name loop
        foreach func_name in array q.queue_extra_maint loop
            func_arg := q.queue_name;
            return next;
        end loop;
    end loop;
end;
$$;
comment on function pgq.maint_operations() is
'Maintenance functions that have something to do now, with their argument; call each in a transaction of its own, again while it returns 1.';


create or replace function pgq.maint_tables_to_vacuum()
returns setof text language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq.maint_tables_to_vacuum(0)
--
--      Tables that need VACUUM from the maintenance process: none, ever.
--      Kept for PgQ's clients.
-- ----------------------------------------------------------------------
begin
    return;
end;
$$;
comment on function pgq.maint_tables_to_vacuum() is 'Tables that need VACUUM: none, ever; kept for PgQ''s clients.';
