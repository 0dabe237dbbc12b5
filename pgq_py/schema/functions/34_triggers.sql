-- PgQ's change triggers, second half: doing it. What they write is PgQ's, to the letter:
-- programs parse it.
--
--      trigger    ev_type                                  ev_data
--      jsontriga  {"op":"INSERT","table":[..],"pkey":[..]} {"id":1,"name":"x"}
--      logutriga  I:id                                     id=1&name=x
--      sqltriga   I                                        (id,name) values ('1','x')
--
-- ev_extra1 is the table's name, ev_extra2 the old row where a backup is asked for.
--
-- All of it runs with the rights of whoever changes the table: an expression in a trigger's
-- arguments is SQL of whoever made the trigger. Nothing here may be SECURITY DEFINER.

create or replace function pgq._row_matters(i_kind text, p pgq.trigger_plan, i_changed text[])
returns boolean language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._row_matters(3)
--
--      Is an update worth an event? Not when only ignored columns changed. One
--      that changes nothing is.
--
--      PgQ's triggers differ: sqltriga looks at every column. The others look
--      at the key, and with ignore= at all up to the first that matters.
--
-- Parameters:
--      i_changed  - columns that differ, in the table's order
-- Errors:
--      PQ006      - a key column is among them
-- ----------------------------------------------------------------------
declare
    name    text;
    passed  boolean := false;
    hit     boolean := false;
begin
    foreach name in array i_changed loop
        if name = any (p.keys) and name <> all (p.magic) then
            raise exception 'primary key update not allowed'
                using errcode = 'PQ006', detail = pg_catalog.format('table: %s, column: %s', p.table_name, name),
                      hint = 'Delete the row and insert it with its new key.';
        end if;
        if name = any (p.ignored) or name = any (p.magic) then
            passed := true;
        else
            hit := true;
            exit when i_kind <> 'sql' and p.ignored is not null;
        end if;
    end loop;
    return hit or not passed or (i_kind <> 'sql' and p.ignored is null);
end;
$$;
comment on function pgq._row_matters(text, pgq.trigger_plan, text[]) is 'Is an update worth an event; for the triggers';


create or replace function pgq._key_condition(p pgq.trigger_plan, i_values text[], i_first boolean)
returns text language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._key_condition(3)
--
--      id='1' and nr='2', or the first key alone. For sqltriga.
-- Errors:
--      PQ006  - a key column is null, or there is none where one is needed
-- ----------------------------------------------------------------------
declare
    found  text;
    nulls  bigint;
begin
    select pg_catalog.string_agg(pg_catalog.concat(pg_catalog.quote_ident(name), '=', pg_catalog.quote_literal(value)),
                                 ' and ' order by nth), pg_catalog.count(*) - pg_catalog.count(value)
        into found, nulls
        from (select * from rows from (pg_catalog.unnest(p.columns), pg_catalog.unnest(i_values)) with ordinality c(name, value, nth)
              where name = any (p.keys) order by nth limit case when i_first then 1 end) k;
    if nulls > 0 or (i_first and found is null) then
        raise exception 'logtriga: Unexpected NULL key value'
            using errcode = 'PQ006', detail = pg_catalog.format('table: %s, key: %s', p.table_name, p.pkey),
                  hint = 'Name columns without nulls in pkey=.';
    end if;
    return coalesce(found, '');
end;
$$;
comment on function pgq._key_condition(pgq.trigger_plan, text[], boolean) is 'A row''s key as an SQL condition; for sqltriga';


create or replace function pgq._change_sql(p pgq.trigger_plan, i_old text[], i_new text[], i_changed text[])
returns text language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._change_sql(4)
--
--      A change as the part of an SQL statement that comes after the table's
--      name; null when only ignored columns changed. For sqltriga.
-- Errors:
--      PQ006  - as _row_matters(3), _key_condition(3)
-- ----------------------------------------------------------------------
declare
    names    text;
    changes  text;
begin
    if p.op = 'DELETE' then
        return pgq._key_condition(p, i_old, false);
    elsif p.op = 'INSERT' then
        select pg_catalog.string_agg(pg_catalog.quote_ident(name), ',' order by nth),
               pg_catalog.string_agg(coalesce(pg_catalog.quote_literal(value), 'null'), ',' order by nth)
            into names, changes
            from rows from (pg_catalog.unnest(p.columns), pg_catalog.unnest(i_new)) with ordinality c(name, value, nth)
            where (name = any (p.ignored)) is not true;
        return pg_catalog.concat('(', names, ') values (', changes, ')');
    end if;
    if not pgq._row_matters('sql', p, i_changed) then
        return null;
    end if;
    select pg_catalog.string_agg(pg_catalog.concat(pg_catalog.quote_ident(name), '=',
                                                   coalesce(pg_catalog.quote_literal(value), 'NULL')), ',' order by nth)
        into changes
        from rows from (pg_catalog.unnest(p.columns), pg_catalog.unnest(i_new)) with ordinality c(name, value, nth)
        where name = any (i_changed) and (name = any (p.ignored)) is not true;
    return pg_catalog.concat(coalesce(changes, pgq._key_condition(p, i_old, true)), ' where ',
                             pgq._key_condition(p, i_old, false));
end;
$$;
comment on function pgq._change_sql(pgq.trigger_plan, text[], text[], text[]) is
'A change as part of an SQL statement; for sqltriga';


create or replace function pgq._change_wanted(p pgq.trigger_plan, i_row anyelement)
returns boolean language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._change_wanted(2)
--
--      What when=SQL says of a row. For the triggers.
-- Errors:
--      PQ006  - it is null, or no boolean
-- ----------------------------------------------------------------------
declare
    answer  text;
    kind    bigint;
begin
    if p.condition is null then
        return true;
    end if;
    execute p.condition into answer, kind using i_row;
    if kind <> 16 then
        raise exception 'when= query result must be boolean, got=%', kind
            using errcode = 'PQ006', detail = 'Nothing was changed.', hint = 'Create the trigger anew with a condition.';
    elsif answer = '' then
        raise exception 'when= should not be NULL'
            using errcode = 'PQ006', detail = 'Nothing was changed.', hint = 'Use coalesce() in the condition.';
    end if;
    return answer = 't';
end;
$$;
comment on function pgq._change_wanted(pgq.trigger_plan, anyelement) is 'What when=SQL says of a row; for the triggers';


create or replace function pgq._log_change(i_kind text, p pgq.trigger_plan, i_old anyelement, i_new anyelement)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._log_change(4)
--
--      Put the change of a row into the plan's queue. For the triggers.
--
-- Parameters:
--      i_kind  - json, url or sql
--      i_old   - the row as it was; as it is, for an insert
--      i_new   - the row as it is; as it was, for a delete
-- Errors:
--      PQ006   - of _row_matters(3), _change_sql(4), _change_wanted(2)
--      those of insert_event(7), and of the expressions
-- ----------------------------------------------------------------------
declare
    data     text;
    backup   text;
    e        text[];
    changed  text[];
    old      text[];
    new      text[];
    given    text[];
    field    text;
begin
    if p.differing is not null then
        execute p.differing into changed using i_old, i_new;
    end if;
    if p.backup and p.op = 'UPDATE' then
        execute p.encoded into backup using i_old;
    end if;
    if i_kind = 'sql' then
        execute p.texts into old using i_old;
        execute p.texts into new using i_new;
        data := pgq._change_sql(p, old, new, changed);
    elsif changed is null or pgq._row_matters(i_kind, p, changed) then
        execute p.encoded into data using i_new;
    end if;
    if data is null or not pgq._change_wanted(p, i_new) then
        return;
    end if;
    e := array[pgq._change_type(i_kind, p), data, p.table_name, backup, null, null];
    if p.field_names is not null then
        execute p.field_values into given using i_new;
        for nr in 1 .. pg_catalog.cardinality(given) loop
            field := p.field_names[nr];
            e[pg_catalog.array_position('{ev_type,ev_data,ev_extra1,ev_extra2,ev_extra3,ev_extra4}'::text[], field)] := given[nr];
        end loop;
    end if;
    perform pgq.insert_event(p.queue, e[1], e[2], e[3], e[4], e[5], e[6]);
end;
$$;
comment on function pgq._log_change(text, pgq.trigger_plan, anyelement, anyelement) is
'Put the change of a row into a queue; for the triggers';


create or replace function pgq.jsontriga()
returns trigger language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq.jsontriga()
--
--      Trigger: put changes of a table's rows into a queue, in JSON.
--
--      For each row, or for each statement for TRUNCATE; AFTER, or BEFORE
--      with SKIP. Silent while session_replication_role is local. Whoever
--      changes the table needs the right to produce into the queue.
--
-- Fields:
--      ev_type    {"op":"INSERT","table":["schema","name"],"pkey":["id"]}; op may be UPDATE, DELETE, TRUNCATE
--      ev_data    {"id":1,"name":"x"}: numbers without fraction, booleans and times as JSON has them,
--                 all else as a string of what PostgreSQL prints
--      ev_extra2  with backup, of an update: the old row, as ev_data
--      ev_extra1  schema.table
-- Arguments:
--      the queue; then in any order
--      SKIP         - the change itself is not to be done (a BEFORE trigger)
--      ignore=a,b   - these columns are left out; an update of them alone is no event
--      pkey=a,b     - the key, instead of the primary key
--      backup       - the old row of an update goes into ev_extra2
--      deny         - every change is refused
--      when=SQL     - no event unless it is true of the row
--      ev_type=SQL, ev_data=SQL, ev_extra1=SQL .. ev_extra4=SQL
--                   - an expression of the row's columns instead of what the field would be
--      Columns named _pgq_ev_type .. _pgq_ev_extra4 fill these fields as well.
-- Errors:
--      PQ006  - arguments that do not fit; a changed or missing key
--      42501  - deny, or no right to produce
--      those of insert_event(7)
-- ----------------------------------------------------------------------
declare
    p     pgq.trigger_plan;
    skip  boolean := false;
begin
    if pg_catalog.current_setting('session_replication_role') <> 'local' then
        p := pgq._plan_trigger('json', tg_relid, tg_op, tg_when, tg_level,
                              array(select pg_catalog.unnest(tg_argv)));
        skip := p.skip;
        -- Each with its own call: old and new have no type where they have no value.
        case tg_op
            when 'INSERT' then perform pgq._log_change('json', p, new, new);
            when 'UPDATE' then perform pgq._log_change('json', p, old, new);
            when 'DELETE' then perform pgq._log_change('json', p, old, old);
            else perform pgq.insert_event(p.queue, pgq._change_type('json', p), '{}', p.table_name, null, null, null);
        end case;
    end if;
    if skip or tg_when = 'AFTER' or tg_op = 'TRUNCATE' then
        return null;
    elsif tg_op = 'DELETE' then
        return old;
    end if;
    return new;
end;
$$;
comment on function pgq.jsontriga() is 'Trigger: put changes of a table''s rows into a queue, in JSON.';


create or replace function pgq.logutriga()
returns trigger language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq.logutriga()
--
--      Trigger: put changes of a table's rows into a queue, urlencoded.
--
--      For each row, or for each statement for TRUNCATE; AFTER, or BEFORE
--      with SKIP. Silent while session_replication_role is local. Whoever
--      changes the table needs the right to produce into the queue.
--
-- Fields:
--      ev_type    I:id, U:id, D:id (the key's columns), R for TRUNCATE
--      ev_data    id=1&name=x; a column alone is null
--      ev_extra2  with backup, of an update: the old row, as ev_data
--      ev_extra1  schema.table
-- Arguments:
--      the queue; then in any order
--      SKIP         - the change itself is not to be done (a BEFORE trigger)
--      ignore=a,b   - these columns are left out; an update of them alone is no event
--      pkey=a,b     - the key, instead of the primary key
--      backup       - the old row of an update goes into ev_extra2
--      deny         - every change is refused
--      when=SQL     - no event unless it is true of the row
--      ev_type=SQL, ev_data=SQL, ev_extra1=SQL .. ev_extra4=SQL
--                   - an expression of the row's columns instead of what the field would be
--      Columns named _pgq_ev_type .. _pgq_ev_extra4 fill these fields as well.
-- Errors:
--      PQ006  - arguments that do not fit; a changed or missing key
--      42501  - deny, or no right to produce
--      those of insert_event(7)
-- ----------------------------------------------------------------------
declare
    p     pgq.trigger_plan;
    skip  boolean := false;
begin
    if pg_catalog.current_setting('session_replication_role') <> 'local' then
        p := pgq._plan_trigger('url', tg_relid, tg_op, tg_when, tg_level,
                              array(select pg_catalog.unnest(tg_argv)));
        skip := p.skip;
        -- Each with its own call: old and new have no type where they have no value.
        case tg_op
            when 'INSERT' then perform pgq._log_change('url', p, new, new);
            when 'UPDATE' then perform pgq._log_change('url', p, old, new);
            when 'DELETE' then perform pgq._log_change('url', p, old, old);
            else perform pgq.insert_event(p.queue, pgq._change_type('url', p), '', p.table_name, null, null, null);
        end case;
    end if;
    if skip or tg_when = 'AFTER' or tg_op = 'TRUNCATE' then
        return null;
    elsif tg_op = 'DELETE' then
        return old;
    end if;
    return new;
end;
$$;
comment on function pgq.logutriga() is 'Trigger: put changes of a table''s rows into a queue, urlencoded.';


create or replace function pgq.sqltriga()
returns trigger language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq.sqltriga()
--
--      Trigger: put changes of a table's rows into a queue, as parts of SQL statements.
--
--      For each row, or for each statement for TRUNCATE; AFTER, or BEFORE
--      with SKIP. Silent while session_replication_role is local. Whoever
--      changes the table needs the right to produce into the queue.
--
-- Fields:
--      ev_type    I, U, D, R for TRUNCATE
--      ev_data    (id,name) values ('1','x'); name='y' where id='1'; id='1'
--      ev_extra2  with backup, of an update: the old row, urlencoded
--      ev_extra1  schema.table
-- Arguments:
--      the queue; then in any order
--      SKIP         - the change itself is not to be done (a BEFORE trigger)
--      ignore=a,b   - these columns are left out; an update of them alone is no event
--      pkey=a,b     - the key, instead of the primary key
--      backup       - the old row of an update goes into ev_extra2
--      deny         - every change is refused
--      when=SQL     - no event unless it is true of the row
--      ev_type=SQL, ev_data=SQL, ev_extra1=SQL .. ev_extra4=SQL
--                   - an expression of the row's columns instead of what the field would be
--      Columns named _pgq_ev_type .. _pgq_ev_extra4 fill these fields as well.
-- Errors:
--      PQ006  - arguments that do not fit; a changed or missing key
--      42501  - deny, or no right to produce
--      those of insert_event(7)
-- ----------------------------------------------------------------------
declare
    p     pgq.trigger_plan;
    skip  boolean := false;
begin
    if pg_catalog.current_setting('session_replication_role') <> 'local' then
        p := pgq._plan_trigger('sql', tg_relid, tg_op, tg_when, tg_level,
                              array(select pg_catalog.unnest(tg_argv)));
        skip := p.skip;
        -- Each with its own call: old and new have no type where they have no value.
        case tg_op
            when 'INSERT' then perform pgq._log_change('sql', p, new, new);
            when 'UPDATE' then perform pgq._log_change('sql', p, old, new);
            when 'DELETE' then perform pgq._log_change('sql', p, old, old);
            else perform pgq.insert_event(p.queue, pgq._change_type('sql', p), '', p.table_name, null, null, null);
        end case;
    end if;
    if skip or tg_when = 'AFTER' or tg_op = 'TRUNCATE' then
        return null;
    elsif tg_op = 'DELETE' then
        return old;
    end if;
    return new;
end;
$$;
comment on function pgq.sqltriga() is 'Trigger: put changes of a table''s rows into a queue, as parts of SQL statements.';
