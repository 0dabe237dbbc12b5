-- Delayed events: the delay ring and its release.
--
-- Rows of the delay ring never change. The release keeps, per queue, the snapshot and
-- the time of its last step (S_l, T_l), as a tick of the queue's negative id; with a new
-- pair (S_c, T_c) it moves
--
--      { rows visible in S_c with due <= T_c }  minus  { rows visible in S_l with due <= T_l }
--
-- into the log, in order of due. That is the union of what has become due (an index range
-- of due) and what was due already but committed late (an index range of ev_txid). The
-- pair is stored in the same transaction, so each row is released once, however late its
-- transaction commits, and evacuation may carry rows along: it keeps due and ev_txid.
--
-- The lock of all this is the delay ring's. Time is the database's.

create or replace function pgq._clock()
returns timestamptz language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._clock()
--
--      The clock of delays. Tests replace it.
-- ----------------------------------------------------------------------
begin
    return clock_timestamp();
end;
$$;
comment on function pgq._clock() is 'The clock of delays';


create or replace function pgq._lock_delays(i_queue int4, i_skip_locked boolean default false)
returns boolean language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._lock_delays(2)
--
--      Take the lock of a queue's delay ring.
-- Returns:
--      false when the queue is gone, or with i_skip_locked when somebody has it
-- ----------------------------------------------------------------------
begin
    if i_skip_locked then
        perform from pgq.ring where ring_name = 'delay_' || i_queue for update skip locked;
    else
        perform from pgq.ring where ring_name = 'delay_' || i_queue for update;
    end if;
    return found;
end;
$$;
comment on function pgq._lock_delays(int4, boolean) is 'Take the lock of a queue''s delay ring';


create or replace function pgq._delay_slot(i_queue int4)
returns text language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._delay_slot(1)
--
--      Table (in schema pgq) that takes the queue's delayed events now.
-- ----------------------------------------------------------------------
begin
    return pgq._slot('delay_' || i_queue, 3, pgq._phase('delay_' || i_queue) / 2);
end;
$$;
comment on function pgq._delay_slot(int4) is 'Table that takes a queue''s delayed events now';


create or replace function pgq._holds_delays(i_queue int4)
returns boolean language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._holds_delays(1)
--
--      May the queue have delayed events? Looks at sizes only.
-- ----------------------------------------------------------------------
begin
    return exists (select from generate_series(0, 2) nr where pgq._slot_bytes('delay_' || i_queue || '_' || nr) > 0);
end;
$$;
comment on function pgq._holds_delays(int4) is 'May a queue have delayed events';


create or replace function pgq._pending_sql(i_queue int4, m pgq.tick_ring)
returns text language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._pending_sql(2)
--
--      SELECT * of the delayed events of a queue that were not released by
--      mark m, with those that are cancelled and with cancellations.
-- ----------------------------------------------------------------------
begin
    return format('select * from pgq.%I where due > %L::timestamptz or not pg_visible_in_snapshot(ev_txid, %L::pg_snapshot)',
                  'delay_' || i_queue, m.tick_time, m.tick_snapshot);
end;
$$;
comment on function pgq._pending_sql(int4, pgq.tick_ring) is 'SELECT of a queue''s unreleased delayed events';


create or replace function pgq._next_release(i_queue int4, m pgq.tick_ring)
returns timestamptz language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._next_release(2)
--
--      When the next release step of a queue after mark m is due, or null.
--
--      The earliest due time; at once (m's time) when a row that was due then
--      has become visible since. To find such a row, all that came since m is
--      looked at, so when anything has, a step is due a second after m.
-- ----------------------------------------------------------------------
declare
    at     timestamptz;
    late   boolean;
    fresh  boolean;
begin
    if not pgq._holds_delays(i_queue) then
        return null;
    end if;
    execute format($q$
        with since as (
            select due from pgq.%1$I where ev_txid >= $2 order by ev_txid desc limit 100000),
        stragglers as (
            select due from pgq.%1$I where ev_txid = any ($3))
        select (select due from pgq.%1$I where due > $1 order by due limit 1),
               exists (select from since where due <= $1) or exists (select from stragglers where due <= $1),
               exists (select from since) $q$, 'delay_' || i_queue)
        into at, late, fresh
        using m.tick_time, pg_snapshot_xmax(m.tick_snapshot),
              array(select pg_snapshot_xip(m.tick_snapshot) except select pg_snapshot_xip(pg_current_snapshot()));
    if late then
        return m.tick_time;
    end if;
    return least(at, case when fresh then m.tick_time + interval '1 second' end);
end;
$$;
comment on function pgq._next_release(int4, pgq.tick_ring) is 'When the next release step of a queue is due';


create or replace function pgq._release(q pgq.queue)
returns bigint language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._release(1)
--
--      Do a release step. The caller holds the delay ring's lock.
--
--      Not released: cancelled events, cancellations, and retries of a
--      registration that is no more.
-- Returns:
--      number of events put into the queue
-- ----------------------------------------------------------------------
declare
    m      pgq.tick_ring := pgq._newest_tick(-q.queue_id);
    s      pg_snapshot;
    t      timestamptz := greatest(pgq._clock(), m.tick_time);
    moved  bigint;
begin
    select pg_current_snapshot() into s;
    perform pgq._require_same_cluster(m, s);
    s := pgq._with_self(s);
    execute format($q$
        insert into pgq.%1$I (ev_id, ev_time, ev_owner, ev_retry, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4%3$s)
        select ev_id, ev_time, ev_owner, ev_retry, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4%3$s
        from (select * from pgq.%2$I where due > $1 and due <= $2 and pg_visible_in_snapshot(ev_txid, $3)
              union all
              select * from pgq.%2$I where ev_txid >= $4 and ev_txid < $5 and due <= $1 and pg_visible_in_snapshot(ev_txid, $3)
              union all
              select * from pgq.%2$I where ev_txid = any ($6) and due <= $1) d
        where not cancels
          and not exists (select from pgq.%2$I c where c.ev_id = d.ev_id and c.cancels
                          and c.ev_owner is not distinct from d.ev_owner)
          and (ev_owner is null or ev_owner = 0 or exists (select from pgq.registration where sub_id = ev_owner))
        order by due, ev_id $q$, pgq._current_slot(q), 'delay_' || q.queue_id,
        case when pgq._has_jobs(q.queue_id) then ', ev_lane' else '' end)
        using m.tick_time, t, s, pg_snapshot_xmax(m.tick_snapshot), pg_snapshot_xmax(s),
              array(select pg_snapshot_xip(m.tick_snapshot) except select pg_snapshot_xip(s));
    get diagnostics moved = row_count;
    m.tick_id := m.tick_id + 1;
    m.tick_time := t;
    m.tick_snapshot := s;
    perform pgq._store_tick(m);
    return moved;
end;
$$;
comment on function pgq._release(pgq.queue) is 'Do a release step of a queue';


create or replace function pgq.release(i_queue_name text)
returns bigint language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.release(1)
--
--      Put the delayed events of a queue that are due into it, if there are
--      any and nobody else is at it.
--
-- Returns:
--      number of events released, or null when no step was due
-- Errors:
--      PQ001, PQ007, PQ010
-- ----------------------------------------------------------------------
declare
    q  pgq.queue := pgq._queue(i_queue_name, 'no such queue');
begin
    perform pgq._require_read_committed('release');
    if (pgq._next_release(q.queue_id, pgq._newest_tick(-q.queue_id)) <= pgq._clock()) is not true
       or not pgq._lock_delays(q.queue_id, true) then
        return null;
    end if;
    if (pgq._next_release(q.queue_id, pgq._newest_tick(-q.queue_id)) <= pgq._clock()) is not true then
        return null;
    end if;
    return pgq._release(q);
end;
$$;
comment on function pgq.release(text) is
'Put the delayed events of a queue that are due into it. Returns how many, or null when no step was due.';


create or replace function pgq.releases_due(
    in i_queues text[] default null, out queue_name text, out wait_ms bigint)
returns setof record language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.releases_due(1)
--
--      Queues with delayed events, of those given or of all (null), and for
--      how many ms from now the next release step of each can wait; 0: it is
--      due. Reads only.
-- ----------------------------------------------------------------------
declare
    q   pgq.queue;
    at  timestamptz;
begin
    for q in select * from pgq.queue t where i_queues is null or t.queue_name = any (i_queues) loop
        begin
            at := pgq._next_release(q.queue_id, pgq._newest_tick(-q.queue_id));
        exception
            when others then at := pgq._clock();  -- release() shows the error, of this queue alone
        end;
        continue when at is null;
        queue_name := q.queue_name;
        wait_ms := greatest(ceil(extract(epoch from at - pgq._clock()) * 1000), 0);
        return next;
    end loop;
end;
$$;
comment on function pgq.releases_due(text[]) is
'Queues with delayed events, of those given or of all (null), and for how many ms the next release of each can wait; 0: it is due.';


create or replace function pgq.maint_retry_events()
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.maint_retry_events(0)
--
--      Release whatever is due in all queues: for PgQ's daemons. Our ticker
--      calls release() for each queue at its time.
--
--      In one go; only if a queue fails, each in a block of its own, at most
--      32 a call (see ticker(0)).
-- Returns:
--      number of events released; failures are warnings
-- ----------------------------------------------------------------------
declare
    name   text;
    total  int4 := 0;
begin
    perform pgq._require_read_committed('maint_retry_events');
    begin
        for name in select d.queue_name from pgq.releases_due() d where d.wait_ms = 0 order by 1 loop
            total := total + coalesce(pgq.release(name), 0);
        end loop;
        return total;
    exception
        when others then
            total := 0;
    end;
    for name in select d.queue_name from pgq.releases_due() d where d.wait_ms = 0 order by random() limit 32 loop
        begin
            total := total + coalesce(pgq.release(name), 0);
        exception
            when others then
                raise warning 'queue %: %', name, sqlerrm using errcode = sqlstate;
        end;
    end loop;
    return total;
end;
$$;
comment on function pgq.maint_retry_events() is 'Release whatever is due in all queues. Returns how many events.';


create or replace function pgq._live_delays(i_slot text)
returns setof pgq.delay_template language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._live_delays(1)
--
--      The rows of a closed slot of a delay ring that are still needed: not
--      released and not cancelled; cancellations whose event is still there.
-- ----------------------------------------------------------------------
declare
    nr  int4 := split_part(i_slot, '_', 2)::int4;
    m   pgq.tick_ring := pgq._newest_tick(-nr);
begin
    return query execute format($q$
        select d.* from pgq.%1$I d
        where (due > $1 or not pg_visible_in_snapshot(ev_txid, $2))
          and (ev_owner is null or ev_owner = 0 or exists (select from pgq.registration where sub_id = ev_owner))
          and cancels = exists (
                select from pgq.%2$I c where c.ev_id = d.ev_id and c.cancels <> d.cancels
                and c.ev_owner is not distinct from d.ev_owner) $q$, i_slot, 'delay_' || nr)
        using m.tick_time, m.tick_snapshot;
end;
$$;
comment on function pgq._live_delays(text) is 'Rows of a slot of a delay ring that are still needed';
