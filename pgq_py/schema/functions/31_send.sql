-- send: insert_event under shorter names, for text and jsonb, and in bulk.

create or replace function pgq.send(queue text, type text, data text)
returns bigint language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq.send(3)
--
--      Insert an event; see insert_event(7) for errors.
-- ----------------------------------------------------------------------
begin
    return pgq.insert_event($1, $2, $3);
end;
$$;
comment on function pgq.send(text, text, text) is 'Send an event of a type. Returns its id.';


create or replace function pgq.send(queue text, type text, data jsonb)
returns bigint language plpgsql as $$
-- as send(text, text, text)
begin
    return pgq.insert_event($1, $2, $3::text);
end;
$$;
comment on function pgq.send(text, text, jsonb) is 'Send an event of a type, data as jsonb. Returns its id.';


create or replace function pgq.send(queue text, data text)
returns bigint language plpgsql as $$
-- as send(text, text, text), without a type
begin
    return pgq.insert_event($1, null, $2);
end;
$$;
comment on function pgq.send(text, text) is 'Send an event without a type. Returns its id.';


create or replace function pgq.send(queue text, data jsonb)
returns bigint language plpgsql as $$
-- as send(text, text, text), without a type
begin
    return pgq.insert_event($1, null, $2::text);
end;
$$;
comment on function pgq.send(text, jsonb) is 'Send an event without a type, data as jsonb. Returns its id.';


create or replace function pgq.send_batch(queue text, type text, data text[])
returns bigint[] language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.send_batch(3)
--
--      Send many events of one type in one statement.
--
-- Parameters:
--      queue  - name of the queue
--      type   - type of all of them
--      data   - one payload per event; null elements are events without data
-- Returns:
--      their ids, rising, in the order of data; an empty array for none
-- Errors:
--      PQ001, PQ005, 40001 as insert_event(7): all or nothing
-- ----------------------------------------------------------------------
declare
    q    pgq.queue := pgq._queue($1);
    ids  bigint[];
begin
    perform pgq._require_produce(q);
    if q.queue_disable_insert then
        perform pgq._refuse_disabled('Insert into queue disallowed');
    end if;
    execute format('with sent as (insert into pgq.%I (ev_type, ev_data)'
                   ' select $1, d from unnest($2) with ordinality u(d, nth) order by nth returning ev_id)'
                   ' select coalesce(array_agg(ev_id order by ev_id), ''{}'') from sent', pgq._current_slot(q))
        into ids using $2, $3;
    perform pgq._count_in_tx(q.queue_id, cardinality(ids)) where q.queue_per_tx_limit is not null;
    perform pgq._wake(q.queue_id);
    return ids;
end;
$$;
comment on function pgq.send_batch(text, text, text[]) is
'Send many events of one type in one statement. Returns their ids in the order given.';


create or replace function pgq.insert_events(
    queue_name text, ev_type text[], ev_data text[], ev_extra1 text[] default null, ev_extra2 text[] default null,
    ev_extra3 text[] default null, ev_extra4 text[] default null)
returns bigint language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.insert_events(7)
--
--      Insert many events in one statement: insert_event(7) with arrays.
--
-- Parameters:
--      queue_name  - name of the queue
--      ev_type ..  - one element per event; what is null, or shorter than the longest,
--                    stands for nulls
-- Returns:
--      how many; their ids rise in the order of the elements
-- Errors:
--      PQ001, PQ005, 40001 as insert_event(7): all or nothing
-- ----------------------------------------------------------------------
declare
    q  pgq.queue := pgq._queue($1);
    n  bigint;
begin
    perform pgq._require_produce(q);
    if q.queue_disable_insert then
        perform pgq._refuse_disabled('Insert into queue disallowed');
    end if;
    execute format('insert into pgq.%I (ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4)'
                   ' select t, d, e1, e2, e3, e4'
                   ' from unnest($1, $2, $3, $4, $5, $6) with ordinality u(t, d, e1, e2, e3, e4, nth) order by nth',
                   pgq._current_slot(q)) using $2, $3, $4, $5, $6, $7;
    get diagnostics n = row_count;
    perform pgq._count_in_tx(q.queue_id, n) where q.queue_per_tx_limit is not null;
    perform pgq._wake(q.queue_id);
    return n;
end;
$$;
comment on function pgq.insert_events(text, text[], text[], text[], text[], text[], text[]) is
'Insert many events in one statement: insert_event with arrays. Returns how many.';


create or replace function pgq.send_batch(queue text, type text, data jsonb[])
returns bigint[] language plpgsql as $$
-- as send_batch(text, text, text[])
begin
    return pgq.send_batch($1, $2, $3::text[]);
end;
$$;
comment on function pgq.send_batch(text, text, jsonb[]) is
'Send many events of one type in one statement, data as jsonb. Returns their ids in the order given.';
