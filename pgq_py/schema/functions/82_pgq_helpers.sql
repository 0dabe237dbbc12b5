-- Functions that PgQ has beside its log, for programs that call them.

create or replace function pgq.quote_fqname(i_name text)
returns text language sql immutable strict as $$
    -- schema.name, each quoted where need be; without a dot it is in public, as PgQ has it
    select case when strpos(i_name, '.') > 0
           then quote_ident(split_part(i_name, '.', 1)) || '.' || quote_ident(substr(i_name, strpos(i_name, '.') + 1))
           else 'public.' || quote_ident(i_name) end
$$;
comment on function pgq.quote_fqname(text) is 'A name of the form schema.name, quoted; a name alone is in schema public.';


create or replace function pgq.seq_getval(i_seq_name text)
returns bigint language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq.seq_getval(1)
--
--      Where a sequence stands, with the caller's rights.
--
-- Parameters:
--      i_seq_name  - schema.name, unquoted; without a schema in public
-- ----------------------------------------------------------------------
declare
    value  bigint;
begin
    if i_seq_name is not null then
        execute 'select last_value from ' || pgq.quote_fqname(i_seq_name) into value;
    end if;
    return value;
end;
$$;
comment on function pgq.seq_getval(text) is 'Where a sequence stands.';


create or replace function pgq.seq_setval(i_seq_name text, i_new_value bigint)
returns bigint language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq.seq_setval(2)
--
--      Move a sequence forward, never back, with the caller's rights.
--
-- Parameters:
--      i_seq_name   - schema.name, unquoted; without a schema in public
--      i_new_value  - value to set, if the sequence stands below it
-- Returns:
--      where the sequence stands
-- ----------------------------------------------------------------------
declare
    value  bigint := pgq.seq_getval(i_seq_name);
begin
    if value < i_new_value then
        return setval(pgq.quote_fqname(i_seq_name)::regclass, i_new_value);
    end if;
    return value;
end;
$$;
comment on function pgq.seq_setval(text, bigint) is 'Move a sequence forward, never back. Returns where it stands.';


create or replace function pgq.find_tick_helper(
    in i_queue_id int4, in i_prev_tick_id bigint, in i_prev_tick_time timestamptz, in i_prev_tick_seq bigint,
    in i_min_count bigint, in i_min_interval interval,
    out next_tick_id bigint, out next_tick_time timestamptz, out next_tick_seq bigint)
returns record language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.find_tick_helper(6)
--
--      A tick for a batch of a least size or span of time: the newest one,
--      unless that is more than twice too far; then the first that is far
--      enough. Null when none is. next_batch_custom() does not need it; PgQ's
--      clients may.
--
-- Parameters:
--      i_queue_id, i_prev_tick_id, i_prev_tick_time, i_prev_tick_seq  - tick from which the batch goes
--      i_min_count     - least number of events, by the event sequence; or null
--      i_min_interval  - least span of time; or null
-- ----------------------------------------------------------------------
declare
    t      pgq.tick_ring := pgq._newest_tick(i_queue_id);
    count  bigint := t.tick_event_seq - i_prev_tick_seq;
    span   interval := t.tick_time - i_prev_tick_time;
begin
    if t.tick_id <= i_prev_tick_id or (count >= i_min_count or span >= i_min_interval) is not true then
        return;
    end if;
    if count > i_min_count * 2 or span > i_min_interval * 2 then
        select * into t from pgq.tick_ring
            where tick_queue = i_queue_id and tick_id > i_prev_tick_id
              and (tick_event_seq - i_prev_tick_seq >= i_min_count or tick_time - i_prev_tick_time >= i_min_interval)
            order by tick_queue, tick_id limit 1;
    end if;
    next_tick_id := t.tick_id;
    next_tick_time := t.tick_time;
    next_tick_seq := t.tick_event_seq;
end;
$$;
comment on function pgq.find_tick_helper(int4, bigint, timestamptz, bigint, bigint, interval) is
'A tick for a batch of a least size or span of time; for PgQ''s clients.';


create or replace function pgq.grant_perms(x_queue_name text)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.grant_perms(1)
--
--      Grant the roles pgq_reader, pgq_writer and pgq_admin their rights on a
--      queue. create_queue() does it; this repairs them.
-- Returns:
--      1
-- Errors:
--      PQ001
-- ----------------------------------------------------------------------
declare
    q  pgq.queue := pgq._queue(x_queue_name, 'Queue not found');
begin
    perform pgq._grant_ring('event_' || q.queue_id);
    perform pgq._grant_function(format('pgq.%I(text, text, text, text, text, text)',
                                       pgq._produce_name(q.queue_id, q.queue_name)), 'pgq_writer');
    return 1;
end;
$$;
comment on function pgq.grant_perms(text) is 'Grant PgQ''s roles their rights on a queue again. Returns 1.';


create or replace function pgq.tune_storage(i_queue_name text)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.tune_storage(1)
--
--      Give a queue's event slots their storage settings: full pages and no
--      autovacuum. create_queue() does it; this repairs them.
-- Returns:
--      1, or 0 when there is no such queue
-- ----------------------------------------------------------------------
declare
    r  pgq.ring;
begin
    if i_queue_name is null then
        return null;
    end if;
    select pgq.ring.* into r from pgq.ring join pgq.queue on queue_id = ring_queue
        where queue_name = i_queue_name and ring_kind = 'event';
    if not found then
        return 0;
    end if;
    for nr in 0 .. r.ring_slots - 1 loop
        execute format('alter table pgq.%I set (fillfactor = 100, autovacuum_enabled = off, toast.autovacuum_enabled = off)',
                       r.ring_name || '_' || nr);
    end loop;
    return 1;
end;
$$;
comment on function pgq.tune_storage(text) is 'Give a queue''s slots their storage settings again. Returns 1, or 0 for no such queue.';


create or replace function pgq.upgrade_schema()
returns integer language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq.upgrade_schema(0)
--
--      Nothing: `pgq upgrade` upgrades. For PgQ's scripts, which call it.
-- Returns:
--      0
-- ----------------------------------------------------------------------
begin
    return 0;
end;
$$;
comment on function pgq.upgrade_schema() is 'Nothing: pgq upgrade does it. Returns 0.';
