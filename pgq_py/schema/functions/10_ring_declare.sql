-- The ring: append-only slots whose space comes back by TRUNCATE.
--
-- A ring has n slots and a sequence, the phase v. Sequences are never MVCC, so
-- every isolation level sees the newest value. Generation G = v / 2; the current
-- slot is G mod n, the previous one holds generation G - 1.
--
--      v even      the previous slot still takes late writers
--      v odd       it is closed: nobody will ever write to it again
--
-- Writers choose the current slot and are checked by a trigger on the slot after
-- they have its lock. Maintenance (11_ring_step.sql) moves v. This file creates
-- and drops rings and guards their slots.

create or replace function pgq._phase(i_ring text)
returns bigint language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._phase(1)
--
--      The ring's phase now.
-- ----------------------------------------------------------------------
begin
    return pg_sequence_last_value(format('pgq.%I', i_ring || '_phase')::regclass);
end;
$$;
comment on function pgq._phase(text) is 'Phase of a ring';


create or replace function pgq._slot(i_ring text, i_slots int4, i_generation bigint)
returns text language sql immutable as $$
    select i_ring || '_' || (i_generation % i_slots)::text
$$;
comment on function pgq._slot(text, int4, bigint) is 'Table (in schema pgq) that holds a generation of a ring';


create or replace function pgq._slot_bytes(i_slot text)
returns bigint language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._slot_bytes(1)
--
--      Size of a slot. 0 is the only proof of an empty slot that needs no
--      snapshot: a slot of aborted rows shows no row and is not empty.
-- ----------------------------------------------------------------------
begin
    return pg_relation_size(format('pgq.%I', i_slot)::regclass);
end;
$$;
comment on function pgq._slot_bytes(text) is 'Size of a slot in bytes; 0 when truncated';


create or replace function pgq._guard_slot()
returns trigger language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._guard_slot()
--
--      AFTER INSERT FOR EACH STATEMENT trigger of every slot: accept the
--      rows only while the slot takes writers.
--
--      When it runs, the statement has the slot's ROW EXCLUSIVE lock and
--      keeps it until the transaction ends. Closing takes SHARE, so it
--      either waits for us or was first, and then we see v odd. So it does
--      not matter how long ago, or in which snapshot, the slot was chosen.
--      (A WHEN clause instead costs 11 us a statement: it is parsed anew
--      each time. This function costs 1 us.)
--
-- Arguments:
--      0  - phase sequence
--      1  - number of this slot
--      2  - number of slots
-- Errors:
--      40001  - closed; nothing was inserted; the transaction can be repeated
-- ----------------------------------------------------------------------
declare
    -- It runs under the writer's search_path, and a SET clause would cost as much as all the rest: so
    -- every name is qualified, operators too. Without qualification: v / 2 % n = nr, and so on.
    v   bigint := pg_catalog.pg_sequence_last_value(tg_argv[0]::pg_catalog.regclass);
    nr  bigint := tg_argv[1]::bigint;
    n   bigint := tg_argv[2]::bigint;
    g   bigint := v operator(pg_catalog./) 2;
begin
    -- "is true": an unreadable phase is NULL and must refuse, not accept
    if (nr operator(pg_catalog.=) (g operator(pg_catalog.%) n)
        or (v operator(pg_catalog.%) 2) operator(pg_catalog.=) 0
           and nr operator(pg_catalog.=) ((g operator(pg_catalog.-) 1) operator(pg_catalog.%) n)) is true then
        return null;
    end if;
    raise exception 'slot %.% is closed: it was chosen before the ring rotated', tg_table_schema, tg_table_name
        using errcode = '40001',
              detail = 'Nothing was inserted.',
              hint = 'Repeat the transaction; ask for current_event_table() in the transaction that uses it.';
end;
$$;
comment on function pgq._guard_slot() is 'Trigger: refuse rows for a slot that no longer takes writers';


create or replace function pgq._refuse_insert()
returns trigger language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._refuse_insert()
--
--      BEFORE INSERT FOR EACH STATEMENT trigger of every parent: a row there
--      would never be read and never be truncated.
-- ----------------------------------------------------------------------
begin
    raise exception 'cannot insert into %.%: it is the parent of a ring', tg_table_schema, tg_table_name
        using errcode = 'PQ006',
              hint = 'Use pgq.insert_event() or pgq.send(), or COPY into pgq.current_event_table(queue).';
end;
$$;
comment on function pgq._refuse_insert() is 'Trigger: refuse rows for the parent table of a ring';


create or replace function pgq._declare_ring(
    i_ring text, i_kind text, i_queue int4, i_slots int4, i_period interval)
returns void language plpgsql set client_min_messages = warning as $$
-- ----------------------------------------------------------------------
-- Function: pgq._declare_ring(5)
--
--      Make a ring of an existing, empty parent table: its slots, its
--      sequences, its guards, its row in pgq.ring.
--
--      A new ring starts at v = 3: generation 1, with generation 0 closed
--      and empty, so that "the previous slot" always means something. That of
--      a queue of n slots starts at v = 2n + 1, generation n, which is slot 0:
--      as in PgQ, whose programs know a new queue's table by name.
--
-- Parameters:
--      i_ring    - parent table in schema pgq; slots copy its indexes and defaults
--      i_kind    - 'event', 'tick', 'cursor'
--      i_queue   - queue it belongs to, null for a global ring
--      i_slots   - number of slots, at least 3
--      i_period  - switch when the current slot is this old; null for event rings
-- ----------------------------------------------------------------------
begin
    execute format('create sequence pgq.%I minvalue 0', i_ring || '_phase');
    execute format('create sequence pgq.%I', i_ring || '_switched');
    execute format('create sequence pgq.%I', i_ring || '_skipped');
    if i_kind in ('claim', 'key') then
        execute format('create sequence pgq.%I', i_ring || '_moved');
    end if;
    perform setval(format('pgq.%I', i_ring || '_phase')::regclass,
                   case i_kind when 'event' then 2 * i_slots + 1 else 3 end),
            pgq._note_switch(i_ring);

    execute format('create trigger refuse_insert before insert on pgq.%I'
                   ' for each statement execute function pgq._refuse_insert()', i_ring);
    execute format('alter table pgq.%I enable always trigger refuse_insert', i_ring);

    for nr in 0 .. i_slots - 1 loop
        execute format('create table pgq.%1$I (like pgq.%2$I including all) inherits (pgq.%2$I)'
                       ' with (fillfactor = 100, autovacuum_enabled = off, toast.autovacuum_enabled = off)',
                       i_ring || '_' || nr, i_ring);
        continue when i_kind = 'claim';  -- takes rows in closed slots, and guards itself: 65_claim.sql, 66_finish.sql
        execute format('create trigger guard_slot after insert on pgq.%I for each statement'
                       ' execute function pgq._guard_slot(%L, %L, %L)',
                       i_ring || '_' || nr, format('pgq.%I', i_ring || '_phase'), nr, i_slots);
        -- ALWAYS: session_replication_role = replica must not switch it off
        execute format('alter table pgq.%I enable always trigger guard_slot', i_ring || '_' || nr);
    end loop;

    insert into pgq.ring (ring_name, ring_kind, ring_queue, ring_slots, ring_period)
    values (i_ring, i_kind, i_queue, i_slots, i_period);
    perform pgq._grant_ring(i_ring);
end;
$$;
comment on function pgq._declare_ring(text, text, int4, int4, interval) is 'Make a ring of a parent table';


create or replace function pgq._note_switch(i_ring text)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._note_switch(1)
--
--      Remember that the current slot of the ring begins now. A sequence,
--      in ms since 1970: a table row would have to be updated.
-- ----------------------------------------------------------------------
begin
    perform setval(format('pgq.%I', i_ring || '_switched')::regclass,
                   (extract(epoch from clock_timestamp()) * 1000)::bigint);
end;
$$;
comment on function pgq._note_switch(text) is 'Remember when a ring switched slots';


create or replace function pgq._switched_at(i_ring text)
returns timestamptz language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._switched_at(1)
--
--      When the ring last switched slots.
-- ----------------------------------------------------------------------
begin
    return to_timestamp(pg_sequence_last_value(format('pgq.%I', i_ring || '_switched')::regclass) / 1000.0);
end;
$$;
comment on function pgq._switched_at(text) is 'When a ring last switched slots';


create or replace function pgq._drop_ring(i_ring text)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._drop_ring(1)
--
--      Drop a ring with its slots and sequences.
--
--      All its tables in one command, without cascade: somebody's view of them
--      is a reason to refuse, not to drop it too.
-- ----------------------------------------------------------------------
declare
    tables  text;
begin
    select string_agg(format('pgq.%I', i_ring || '_' || nr), ', ' order by nr) into tables
        from pgq.ring, generate_series(0, ring_slots - 1) nr where ring_name = i_ring;
    execute format('drop table pgq.%I, %s', i_ring, tables);
    execute format('drop sequence pgq.%I, pgq.%I, pgq.%I',
                   i_ring || '_phase', i_ring || '_switched', i_ring || '_skipped');
    delete from pgq.ring where ring_name = i_ring;
end;
$$;
comment on function pgq._drop_ring(text) is 'Drop a ring with its slots and sequences';
