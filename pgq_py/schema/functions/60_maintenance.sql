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
--      Do one step of the queue's rotation, if it is time.
--
-- Returns:
--      1 after a close or truncate: call again, in a transaction of its own;
--      0 after a switch, or when nothing could be done
-- Errors:
--      PQ007; an unknown queue is nothing to do, as in PgQ
-- ----------------------------------------------------------------------
declare
    nr  int4;
begin
    select queue_id into nr from pgq.queue where queue_name = i_queue_name;
    if nr is null then
        return 0;
    end if;
    return (pgq._ring_step('event_' || nr) in ('closed', 'truncated'))::int;
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
    op  text;
    q   pgq.queue;
begin
    func_name := 'pgq.maint_rotate_tables_step1';
    for func_arg in
        select queue_name from pgq.queue join pgq.ring r on r.ring_queue = queue_id
            where queue_rotation_period is not null and pgq._ring_wants_step(r) order by queue_name
    loop
        return next;
    end loop;

    func_arg := null;
    if exists (select from pgq.ring r where r.ring_queue is null and pgq._ring_wants_step(r)) then
        func_name := 'pgq.maint_rotate_tables_step2';
        return next;
    end if;

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
