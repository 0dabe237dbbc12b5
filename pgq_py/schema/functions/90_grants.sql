-- Rights that come with objects made at run time. Roles that do not exist are passed
-- over: an owner without CREATEROLE works, and `pgq upgrade` grants later.

create or replace function pgq._grant_function(i_function text, i_role text)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._grant_function(2)
--
--      Grant EXECUTE on a function or procedure to a role and to pgq_admin, as far as they exist.
-- ----------------------------------------------------------------------
declare
    name  text;
begin
    for name in select rolname from pg_roles where rolname in (i_role, 'pgq_admin') loop
        execute format('grant execute on routine %s to %I', i_function, name);
    end loop;
end;
$$;
comment on function pgq._grant_function(text, text) is 'Grant a function to a role and to pgq_admin';


create or replace function pgq._grant_ring(i_ring text)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._grant_ring(1)
--
--      Grants on a ring. Event rings: readers select; writers COPY the columns
--      that are theirs and see the phase, but may not move it (SELECT, not
--      USAGE), and never set ev_id or ev_txid. Nobody else writes a ring.
-- ----------------------------------------------------------------------
declare
    r        pgq.ring;
    has      text[] := array(select rolname::text from pg_roles where rolname in ('pgq_reader', 'pgq_writer', 'pgq_admin'));
    readers  text := array_to_string(array(select unnest(has) intersect select unnest('{pgq_reader,pgq_admin}'::text[])), ', ');
    writers  text := array_to_string(array(select unnest(has) intersect select unnest('{pgq_writer,pgq_admin}'::text[])), ', ');
begin
    select * into r from pgq.ring where ring_name = i_ring;
    if r.ring_kind <> 'event' or has = '{}' then
        return;
    end if;
    for nr in -1 .. r.ring_slots - 1 loop
        if readers <> '' then
            execute format('grant select on pgq.%I to %s', i_ring || case when nr >= 0 then '_' || nr else '' end, readers);
        end if;
        if writers <> '' and nr >= 0 then
            execute format('grant insert (ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4) on pgq.%I to %s',
                           i_ring || '_' || nr, writers);
        end if;
    end loop;
    if writers <> '' then
        execute format('grant usage on sequence pgq.%I to %s', i_ring || '_id_seq', writers);
        execute format('grant select on sequence pgq.%I to %s', i_ring || '_phase', writers);
    end if;
end;
$$;
comment on function pgq._grant_ring(text) is 'Grants on the slots of a ring';
