-- Producing for later, and taking it back.

create or replace function pgq._check_due(i_due timestamptz)
returns void language plpgsql as $$
-- PQ006 unless the time is finite and within ten years
begin
    if (i_due > '-infinity' and i_due < pgq._clock() + interval '10 years') is not true then
        raise exception 'cannot deliver at %', coalesce(i_due::text, 'NULL')
            using errcode = 'PQ006', hint = 'Give a time within the next ten years; a past one means now.';
    end if;
end;
$$;
comment on function pgq._check_due(timestamptz) is 'Check a time of delivery';


create or replace function pgq.insert_event_at(
    queue_name text, deliver_at timestamptz, ev_type text, ev_data text, ev_extra1 text default null,
    ev_extra2 text default null, ev_extra3 text default null, ev_extra4 text default null)
returns bigint language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.insert_event_at(8)
--
--      Insert an event that is to be delivered at a time, never before it. In
--      the caller's transaction, at any isolation level.
--
-- Parameters:
--      deliver_at  - by the database's clock; in the past: into the log at once
-- Returns:
--      id of the event, with which cancel_event() takes it back
-- Errors:
--      PQ001, PQ005, PQ006 no such time, 40001, 42501
-- ----------------------------------------------------------------------
declare
    q   pgq.queue := pgq._queue($1);
    id  bigint;
begin
    perform pgq._require_produce(q);
    perform pgq._check_due($2);
    if q.queue_disable_insert then
        perform pgq._refuse_disabled('Insert into queue disallowed');
    end if;
    if $2 <= pgq._clock() then
        return pgq.insert_event($1, $3, $4, $5, $6, $7, $8);
    end if;
    id := nextval(q.queue_event_seq::regclass);
    execute format('insert into pgq.%I (due, ev_queue, ev_id, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4)'
                   ' values ($1, $2, $3, $4, $5, $6, $7, $8, $9)', pgq._delay_slot(q.queue_id))
        using $2, q.queue_id, id, $3, $4, $5, $6, $7, $8;
    perform pgq._wake(q.queue_id, true);
    return id;
end;
$$;
comment on function pgq.insert_event_at(text, timestamptz, text, text, text, text, text, text) is
'Insert an event that is to be delivered at a time, never before it. Returns its id.';


create or replace function pgq.send(queue text, type text, data text, deliver_at timestamptz)
returns bigint language plpgsql as $$
-- as insert_event_at(8)
begin
    return pgq.insert_event_at($1, $4, $2, $3);
end;
$$;
comment on function pgq.send(text, text, text, timestamptz) is 'Send an event to be delivered at a time. Returns its id.';


create or replace function pgq.send(queue text, type text, data jsonb, deliver_at timestamptz)
returns bigint language plpgsql as $$
-- as insert_event_at(8)
begin
    return pgq.insert_event_at($1, $4, $2, $3::text);
end;
$$;
comment on function pgq.send(text, text, jsonb, timestamptz) is 'Send an event, data as jsonb, to be delivered at a time. Returns its id.';


create or replace function pgq.send(queue text, type text, data text, deliver_in interval)
returns bigint language plpgsql as $$
-- as insert_event_at(8), so long from now
begin
    return pgq.insert_event_at($1, clock_timestamp() + $4, $2, $3);
end;
$$;
comment on function pgq.send(text, text, text, interval) is 'Send an event to be delivered after a while. Returns its id.';


create or replace function pgq.send(queue text, type text, data jsonb, deliver_in interval)
returns bigint language plpgsql as $$
-- as insert_event_at(8), so long from now
begin
    return pgq.insert_event_at($1, clock_timestamp() + $4, $2, $3::text);
end;
$$;
comment on function pgq.send(text, text, jsonb, interval) is 'Send an event, data as jsonb, to be delivered after a while. Returns its id.';


create or replace function pgq.send_batch_at(queue text, deliver_at timestamptz[], type text, data text[])
returns bigint[] language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.send_batch_at(4)
--
--      Send many events of one type for later, in one statement.
--
-- Parameters:
--      deliver_at  - one time per event, or a single one for all
--      data        - one payload per event
-- Returns:
--      their ids, rising, in the order of data
-- Errors:
--      PQ001, PQ005, PQ006 a time, or the numbers differ, 40001, 42501
-- ----------------------------------------------------------------------
declare
    q    pgq.queue := pgq._queue($1);
    n    int4 := coalesce(cardinality($4), 0);
    due  timestamptz[] := $2;
    ids  bigint[];
begin
    perform pgq._require_produce(q);
    if cardinality(due) = 1 and n > 0 then
        due := array_fill(due[1], array[n]);
    end if;
    if cardinality(due) is distinct from n then
        raise exception '% times for % events', coalesce(cardinality(due), 0), n
            using errcode = 'PQ006', hint = 'Give one time per event, or one for all.';
    end if;
    perform pgq._check_due(d) from unnest(due) d;
    if q.queue_disable_insert then
        perform pgq._refuse_disabled('Insert into queue disallowed');
    end if;
    execute format('with sent as (insert into pgq.%I (due, ev_queue, ev_id, ev_type, ev_data)'
                   ' select w, $1, nextval($2::regclass), $3, d from unnest($4, $5) with ordinality u(w, d, nth) order by nth'
                   ' returning ev_id) select coalesce(array_agg(ev_id order by ev_id), ''{}'') from sent',
                   pgq._delay_slot(q.queue_id))
        into ids using q.queue_id, q.queue_event_seq, $3, due, $4;
    perform pgq._wake(q.queue_id, true);
    return ids;
end;
$$;
comment on function pgq.send_batch_at(text, timestamptz[], text, text[]) is
'Send many events of one type for later. Returns their ids in the order given.';


create or replace function pgq.cancel_event(i_queue_name text, i_ev_id bigint)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.cancel_event(2)
--
--      Take back a delayed event, while it is still waiting. Not a retry:
--      that belongs to its consumer.
--
-- Returns:
--      1, or 0 when it does not wait: never did, is delivered, or is cancelled
-- Errors:
--      PQ001, PQ007, 42501
-- ----------------------------------------------------------------------
declare
    q    pgq.queue := pgq._queue(i_queue_name);
    due  timestamptz;
begin
    perform pgq._require_read_committed('cancel_event');
    perform pgq._require_produce(q);
    perform pgq._lock_delays(q.queue_id);
    execute format('select due from (%s) d where ev_id = $1 and ev_owner is null group by due having not bool_or(cancels)',
                   pgq._pending_sql(q.queue_id, pgq._newest_tick(-q.queue_id)))
        into due using i_ev_id;
    if due is null then
        return 0;
    end if;
    execute format('insert into pgq.%I (due, cancels, ev_queue, ev_id) values ($1, true, $2, $3)', pgq._delay_slot(q.queue_id))
        using due, q.queue_id, i_ev_id;
    return 1;
end;
$$;
comment on function pgq.cancel_event(text, bigint) is
'Take back a delayed event. Returns 1, or 0 when it does not wait any more.';
