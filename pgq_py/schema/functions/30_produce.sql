-- Producing. Every queue has a generated function, produce_<id>_<hash>, with static SQL for
-- its slots: as fast as PgQ's C code, where a dynamic statement per event costs
-- more than half of the rate. The generic functions call it by name.

create or replace function pgq._produce_name(i_queue_id int4, i_queue_name text)
returns text language sql immutable as $$
    -- with a hash of the queue's name: a client that outlives a schema may know the name of a
    -- function whose number another queue has now, and must not send to that
    select 'produce_' || i_queue_id || '_' || left(md5(i_queue_name), 8)
$$;
comment on function pgq._produce_name(int4, text) is 'Name of a queue''s produce function';


create or replace function pgq._generate_produce(q pgq.queue)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._generate_produce(1)
--
--      (Re)create the queue's produce function.
--
--      It returns currval, not RETURNING ev_id, and sets neither ev_id nor
--      ev_txid: both come from the slot's defaults alone. While the queue
--      refuses inserts the function begins with that check, and while it has
--      a limit per transaction it counts; a switched-off check costs nothing.
--      What it does to wake the ticker is _wake(2), written out.
-- ----------------------------------------------------------------------
declare
    fn        text := format('pgq.%I(text, text, text, text, text, text)', pgq._produce_name(q.queue_id, q.queue_name));
    ring      text := 'event_' || q.queue_id;
    branches  text;
begin
    select string_agg(format(
            ' when %s then insert into pgq.%I (ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4)'
            ' values ($1, $2, $3, $4, $5, $6);', nr, ring || '_' || nr), '' order by nr)
        into branches from generate_series(0, q.queue_ntables - 1) nr;

    execute format($f$
        create or replace function pgq.%I(
            ev_type text, ev_data text, ev_extra1 text, ev_extra2 text, ev_extra3 text, ev_extra4 text)
        returns bigint language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $b$
        begin %s
            case pg_sequence_last_value(%L::regclass) / 2 %% %s %s end case; %s
            if pg_sequence_last_value('pgq.wake_deadline'::regclass) > 0
               and pg_sequence_last_value('pgq.wake_deadline'::regclass) > extract(epoch from clock_timestamp()) * 1000
               and current_setting('pgq.wake', true) is distinct from 'off' then
                perform pg_notify('pgq_wake', '%s');
            end if;
            return currval(%L::regclass);
        end; $b$ $f$,
        pgq._produce_name(q.queue_id, q.queue_name), pgq._refusal_sql(q), format('pgq.%I', ring || '_phase'), q.queue_ntables,
        branches, pgq._count_sql(q), q.queue_id, q.queue_event_seq);
    execute format('comment on function %s is %L', fn, 'Insert an event into one queue; generated');
    execute format('revoke all on function %s from public', fn);
    perform pgq._grant_function(fn, 'pgq_writer');
end;
$$;
comment on function pgq._generate_produce(pgq.queue) is 'Generate the produce function of a queue';


create or replace function pgq._refusal_sql(q pgq.queue)
returns text language sql immutable as $$
    -- how a generated function begins while the queue refuses inserts; a refused event uses up an id, as in PgQ
    select case when not q.queue_disable_insert then '' else
        format('if current_setting(''session_replication_role'') <> ''replica'' then perform nextval(%L::regclass);'
               ' perform pgq._refuse_disabled(''Insert into queue disallowed''); end if;', q.queue_event_seq) end
$$;
comment on function pgq._refusal_sql(pgq.queue) is 'How a generated function begins while its queue refuses inserts';


create or replace function pgq._count_sql(q pgq.queue)
returns text language sql immutable as $$
    -- how a generated function counts while the queue has a limit per transaction
    select case when q.queue_per_tx_limit is null then '' else format('perform pgq._count_in_tx(%s, 1);', q.queue_id) end
$$;
comment on function pgq._count_sql(pgq.queue) is 'How a generated function counts while its queue has a limit';


create or replace function pgq._refuse_disabled(i_message text)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._refuse_disabled(1)
--
--      Refuse an insert into a queue with queue_disable_insert, but for a
--      replica that applies somebody else's events.
-- Errors:
--      PQ005
-- ----------------------------------------------------------------------
begin
    if current_setting('session_replication_role') <> 'replica' then
        raise exception '%', i_message
            using errcode = 'PQ005',
                  hint = 'The queue has queue_disable_insert set; pgq.set_queue_config(queue, ''disable_insert'', ''false'') lifts it.';
    end if;
end;
$$;
comment on function pgq._refuse_disabled(text) is 'Refuse an insert into a disabled queue';


create or replace function pgq._count_in_tx(i_queue int4, i_events int8)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._count_in_tx(2)
--
--      Count the events that this transaction puts into a queue that has
--      queue_per_tx_limit.
--
--      In a setting of the transaction: nothing is written, a savepoint's
--      rollback takes its events back, and it is gone at the end. Any session
--      can set it to something else, so the limit guards against accidents
--      only. COPY is not counted.
-- Errors:
--      PQ005  - more than the limit
-- ----------------------------------------------------------------------
declare
    name   text := 'pgq.events_in_tx_' || i_queue;
    q      pgq.queue;
    count  bigint := coalesce(nullif(current_setting(name, true), '')::bigint, 0) + i_events;
begin
    select * into q from pgq.queue where queue_id = i_queue;
    if count > q.queue_per_tx_limit then
        raise exception 'Queue ''%'' allows max % events from one TX', q.queue_name, q.queue_per_tx_limit
            using errcode = 'PQ005', detail = 'Nothing was inserted.',
                  hint = 'pgq.set_queue_config(queue, ''per_tx_limit'', null) lifts the limit.';
    end if;
    perform set_config(name, count::text, true);
end;
$$;
comment on function pgq._count_in_tx(int4, int8) is 'Count the events that a transaction puts into a limited queue';


create or replace function pgq._queue_changed()
returns trigger language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq._queue_changed()
--
--      AFTER UPDATE trigger of pgq.queue: generate the produce function anew,
--      and of a job queue the enqueue function, when what is built into it has changed.
-- ----------------------------------------------------------------------
begin
    if new.queue_disable_insert is distinct from old.queue_disable_insert
       or (new.queue_per_tx_limit is null) <> (old.queue_per_tx_limit is null) then
        perform pgq._generate_produce(new);
        perform pgq._generate_enqueue(new) where pgq._has_jobs(new.queue_id);
    end if;
    return null;
end;
$$;
comment on function pgq._queue_changed() is 'Trigger: keep produce functions in step with settings';


create or replace function pgq.producer_function(i_queue_name text)
returns text language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.producer_function(1)
--
--      Name (in schema pgq) of the queue's own produce function, for clients
--      that send many events one by one: produce_N_HASH(ev_type, ev_data,
--      ev_extra1, ev_extra2, ev_extra3, ev_extra4) returns the event's id.
--
-- Parameters:
--      i_queue_name  - name of the queue
-- Errors:
--      PQ001         - no such queue
-- ----------------------------------------------------------------------
declare
    q  pgq.queue := pgq._queue(i_queue_name);
begin
    return pgq._produce_name(q.queue_id, q.queue_name);
end;
$$;
comment on function pgq.producer_function(text) is
'Name, in schema pgq, of the queue''s own produce function (type, data, extra1, extra2, extra3, extra4) -> event id: the fastest way to send events one by one.';


create or replace function pgq.insert_event(
    queue_name text, ev_type text, ev_data text,
    ev_extra1 text, ev_extra2 text, ev_extra3 text, ev_extra4 text)
returns bigint language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq.insert_event(7)
--
--      Insert an event into a queue, in the caller's transaction, at any
--      isolation level.
--
--      SECURITY INVOKER: the right to produce is EXECUTE on the queue's own
--      function, and PostgreSQL checks it where that is called.
--
-- Parameters:
--      queue_name     - name of the queue
--      ev_type        - kind of event, free text, may be null
--      ev_data        - payload, free text, may be null
--      ev_extra1 .. 4 - more of it
-- Returns:
--      id of the event
-- Errors:
--      PQ001  - no such queue
--      PQ005  - the queue refuses inserts
--      40001  - the ring rotated twice in between; repeat the transaction
--      42501  - the caller may not produce into this queue
-- Tables touched:
--      the queue's current slot
-- ----------------------------------------------------------------------
declare
    id   bigint;
    nr   int4;
begin
    select q.queue_id into nr from pgq.queue q where q.queue_name = $1;
    if nr is null then
        perform pgq.producer_function($1);  -- raises
    end if;
    execute 'select pgq.produce_' || nr || '_' || left(md5($1), 8) || '($1, $2, $3, $4, $5, $6)' into id using $2, $3, $4, $5, $6, $7;
    return id;
end;
$$;
comment on function pgq.insert_event(text, text, text, text, text, text, text) is
'Insert an event with extra fields into a queue, in the caller''s transaction. Returns its id.';


create or replace function pgq.insert_event(queue_name text, ev_type text, ev_data text)
returns bigint language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq.insert_event(3)
--
--      As insert_event(7), without extra fields. Written out, not passed on:
--      a second call would cost a tenth of the rate.
-- ----------------------------------------------------------------------
declare
    id   bigint;
    nr   int4;
begin
    select q.queue_id into nr from pgq.queue q where q.queue_name = $1;
    if nr is null then
        perform pgq.producer_function($1);  -- raises
    end if;
    execute 'select pgq.produce_' || nr || '_' || left(md5($1), 8) || '($1, $2, null, null, null, null)' into id using $2, $3;
    return id;
end;
$$;
comment on function pgq.insert_event(text, text, text) is
'Insert an event into a queue, in the caller''s transaction. Returns its id.';


create or replace function pgq.insert_event_raw(
    queue_name text, ev_id bigint, ev_time timestamptz, ev_owner integer, ev_retry integer,
    ev_type text, ev_data text, ev_extra1 text, ev_extra2 text, ev_extra3 text, ev_extra4 text)
returns bigint language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.insert_event_raw(11)
--
--      Insert an event with every column given: for replication and repair.
--
-- Parameters:
--      ev_id     - null: the next one
--      ev_time   - null: now
--      ev_owner  - registration that alone shall see it; null: all
--      ev_retry  - how often it has been retried
-- Returns:
--      id of the event
-- Errors:
--      PQ001, PQ005, 40001 as insert_event(7)
-- ----------------------------------------------------------------------
declare
    q   pgq.queue := pgq._queue($1);
    id  bigint := coalesce($2, nextval(q.queue_event_seq::regclass));
begin
    if q.queue_disable_insert then
        perform pgq._refuse_disabled('Insert into queue disallowed');
    end if;
    execute format('insert into pgq.%I (ev_id, ev_time, ev_owner, ev_retry, ev_type, ev_data,'
                   ' ev_extra1, ev_extra2, ev_extra3, ev_extra4) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)',
                   pgq._current_slot(q))
        using id, coalesce($3, now()), $4, $5, $6, $7, $8, $9, $10, $11;
    perform pgq._count_in_tx(q.queue_id, 1) where q.queue_per_tx_limit is not null;
    perform pgq._wake(q.queue_id);
    return id;
end;
$$;
comment on function pgq.insert_event_raw(text, bigint, timestamptz, integer, integer, text, text, text, text, text, text) is
'Insert an event with every column given: for replication and repair. Returns its id.';


create or replace function pgq._current_slot(q pgq.queue)
returns text language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._current_slot(1)
--
--      Table (in schema pgq) that takes the queue's events now.
-- ----------------------------------------------------------------------
begin
    return pgq._slot('event_' || q.queue_id, q.queue_ntables, pgq._phase('event_' || q.queue_id) / 2);
end;
$$;
comment on function pgq._current_slot(pgq.queue) is 'Table that takes a queue''s events now';


create or replace function pgq.current_event_table(x_queue_name text)
returns text language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.current_event_table(1)
--
--      Table that takes the queue's events now, for COPY of the columns
--      ev_type, ev_data, ev_extra1 .. ev_extra4.
--
--      Good for the current transaction. If it is used much later the insert
--      is refused with 40001, never lost.
--
-- Errors:
--      PQ001, PQ005
-- ----------------------------------------------------------------------
declare
    q  pgq.queue := pgq._queue(x_queue_name, 'Event queue not found');
begin
    perform pgq._require_produce(q);
    if q.queue_disable_insert then
        perform pgq._refuse_disabled('Writing to queue disabled');
    end if;
    return 'pgq.' || pgq._current_slot(q);
end;
$$;
comment on function pgq.current_event_table(text) is
'Table that takes the queue''s events now: the target for COPY (ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4). Ask in the transaction that uses it.';
