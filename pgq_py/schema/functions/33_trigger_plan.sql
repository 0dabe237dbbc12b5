-- PgQ's change triggers, first half: what is to be done, from a trigger's arguments and its
-- table. Error texts are PgQ's.
--
-- A row's values are wanted as PostgreSQL prints them (format('%s')), which a cast to text is
-- not: boolean, inet and char(n) look otherwise. And the columns are those of any table. So the
-- row is looked at by statements that are put together here.

create or replace function pgq._primary_key(i_table oid)
returns text[] language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._primary_key(1)
--
--      Names of the key's columns, in the key's order; empty without a primary
--      key. PL/pgSQL, as all of this that reads the catalog: it keeps its plan,
--      where an SQL function makes a new one for every row, ten times as slow.
-- ----------------------------------------------------------------------
begin
    return array(select a.attname::text
                 from pg_index i
                 cross join lateral unnest(i.indkey::int2[]) with ordinality k(attnum, nth)
                 join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
                 where i.indrelid = i_table and i.indisprimary and k.nth <= i.indnkeyatts order by k.nth);
end;
$$;
comment on function pgq._primary_key(oid) is 'Names of a table''s primary key columns';


create or replace function pgq._listed(i_table oid, i_names text)
returns text[] language plpgsql as $$
-- the table's columns that are in a list like 'a, b'; a name may have spaces in it
begin
    return array(select attname::text from pg_attribute
                 where attrelid = i_table and attnum > 0 and not attisdropped
                   and strpos(' ' || translate(i_names, E',\t\n\r', '    ') || ' ',
                              ' ' || translate(attname, E',\t\n\r', '    ') || ' ') > 0
                 order by attnum);
end;
$$;
comment on function pgq._listed(oid, text) is 'The table''s columns that are in a list of names';


create or replace function pgq._urlencode(i_text text)
returns text language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._urlencode(1)
--
--      Bytes of the database's encoding as %xx; letters, digits, - . _ as they
--      are, a space as +. Called with the search path of whoever changes a
--      table: all names are qualified.
-- ----------------------------------------------------------------------
begin
    if i_text operator(pg_catalog.~) '^[-_.a-zA-Z0-9]*$' collate "C" then
        return i_text;
    end if;
    return (select pg_catalog.string_agg(
                case when c operator(pg_catalog.~) '^[-_.a-zA-Z0-9]*$' collate "C" then c
                     when c operator(pg_catalog.=) ' ' then '+'
                     else pg_catalog.regexp_replace(
                         pg_catalog.encode(pg_catalog.convert_to(c, pg_catalog.getdatabaseencoding()), 'hex'),
                         '(..)', '%\1', 'g') end, '' order by nth)
            from pg_catalog.regexp_split_to_table(i_text, '') with ordinality s(c, nth));
end;
$$;
comment on function pgq._urlencode(text) is 'A text, urlencoded as PgQ''s triggers do it';


create or replace function pgq._refuse_trigger(i_message text)
returns void language plpgsql as $$
-- PQ006: a trigger that is not defined in a way that works
begin
    raise exception '%', i_message
        using errcode = 'PQ006', detail = 'Nothing was changed.',
              hint = 'Create the trigger anew; see the reference of pgq.jsontriga() for its arguments.';
end;
$$;
comment on function pgq._refuse_trigger(text) is 'Refuse a change whose trigger is wrongly defined';


create or replace function pgq._check_trigger(p pgq.trigger_plan, i_when text, i_args text[])
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._check_trigger(3)
--
--      Refuse arguments that make no sense for an operation.
-- Errors:
--      PQ006
-- ----------------------------------------------------------------------
begin
    if p.op = 'TRUNCATE' then
        if p.ignored is not null then
            perform pgq._refuse_trigger('Column ignore does not make sense for truncate trigger');
        elsif p.pkey is not null then
            perform pgq._refuse_trigger('Custom pkey_list does not make sense for truncate trigger');
        elsif p.backup then
            perform pgq._refuse_trigger('Backup does not make sense for truncate trigger');
        elsif exists (select from unnest(i_args) a where a ~ '^(ev_[a-z0-9]+|when)=') then
            perform pgq._refuse_trigger('Custom expressions do not make sense for truncater trigger');
        end if;
    end if;
    if p.skip and i_when = 'AFTER' then
        perform pgq._refuse_trigger('SKIP does not work in AFTER trigger.');
    end if;
end;
$$;
comment on function pgq._check_trigger(pgq.trigger_plan, text, text[]) is 'Refuse arguments that make no sense for an operation';


create or replace function pgq._print_sql(i_value text)
returns text language sql stable as $$
    -- SQL for a value as PostgreSQL prints it. Not "is null": a composite value of nulls is not null.
    select format('case pg_catalog.num_nulls(%1$s) when 0 then pg_catalog.format(''%%s'', %1$s) end', i_value)
$$;
comment on function pgq._print_sql(text) is 'SQL for a value as PostgreSQL prints it';


create or replace function pgq._equality(i_type oid)
returns text language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._equality(1)
--
--      The operator by which values of a type are equal, that of its default
--      operator class; null for arrays and types that have none: they are
--      compared as printed.
-- ----------------------------------------------------------------------
declare
    found  text;
begin
    select format('operator(%I.%s)', n.nspname, o.oprname) into found
        from pg_type t
        join pg_opclass c on c.opcdefault and c.opcintype = case
            when t.typtype = 'e' then 'anyenum'::regtype
            when t.typtype = 'r' then 'anyrange'::regtype
            when t.typtype = 'd' then t.typbasetype
            when t.oid = 'varchar'::regtype then 'text'::regtype
            else t.oid end
        join pg_am m on m.oid = c.opcmethod and m.amname in ('btree', 'hash')
        join pg_amop a on a.amopfamily = c.opcfamily and a.amoplefttype = c.opcintype
            and a.amoprighttype = c.opcintype and a.amopstrategy = case m.amname when 'btree' then 3 else 1 end
        join pg_operator o on o.oid = a.amopopr
        join pg_namespace n on n.oid = o.oprnamespace
        where t.oid = i_type and t.typelem = 0
        order by m.amname limit 1;
    return found;
end;
$$;
comment on function pgq._equality(oid) is 'The operator by which values of a type are equal';


create or replace function pgq._differs_sql(i_column text, i_type oid)
returns text language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._differs_sql(2)
--
--      SQL: is the column of $1 another than that of $2?
-- ----------------------------------------------------------------------
declare
    equality  text;
begin
    -- common types, for which the catalog need not be asked
    equality := case when i_type in ('int4'::regtype, 'int8'::regtype, 'text'::regtype, 'bool'::regtype, 'numeric'::regtype,
                                     'timestamptz'::regtype, 'uuid'::regtype) then 'operator(pg_catalog.=)'
                else pgq._equality(i_type) end;
    if equality is null then
        return format('case pg_catalog.num_nulls(($1).%1$I, ($2).%1$I) when 1 then true when 0 then'
                      ' pg_catalog.format(''%%s'', ($1).%1$I) collate "C" operator(pg_catalog.<>)'
                      ' pg_catalog.format(''%%s'', ($2).%1$I) collate "C" else false end', i_column);
    end if;
    return format('case pg_catalog.num_nulls(($1).%1$I, ($2).%1$I) when 1 then true when 0 then'
                  ' not (($1).%1$I %2$s ($2).%1$I) else false end', i_column, equality);
end;
$$;
comment on function pgq._differs_sql(text, oid) is 'SQL that tells whether a column differs between two rows';


create or replace function pgq._encoded_sql(i_kind text, i_column text, i_type oid)
returns text language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._encoded_sql(3)
--
--      SQL for one column of a row, name and value. JSON: numbers without
--      fraction, booleans and times as JSON has them, all else as a text of
--      what PostgreSQL prints.
-- ----------------------------------------------------------------------
declare
    printed  text := pgq._print_sql(format('($1).%I', i_column));
begin
    if i_kind <> 'json' then
        return format('pg_catalog.concat(%L, ''='' operator(pg_catalog.||) pgq._urlencode(%s))', pgq._urlencode(i_column), printed);
    elsif i_type in ('bool'::regtype, 'int2'::regtype, 'int4'::regtype, 'int8'::regtype,
                     'date'::regtype, 'timestamp'::regtype, 'timestamptz'::regtype) then
        printed := format('($1).%I', i_column);
    end if;
    return format('pg_catalog.concat(%L, coalesce(pg_catalog.to_json(%s)::text, ''null''))', to_json(i_column)::text || ':', printed);
end;
$$;
comment on function pgq._encoded_sql(text, text, oid) is 'SQL for one column of a row, name and value';


create or replace function pgq._row_sql(i_kind text, i_parts text[])
returns text language sql stable as $$
    -- SQL for a row of its encoded columns. concat_ws is given an array: there may be more columns
    -- than a function may have arguments.
    select case i_kind when 'json' then 'select pg_catalog.concat(''{'', pg_catalog.array_to_string(array['
               || array_to_string(i_parts, ', ') || ']::text[], '',''), ''}'')'
           else 'select pg_catalog.array_to_string(array[' || array_to_string(i_parts, ', ') || ']::text[], ''&'')' end
$$;
comment on function pgq._row_sql(text, text[]) is 'SQL for a row of its encoded columns';


create or replace function pgq._plan_columns(p pgq.trigger_plan, i_kind text, i_table oid)
returns pgq.trigger_plan language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._plan_columns(3)
--
--      Fill in the part of a plan that comes of the table's columns. Only as
--      much as the operation needs: this is done for every row.
-- Errors:
--      PQ006  - a magic column that fills no field
-- ----------------------------------------------------------------------
declare
    shown    text[];
    backup   text := case i_kind when 'json' then 'json' else 'url' end;
    unknown  text;
begin
    with a as (
        select attname::text as name, atttypid as kind, attnum,
               attname::text ~ '^_pgq_ev_' as magic, attname::text = any (p.ignored) is true as ignored
        from pg_attribute where attrelid = i_table and attnum > 0 and not attisdropped)
    select array_agg(name order by attnum) filter (where not magic),
           coalesce(array_agg(name order by attnum) filter (where magic), '{}'),
           min(name) filter (where magic and name !~ '^_pgq_ev_(type|data|extra[1-4])$'),
           'select array[' || string_agg(pgq._print_sql(format('($1).%I', name)), ', ' order by attnum)
               filter (where not magic and i_kind = 'sql') || ']',
           array_agg(pgq._encoded_sql(backup, name, kind) order by attnum)
               filter (where not magic and not ignored and (i_kind <> 'sql' or p.backup)),
           'select pg_catalog.array_remove(array[' || string_agg(
               format('case when %s then %L end', pgq._differs_sql(name, kind), name), ', ' order by attnum)
               filter (where p.op = 'UPDATE' and (i_kind = 'sql' or p.ignored is not null or name = any (p.keys)))
               || ']::text[], null)'
        into p.columns, p.magic, unknown, p.texts, shown, p.differing from a;
    if unknown is not null then
        perform pgq._refuse_trigger('Unknown magic column: ' || unknown);
    end if;
    p.encoded := pgq._row_sql(backup, shown);
    return p;
end;
$$;
comment on function pgq._plan_columns(pgq.trigger_plan, text, oid) is 'Fill in the part of a plan that comes of the columns';


create or replace function pgq._plan_fields(p pgq.trigger_plan, i_args text[])
returns pgq.trigger_plan language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._plan_fields(2)
--
--      Fill in the part of a plan that comes of expressions: magic columns,
--      and then arguments like ev_extra1=SQL, which have the last word.
--
--      Expressions see the row's columns by name. They run with the rights and
--      the search path of whoever changes the table, never with ours.
-- ----------------------------------------------------------------------
declare
    found  text;
begin
    with expression as (
        select substr(name, 6) as field, quote_ident(name) as body, 0 as nth from unnest(p.magic) name
        union all
        select split_part(arg, '=', 1), '(' || substr(arg, strpos(arg, '=') + 1) || ')', nth::int4
        from unnest(i_args) with ordinality a(arg, nth) where arg ~ '^ev_(type|data|extra[1-4])='),
    last_word as (
        select distinct on (field) field, body from expression order by field, nth desc)
    select array_agg(field order by field),
           'select array[' || string_agg(pgq._print_sql(field), ', ' order by field) || ']::text[] from (select '
           || string_agg(body || ' as ' || field, ', ' order by field) || ' from (select ($1).*) r) f'
        into p.field_names, p.field_values from last_word;
    select arg into found from unnest(i_args) arg where arg like 'when=%' limit 1;
    if found is not null then
        p.condition := 'select pg_catalog.format(''%s'', w), pg_catalog.pg_typeof(w)::oid::int8 from (select ('
            || substr(found, 6) || ') as w from (select ($1).*) r) f';
    end if;
    return p;
end;
$$;
comment on function pgq._plan_fields(pgq.trigger_plan, text[]) is 'Fill in the part of a plan that comes of expressions';


create or replace function pgq._plan_trigger(
    i_kind text, i_table oid, i_op text, i_when text, i_level text, i_args text[])
returns pgq.trigger_plan language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq._plan_trigger(6)
--
--      What a change trigger is to do. For jsontriga, logutriga and sqltriga,
--      which run with the rights of whoever changes the table.
--
-- Parameters:
--      i_kind   - json, url or sql: how rows are encoded
--      i_table  - tg_relid; and so on
--      i_args   - tg_argv, renumbered: the queue, then in any order SKIP, ignore=a,b, pkey=a,b,
--                 backup, deny, when=SQL, ev_type=SQL, ev_data=SQL, ev_extra1=SQL .. ev_extra4=SQL
-- Errors:
--      PQ006  - arguments that do not fit, to each other or to the trigger
--      42501  - the trigger denies changes
-- ----------------------------------------------------------------------
declare
    p     pgq.trigger_plan;
    args  text[] := i_args[2:];
begin
    p.op := i_op;
    p.queue := i_args[1];
    if (i_op = 'TRUNCATE') <> (i_level = 'STATEMENT') then
        perform pgq._refuse_trigger(case i_op when 'TRUNCATE' then 'pgq tRuncate trigger must be fired FOR EACH STATEMENT'
                                    else 'pgq Ins/Upd/Del trigger must be fired FOR EACH ROW' end);
    elsif p.queue is null then
        perform pgq._refuse_trigger('pgq trigger must have destination queue as argument');
    elsif exists (select from unnest(args) a
                  where a !~ '^(SKIP|backup|deny|(ignore|pkey|when|ev_type|ev_data|ev_extra[1-4])=.*)$') then
        perform pgq._refuse_trigger('bad param to pgq trigger');
    end if;
    p.skip := 'SKIP' = any (args);
    p.backup := 'backup' = any (args);
    select pgq._listed(i_table, substr(a, 8)) into p.ignored from unnest(args) a where a like 'ignore=%';
    select substr(a, 6) into p.pkey from unnest(args) a where a like 'pkey=%';
    perform pgq._check_trigger(p, i_when, args);
    p.pkey := coalesce(p.pkey, array_to_string(pgq._primary_key(i_table), ','));
    p.keys := pgq._listed(i_table, p.pkey);
    if i_op in ('UPDATE', 'DELETE') and p.pkey = '' then
        perform pgq._refuse_trigger('Update/Delete on table without pkey');
    end if;
    select n.nspname || '.' || c.relname, array[n.nspname, c.relname]::text[] into p.table_name, p.path
        from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = i_table;
    if 'deny' = any (args) then
        raise exception 'Table ''%'' to queue ''%'': change not allowed (%)', p.table_name, p.queue, i_op
            using errcode = '42501', detail = 'Nothing was changed.', hint = 'A trigger of the table has the argument deny.';
    end if;
    if i_op = 'TRUNCATE' then
        return p;
    end if;
    p := pgq._plan_columns(p, i_kind, i_table);
    if args = '{}' and p.magic = '{}' then
        return p;
    end if;
    return pgq._plan_fields(p, args);
end;
$$;
comment on function pgq._plan_trigger(text, oid, text, text, text, text[]) is
'What a change trigger is to do; for jsontriga, logutriga and sqltriga';


create or replace function pgq._change_type(i_kind text, p pgq.trigger_plan)
returns text language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._change_type(2)
--
--      The ev_type of a change: in JSON; U:id; or U. For the triggers.
-- ----------------------------------------------------------------------
declare
    letter  text := case p.op when 'TRUNCATE' then 'R' else pg_catalog.left(p.op, 1) end;
begin
    if i_kind = 'json' then
        return pg_catalog.format('{"op":"%s","table":[%s],"pkey":[%s]}', p.op,
            pg_catalog.concat(pg_catalog.to_json(p.path[1])::text, ',', pg_catalog.to_json(p.path[2])::text),
            (select pg_catalog.string_agg(pg_catalog.to_json(k)::text, ',' order by nth)
             from pg_catalog.unnest(pg_catalog.string_to_array(nullif(p.pkey, ''), ',')) with ordinality u(k, nth)));
    elsif i_kind = 'url' and letter <> 'R' then
        return pg_catalog.concat(letter, ':', p.pkey);
    end if;
    return letter;
end;
$$;
comment on function pgq._change_type(text, pgq.trigger_plan) is 'The ev_type of a change; for the triggers';
