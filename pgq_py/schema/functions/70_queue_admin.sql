-- Creating, configuring and dropping queues.

create or replace function pgq.create_queue(i_queue_name text, i_ntables int4)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.create_queue(2)
--
--      Create a queue: its event and delay rings, its produce function, its
--      first tick.
--
-- Parameters:
--      i_queue_name  - 1 to 128 characters, no control characters
--      i_ntables     - slots of its event ring, 3 to 64: more for a queue
--                      that keeps consumed events (queue_retention)
-- Returns:
--      1 created, 0 it exists already
-- Errors:
--      PQ006 name or number, PQ007
-- ----------------------------------------------------------------------
begin
    return pgq._create_queue(i_queue_name, i_ntables, false);
end;
$$;
comment on function pgq.create_queue(text, int4) is
'Create a queue whose event ring has so many slots. Returns 1, or 0 when it exists.';


create or replace function pgq._create_queue(i_queue_name text, i_ntables int4, i_jobs boolean)
returns integer language plpgsql set client_min_messages = warning as $$
-- ----------------------------------------------------------------------
-- Function: pgq._create_queue(3)
--
--      create_queue(2); with i_jobs of a job queue, whose event slots have a lane and
--      which has a held ring.
-- ----------------------------------------------------------------------
declare
    q        pgq.queue;
    ring     text;
    c        pgq.cursor_ring;
    parent   text := case when i_jobs then 'job_template' else 'event_template' end;
begin
    perform pgq._require_read_committed('create_queue');
    perform pgq._check_name('queue', i_queue_name);
    if (i_ntables between 3 and 64) is not true then
        raise exception 'the number of slots must be 3 to 64, not %', coalesce(i_ntables::text, 'NULL')
            using errcode = 'PQ006';
    end if;
    if exists (select from pgq.queue where queue_name = i_queue_name) then
        return 0;
    end if;
    insert into pgq.queue (queue_name, queue_ntables) values (i_queue_name, i_ntables)
        on conflict do nothing returning * into q;
    if q.queue_id is null then
        return 0;
    end if;

    ring := 'event_' || q.queue_id;
    execute format('create sequence pgq.%I', ring || '_id_seq');
    execute format('create table pgq.%1$I (like pgq.%2$I including all) inherits (pgq.%2$I)', ring, parent);
    execute format('alter table pgq.%I alter column ev_id set default nextval(%L::regclass)', ring, q.queue_event_seq);
    if i_jobs then
        insert into pgq.job_queue (queue_id) values (q.queue_id);
    end if;
    perform pgq._declare_ring(ring, 'event', q.queue_id, q.queue_ntables, null);
    perform pgq._generate_produce(q), pgq._generate_open(q);
    if i_jobs then
        ring := 'held_' || q.queue_id;
        execute format('create table pgq.%I (like pgq.held_template including all) inherits (pgq.held_template)', ring);
        execute format('alter table pgq.%I alter column ev_queue set default %s', ring, q.queue_id);
        perform pgq._declare_ring(ring, 'held', q.queue_id, 3, interval '1 hour');
    end if;

    ring := 'delay_' || q.queue_id;
    execute format('create table pgq.%I (like pgq.delay_template including all) inherits (pgq.delay_template)', ring);
    execute format('alter table pgq.%I alter column ev_queue set default %s', ring, q.queue_id);
    perform pgq._declare_ring(ring, 'delay', q.queue_id, 3, interval '1 hour');
    -- the first release mark: nothing was released before it
    perform pgq._store_tick((-q.queue_id, 1, pgq._clock(), pgq._with_self(pg_current_snapshot()), 0, 0, 0, false)::pgq.tick_ring);

    perform pgq._make_tick(q, (q.queue_id, 0, null, null, null, null, null, null)::pgq.tick_ring, false);
    -- the floor: the first generation there is (see _declare_ring)
    c.sub_id := -q.queue_id;
    c.pos := 0;
    c.last_tick := 1;
    c.lo := q.queue_ntables;
    perform pgq._move_cursor(c);
    return 1;
end;
$$;
comment on function pgq._create_queue(text, int4, boolean) is 'Create a queue, or a job queue';


create or replace function pgq.create_queue(i_queue_name text)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- as create_queue(2), with three slots
begin
    return pgq.create_queue(i_queue_name, 3);
end;
$$;
comment on function pgq.create_queue(text) is 'Create a queue. Returns 1, or 0 when it exists.';


create or replace function pgq.drop_queue(x_queue_name text, x_force bool)
returns integer language plpgsql security definer
set search_path = pg_catalog, pgq, pg_temp set client_min_messages = warning as $$
-- ----------------------------------------------------------------------
-- Function: pgq.drop_queue(2)
--
--      Drop a queue with its events. Waits for transactions that use them.
--      Its ticks and cursors go when their rings rotate; its dead letters
--      stay until they are purged.
--
-- Parameters:
--      x_queue_name  - the queue
--      x_force       - also when consumers are registered on it
-- Returns:
--      1
-- Errors:
--      PQ001, PQ007
--      PQ009  - consumers are registered and x_force is false
-- ----------------------------------------------------------------------
declare
    q      pgq.queue;
    names  text;
begin
    perform pgq._require_read_committed('drop_queue');
    q := pgq._queue(x_queue_name, 'No such event queue');
    perform pgq._lock_event_ring(q.queue_id, 'No such event queue');
    perform from pgq.queue where queue_id = q.queue_id for update;
    select string_agg(co_name, ', ' order by co_name) into names
        from pgq.registration join pgq.consumer on co_id = sub_consumer where sub_queue = q.queue_id;
    if names is not null and x_force is not true then
        raise exception 'cannot drop queue, consumers still attached'
            using errcode = 'PQ009', detail = format('consumers: %s', names),
                  hint = 'Unregister them, or drop the queue with force.';
    end if;

    delete from pgq.registration where sub_queue = q.queue_id;
    delete from pgq.consume_grant where queue_id = q.queue_id;
    delete from pgq.eviction where queue_id = q.queue_id;
    delete from pgq.retry_policy where queue_id = q.queue_id;
    execute format('drop function pgq.%I(text, text, text, text, text, text), pgq.%I',
                   pgq._produce_name(q.queue_id, q.queue_name), pgq._open_name(q.queue_id, q.queue_name));
    perform pgq._lock_delays(q.queue_id);
    perform pgq._drop_ring('delay_' || q.queue_id);
    perform pgq._drop_jobs(q);
    perform pgq._drop_ring('event_' || q.queue_id);
    execute format('drop sequence %s', q.queue_event_seq);
    delete from pgq.queue where queue_id = q.queue_id;
    return 1;
end;
$$;
comment on function pgq.drop_queue(text, bool) is 'Drop a queue with its events; with force also when consumers are registered. Returns 1.';


create or replace function pgq.drop_queue(x_queue_name text)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- as drop_queue(2), without force
begin
    return pgq.drop_queue(x_queue_name, false);
end;
$$;
comment on function pgq.drop_queue(text) is 'Drop a queue with its events; refused while consumers are registered. Returns 1.';


create or replace function pgq.set_queue_config(x_queue_name text, x_param_name text, x_param_value text)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.set_queue_config(3)
--
--      Change one setting of a queue.
--
-- Parameters:
--      x_param_name   - ticker_max_count, ticker_max_lag, ticker_idle_period (null: on demand),
--                       ticker_paused, external_ticker, disable_insert,
--                       per_tx_limit (null: none), rotation_period (null: never), retention, max_consumer_lag (null: off),
--                       max_retries (of the queue's retry policy, see set_retry_policy)
--      x_param_value  - as text
-- Returns:
--      1
-- Errors:
--      PQ001, PQ006 unknown setting, or a value it cannot have
-- ----------------------------------------------------------------------
declare
    col   text := 'queue_' || x_param_name;
    kind  text;
begin
    if x_queue_name is null or x_param_name is null then
        raise exception 'Invalid NULL value' using errcode = 'PQ006';
    end if;
    perform pgq._queue(x_queue_name, 'No such event queue');
    if x_param_name = 'max_retries' then
        return pgq._set_max_retries(x_queue_name, x_param_value);
    end if;
    kind := case
        when x_param_name in ('ticker_max_count', 'per_tx_limit') then 'int4'
        when x_param_name in ('ticker_max_lag', 'ticker_idle_period', 'rotation_period', 'retention',
                              'max_consumer_lag') then 'interval'
        when x_param_name in ('ticker_paused', 'external_ticker', 'disable_insert') then 'boolean' end;
    if kind is null then
        raise exception 'cannot change parameter "%"', x_param_name
            using errcode = 'PQ006',
                  hint = 'Settings: ticker_max_count, ticker_max_lag, ticker_idle_period, ticker_paused,'
                         ' external_ticker, disable_insert, per_tx_limit, rotation_period, retention, max_consumer_lag,'
                         ' max_retries.';
    end if;
    begin
        execute format('update pgq.queue set %I = $1::%s where queue_name = $2', col, kind)
            using x_param_value, x_queue_name;
    exception
        when data_exception or check_violation or not_null_violation then
            raise exception 'parameter "%" cannot be %', x_param_name, coalesce(quote_literal(x_param_value), 'NULL')
                using errcode = 'PQ006', detail = sqlerrm, hint = case kind
                    when 'int4' then 'Allowed: 1 to 2147483647, or NULL.'
                    when 'boolean' then 'Allowed: true, false.'
                    else 'Allowed: an interval from 0 (max_consumer_lag: 1 minute) to 10 years (ticker_max_lag: 1 day);'
                         ' NULL for all but retention.' end;
    end;
    return 1;
end;
$$;
comment on function pgq.set_queue_config(text, text, text) is 'Change one setting of a queue. Returns 1.';


create or replace function pgq._set_max_retries(i_queue_name text, i_value text)
returns integer language plpgsql as $$
-- Change max_retries in the queue's retry policy, keeping the rest; 1; PQ006
declare
    q  pgq.queue := pgq._queue(i_queue_name);
    p  pgq.retry_policy := pgq._retry_policy(q.queue_id, '');
begin
    return pgq.set_retry_policy(i_queue_name, null, i_value::int4, p.kind, p.base, p.cap, p.jitter, p.delays);
exception
    when data_exception then
        raise exception 'parameter "max_retries" cannot be %', coalesce(quote_literal(i_value), 'NULL')
            using errcode = 'PQ006', hint = 'Allowed: 0 to 1000000.';
end;
$$;
comment on function pgq._set_max_retries(text, text) is 'Change max_retries in a queue''s retry policy';


create or replace function pgq._set_paused(i_queue_name text, i_paused boolean)
returns integer language plpgsql as $$
-- 1 when the setting changed, 0 when it was so already; PQ001
begin
    perform pgq._queue(i_queue_name);
    update pgq.queue set queue_ticker_paused = i_paused
        where queue_name = i_queue_name and queue_ticker_paused <> i_paused;
    return found::int;
end;
$$;
comment on function pgq._set_paused(text, boolean) is 'Pause or resume a queue';


create or replace function pgq.pause_queue(i_queue_name text)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.pause_queue(1)
--
--      Stop ticks on a queue: consumers get what is ticked already and then
--      nothing; events are taken and kept.
-- Returns:
--      1, or 0 when it was paused
-- Errors:
--      PQ001
-- ----------------------------------------------------------------------
begin
    return pgq._set_paused(i_queue_name, true);
end;
$$;
comment on function pgq.pause_queue(text) is 'Pause delivery; events are taken and kept. Returns 1, or 0 when it was paused.';


create or replace function pgq.resume_queue(i_queue_name text)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.resume_queue(1)
--
--      Undo pause_queue.
-- Returns:
--      1, or 0 when it was not paused
-- Errors:
--      PQ001
-- ----------------------------------------------------------------------
begin
    return pgq._set_paused(i_queue_name, false);
end;
$$;
comment on function pgq.resume_queue(text) is 'Resume delivery. Returns 1, or 0 when it was not paused.';
