-- Dead letters: events that a consumer gave up. They outlive its registration and its
-- queue. Replaying or purging one appends a row that says so; rotation drops both.

create or replace function pgq._dead_slot()
returns text language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._dead_slot()
--
--      Table (in schema pgq) that takes dead letters now.
-- ----------------------------------------------------------------------
begin
    return pgq._slot('dead_ring', 3, pgq._phase('dead_ring') / 2);
end;
$$;
comment on function pgq._dead_slot() is 'Table that takes dead letters now';


create or replace function pgq._live_deads(i_slot text)
returns setof pgq.dead_ring language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._live_deads(1)
--
--      The rows of a closed slot of the dead ring that are still needed:
--      letters that nothing has been done with, and what was done with those
--      that are still in another slot.
-- ----------------------------------------------------------------------
begin
    return query execute format($q$
        select d.* from pgq.%I d
        where case when d.done = ''
              then not exists (select from pgq.dead_ring g where g.dl_id = d.dl_id and g.done <> '')
              else exists (select from pgq.dead_ring g where g.dl_id = d.dl_id and g.done = '' and g.tableoid <> d.tableoid)
              end $q$, i_slot);
end;
$$;
comment on function pgq._live_deads(text) is 'Rows of a slot of the dead ring that are still needed';


create or replace function pgq._bury(
    c pgq.cursor_ring, i_ids bigint[], i_queue_name text, i_consumer_name text, i_reason text)
returns bigint language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._bury(5)
--
--      Make dead letters of events of an open batch; the caller has locked its
--      registration. Those buried before with as many attempts are passed over
--      (read in a second statement, see _waiting_retries).
-- Returns:
--      number of events buried
-- ----------------------------------------------------------------------
declare
    buried  bigint;
begin
    if cardinality(i_ids) = 0 then
        return 0;
    end if;
    perform from pgq.dead_ring limit 0;
    execute format($q$
        insert into pgq.%I (dl_id, queue_name, consumer_name, reason, attempts, ev_id, ev_time, ev_retry,
                            ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4)
        select nextval('pgq.dead_letter_id_seq'), $3, $4, left($5, 8192), coalesce(ev_retry, 0) + 1, e.*
        from pgq._batch_events($1, $2) e
        where not exists (select from pgq.dead_ring d where d.queue_name = $3 and d.consumer_name = $4
                          and d.ev_id = e.ev_id and d.attempts = coalesce(e.ev_retry, 0) + 1 and d.done = '')
        order by ev_id $q$, pgq._dead_slot())
        using c, i_ids, i_queue_name, i_consumer_name, i_reason;
    get diagnostics buried = row_count;
    return buried;
end;
$$;
comment on function pgq._bury(pgq.cursor_ring, bigint[], text, text, text) is 'Make dead letters of events of a batch';


create or replace function pgq._choose_dead(
    i_ids bigint[], i_queue_name text, i_consumer_name text, i_type text, i_older_than interval)
returns setof pgq.dead_ring language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._choose_dead(5)
--
--      Pending dead letters by id and filter (null: any), under the dead
--      ring's lock so that nobody else does anything with them.
-- ----------------------------------------------------------------------
begin
    perform from pgq.ring where ring_name = 'dead_ring' for update;
    return query select d.* from pgq.dead_ring d
        where d.done = '' and not exists (select from pgq.dead_ring g where g.dl_id = d.dl_id and g.done <> '')
          and (i_ids is null or d.dl_id = any (i_ids))
          and (i_queue_name is null or d.queue_name = i_queue_name)
          and (i_consumer_name is null or d.consumer_name = i_consumer_name)
          and (i_type is null or d.ev_type = i_type)
          and (i_older_than is null or d.failed_at < clock_timestamp() - i_older_than)
        order by d.dl_id;
end;
$$;
comment on function pgq._choose_dead(bigint[], text, text, text, interval) is 'Pending dead letters by id and filter';


create or replace function pgq._mark_dead(d pgq.dead_ring, i_done text)
returns void language plpgsql as $$
-- Append what was done with a dead letter. The caller has the dead ring's lock.
begin
    execute format('insert into pgq.%I (dl_id, done, queue_name, consumer_name, ev_id) values ($1, $2, $3, $4, $5)',
                   pgq._dead_slot())
        using d.dl_id, i_done, d.queue_name, d.consumer_name, d.ev_id;
end;
$$;
comment on function pgq._mark_dead(pgq.dead_ring, text) is 'Append what was done with a dead letter';


create or replace function pgq._replay(d pgq.dead_ring)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._replay(1)
--
--      Put a dead letter back into its queue, for its consumer alone, with no
--      retries counted.
-- Errors:
--      PQ001, PQ002 the queue or the registration is no more; PQ007
-- ----------------------------------------------------------------------
declare
    r  pgq.registration;
    q  pgq.queue := pgq._queue(d.queue_name);
begin
    if d.consumer_name = '' then
        perform pgq._replay_job(d);
        return;
    end if;
    r := pgq._registration(d.queue_name, d.consumer_name);
    execute format('insert into pgq.%I (ev_id, ev_time, ev_owner, ev_retry, ev_type, ev_data,'
                   ' ev_extra1, ev_extra2, ev_extra3, ev_extra4) values ($1, $2, $3, null, $4, $5, $6, $7, $8, $9)',
                   pgq._current_slot(q))
        using d.ev_id, d.ev_time, r.sub_id, d.ev_type, d.ev_data, d.ev_extra1, d.ev_extra2, d.ev_extra3, d.ev_extra4;
    perform pgq._mark_dead(d, 'replayed');
    perform pgq._wake(q.queue_id);
end;
$$;
comment on function pgq._replay(pgq.dead_ring) is 'Put a dead letter back into its queue';


create or replace function pgq.dlq_replay(i_dl_id bigint)
returns bigint language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.dlq_replay(1)
--
--      Replay one dead letter: it comes again, to the consumer that gave it up.
--
-- Returns:
--      id of the event
-- Errors:
--      PQ001, PQ002 its queue or consumer is no more, PQ007, 42501
--      PQ013  - no such dead letter: replayed or purged already
-- ----------------------------------------------------------------------
declare
    d  pgq.dead_ring;
begin
    perform pgq._require_read_committed('dlq_replay');
    perform from pgq.ring where ring_name = 'dead_ring' for update;
    select * into d from pgq._choose_dead(array[i_dl_id], null, null, null, null);
    if d.dl_id is null then
        raise exception 'no such dead letter: %', coalesce(i_dl_id::text, 'NULL')
            using errcode = 'PQ013', hint = 'It was replayed or purged already; pgq.dead_letter shows those that are left.';
    end if;
    perform pgq._replay(d);
    return d.ev_id;
end;
$$;
comment on function pgq.dlq_replay(bigint) is
'Replay one dead letter to the consumer that gave it up. Returns the id of the event.';


create or replace function pgq.dlq_replay_all(
    i_queue_name text, i_consumer_name text default null, i_type text default null)
returns bigint language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.dlq_replay_all(3)
--
--      Replay the dead letters of a queue, or of one consumer on it, or of one
--      type, each to the consumer that gave it up.
--
-- Returns:
--      how many
-- Errors:
--      PQ001, PQ002 a consumer is no more (none was replayed), PQ007, 42501
-- ----------------------------------------------------------------------
declare
    d  pgq.dead_ring;
    n  bigint := 0;
begin
    perform pgq._require_read_committed('dlq_replay');
    perform pgq._queue(i_queue_name);
    perform from pgq.ring where ring_name = 'dead_ring' for update;
    for d in select * from pgq._choose_dead(null, i_queue_name, i_consumer_name, i_type, null) loop
        perform pgq._replay(d);
        n := n + 1;
    end loop;
    return n;
end;
$$;
comment on function pgq.dlq_replay_all(text, text, text) is
'Replay the dead letters of a queue, a consumer, a type. Returns how many.';


create or replace function pgq.dlq_purge(
    i_queue_name text default null, i_consumer_name text default null, i_type text default null,
    i_older_than interval default null, i_dl_ids bigint[] default null)
returns bigint language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.dlq_purge(5)
--
--      Drop dead letters for good: by queue, consumer, type, age, ids; null
--      means any, all null means all.
--
-- Returns:
--      how many
-- Errors:
--      PQ007
-- ----------------------------------------------------------------------
declare
    n  bigint;
begin
    perform pgq._require_read_committed('dlq_purge');
    perform from pgq.ring where ring_name = 'dead_ring' for update;
    select count(pgq._mark_dead(d, 'purged')) into n
        from pgq._choose_dead(i_dl_ids, i_queue_name, i_consumer_name, i_type, i_older_than) d;
    return n;
end;
$$;
comment on function pgq.dlq_purge(text, text, text, interval, bigint[]) is
'Drop dead letters for good: by queue, consumer, type, age, ids; null means any. Returns how many.';
