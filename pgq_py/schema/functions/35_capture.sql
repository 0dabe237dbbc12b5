-- Our own change trigger: one JSON envelope per change, whatever the table.
--
--      {"op": "UPDATE", "table": "public.accounts", "key": {"id": 1},
--       "before": {"id": 1, "balance": 10.50}, "after": {"id": 1, "balance": 9.50},
--       "txid": "7341", "at": "2026-01-31T12:00:00.123456+00:00"}
--
-- Rows are what row_to_json() makes of them under fixed settings, since json_populate_record()
-- turns that into the same row again: numbers keep their digits (read them as decimals, not as
-- floats), NaN and infinity are strings, bytea is hex, ranges are strings, arrays are arrays.
-- Static SQL all of it, so that it costs a fraction of what PgQ's triggers cost here.

create or replace function pgq.capture()
returns trigger language plpgsql
set search_path = pg_catalog, pgq, pg_temp set timezone = 'UTC' set datestyle = 'ISO, MDY' set intervalstyle = 'postgres'
set extra_float_digits = 1 set bytea_output = 'hex' as $$
-- ----------------------------------------------------------------------
-- Function: pgq.capture()
--
--      Trigger: put changes of a table into a queue, as JSON envelopes.
--
--      AFTER, for each row, and for each statement for TRUNCATE; add_capture()
--      makes both. It runs with the rights of whoever changes the table: that
--      role needs grant_produce(). Silent while session_replication_role is
--      local.
--
-- Arguments:
--      the queue; then in any order
--      key=a,b      - the columns that identify a row, instead of the primary key
--      ignore=a,b   - columns that are left out; an update of them alone is no event
-- Fields:
--      ev_type      - INSERT, UPDATE, DELETE, TRUNCATE
--      ev_data      - the envelope: op, table, key (of the row before the change), before, after,
--                     txid, at (start of the transaction); what does not apply is null
--      ev_extra1    - schema.table
-- Errors:
--      PQ006  - an argument it does not know
--      those of insert_event(7)
-- ----------------------------------------------------------------------
declare
    place    text := tg_table_schema || '.' || tg_table_name;
    before   json;
    after    json;
    ignored  text[];
    keys     text[];
begin
    if current_setting('session_replication_role') = 'local' then
        return null;
    end if;
    for nr in 1 .. tg_nargs - 1 loop
        if tg_argv[nr] like 'key=%' then
            keys := string_to_array(substr(tg_argv[nr], 5), ',');
        elsif tg_argv[nr] like 'ignore=%' then
            ignored := string_to_array(substr(tg_argv[nr], 8), ',');
        else
            raise exception 'pgq.capture does not know the argument %', quote_literal(tg_argv[nr])
                using errcode = 'PQ006', detail = 'Nothing was changed.', hint = 'Arguments: the queue, key=a,b, ignore=a,b.';
        end if;
    end loop;
    if tg_op in ('UPDATE', 'DELETE') then
        before := row_to_json(old);
    end if;
    if tg_op in ('INSERT', 'UPDATE') then
        after := row_to_json(new);
    end if;
    if ignored is not null then
        before := (select json_object_agg(key, value) from json_each(before) where key <> all (ignored));
        after := (select json_object_agg(key, value) from json_each(after) where key <> all (ignored));
        -- an update of nothing is an event, as it is to PgQ; as text, for not all types have an equality
        if tg_op = 'UPDATE' and before::text = after::text and old::text <> new::text then
            return null;
        end if;
    end if;
    if keys is null and tg_op <> 'TRUNCATE' then
        keys := array(select a.attname::text from pg_index i
                      cross join lateral unnest(i.indkey::int2[]) with ordinality k(attnum, nth)
                      join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
                      where i.indrelid = tg_relid and i.indisprimary and k.nth <= i.indnkeyatts order by k.nth);
    end if;
    perform pgq.insert_event(tg_argv[0], tg_op, json_build_object(
        'op', tg_op, 'table', place,
        'key', (select json_object_agg(k, coalesce(before, after) -> k order by nth)
                from unnest(keys) with ordinality u(k, nth) where tg_op <> 'TRUNCATE'),
        'before', before, 'after', after, 'txid', pg_current_xact_id()::text, 'at', now())::text, place, null, null, null);
    return null;
end;
$$;
comment on function pgq.capture() is 'Trigger: put changes of a table into a queue, as JSON envelopes with key, before and after.';


create or replace function pgq._captured_table(i_table text)
returns regclass language plpgsql as $$
-- the table of that name on the caller's search path; PQ006
begin
    if to_regclass(i_table) is null then
        raise exception 'no such table: %', coalesce(i_table, 'NULL')
            using errcode = 'PQ006', detail = 'Nothing was changed.', hint = 'Name it as in SQL: schema.table, quoted where need be.';
    end if;
    return to_regclass(i_table);
end;
$$;
comment on function pgq._captured_table(text) is 'A table by name, or raise';


create or replace function pgq.add_capture(
    i_queue_name text, i_table text, i_key text[] default null, i_ignore text[] default null)
returns integer language plpgsql set client_min_messages = warning as $$
-- ----------------------------------------------------------------------
-- Function: pgq.add_capture(4)
--
--      Put every change of a table into a queue from now on: make the triggers
--      pgq_capture and pgq_capture_truncate on it, or make them anew. With the
--      caller's rights: it needs TRIGGER on the table.
--
-- Parameters:
--      i_queue_name  - the queue
--      i_table       - the table, as in SQL
--      i_key         - columns that identify a row; null: the primary key
--      i_ignore      - columns that are left out
-- Returns:
--      1, or 0 when the triggers were there and were made anew
-- Errors:
--      PQ001
--      PQ006  - no such table or column, a key column that is ignored, or no key
--      42501  - no right to create triggers on the table
-- ----------------------------------------------------------------------
declare
    place    regclass := pgq._captured_table(i_table);
    had      boolean;
    args     text;
    unknown  text;
begin
    perform pgq.producer_function(i_queue_name);  -- raises for a queue that is not there
    select string_agg(c, ', ') into unknown from unnest(coalesce(i_key, '{}') || coalesce(i_ignore, '{}')) c
        where not exists (select from pg_catalog.pg_attribute
                          where attrelid = place and attname = c and attnum > 0 and not attisdropped)
           or c = any (i_key) and c = any (i_ignore) or c like '%,%';
    if unknown is not null or i_key = '{}' or (i_key is null and not exists (
            select from pg_catalog.pg_index where indrelid = place and indisprimary)) then
        raise exception 'no key for the changes of %', place
            using errcode = 'PQ006', detail = coalesce('These columns are not there, ignored or have a comma in their name: ' || unknown,
                                                       'The table has no primary key.'),
                  hint = 'Name the columns that identify a row as the key.';
    end if;
    had := pgq.drop_capture(i_table) = 1;
    args := quote_literal(i_queue_name)
        || coalesce(', ' || quote_literal('key=' || array_to_string(i_key, ',')), '')
        || coalesce(', ' || quote_literal('ignore=' || array_to_string(nullif(i_ignore, '{}'), ',')), '');
    execute format('create trigger pgq_capture after insert or update or delete on %s for each row'
                   ' execute function pgq.capture(%s)', place, args);
    execute format('create trigger pgq_capture_truncate after truncate on %s for each statement'
                   ' execute function pgq.capture(%s)', place, quote_literal(i_queue_name));
    return (not had)::int;
end;
$$;
comment on function pgq.add_capture(text, text, text[], text[]) is
'Put every change of a table into a queue from now on. Returns 1, or 0 when it was so already and is now as given.';


create or replace function pgq.drop_capture(i_table text)
returns integer language plpgsql set client_min_messages = warning as $$
-- ----------------------------------------------------------------------
-- Function: pgq.drop_capture(1)
--
--      Undo add_capture(). What is in the queue stays. With the caller's rights.
-- Returns:
--      1, or 0 when there was nothing
-- Errors:
--      PQ006  - no such table
-- ----------------------------------------------------------------------
declare
    place  regclass := pgq._captured_table(i_table);
    name   text;
    found  boolean := false;
begin
    for name in select tgname from pg_catalog.pg_trigger
                where tgrelid = place and tgfoid = 'pgq.capture()'::regprocedure and tgparentid = 0 loop
        execute format('drop trigger %I on %s', name, place);
        found := true;
    end loop;
    return found::int;
end;
$$;
comment on function pgq.drop_capture(text) is 'Undo add_capture(). Returns 1, or 0 when there was nothing.';


create or replace function pgq._trigger_arguments(i_args bytea)
returns text[] language plpgsql as $$
-- pg_trigger.tgargs as texts: each ends with a zero byte
declare
    args   text[] := '{}';
    start  int4 := 1;
begin
    for nr in 1 .. length(i_args) loop
        if get_byte(i_args, nr - 1) = 0 then
            args := args || convert_from(substr(i_args, start, nr - start), getdatabaseencoding());
            start := nr + 1;
        end if;
    end loop;
    return args;
end;
$$;
comment on function pgq._trigger_arguments(bytea) is 'Arguments of a trigger as texts';


create or replace function pgq.get_captures(
    in i_queue_name text, out queue_name text, out table_name text, out key_columns text[], out ignored_columns text[],
    out enabled boolean)
returns setof record language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.get_captures(1)
--
--      Tables whose changes go into a queue, or into any (null).
--
-- Returns:
--      table_name       - schema.table, quoted where need be
--      key_columns      - columns that identify a row
--      ignored_columns  - columns that are left out
--      enabled          - false: the trigger is switched off
-- ----------------------------------------------------------------------
begin
    return query
        select a.args[1], format('%I.%I', n.nspname, c.relname),
               coalesce((select string_to_array(substr(arg, 5), ',') from unnest(a.args[2:]) arg where arg like 'key=%'),
                        pgq._primary_key(c.oid)),
               coalesce((select string_to_array(substr(arg, 8), ',') from unnest(a.args[2:]) arg where arg like 'ignore=%'), '{}'),
               t.tgenabled <> 'D'
        from pg_trigger t
        join pg_class c on c.oid = t.tgrelid
        join pg_namespace n on n.oid = c.relnamespace
        cross join lateral (select pgq._trigger_arguments(t.tgargs)) a(args)
        where t.tgfoid = 'pgq.capture()'::regprocedure and t.tgparentid = 0 and t.tgtype & 1 = 1
          and (i_queue_name is null or a.args[1] = i_queue_name)
        order by 1, 2;
end;
$$;
comment on function pgq.get_captures(text) is 'Tables whose changes go into a queue, or into any (null).';
