-- Roles and rights. Applied on every install and upgrade.
--
--      pgq_reader  consumes: registers, takes and finishes batches, reads events
--      pgq_writer  produces
--      pgq_admin   both, and creates, configures, ticks and rotates
--
-- PUBLIC may ask for the version and for information, nothing else.

do $$
declare
    name  text;
begin
    foreach name in array '{pgq_reader,pgq_writer,pgq_admin}'::text[] loop
        continue when exists (select from pg_roles where rolname = name);
        begin
            execute format('create role %I', name);
        exception
            when insufficient_privilege then
                raise notice 'role % was not created: the installing role lacks CREATEROLE; '
                             'have it created and run "pgq upgrade", which grants it its rights', name;
            when duplicate_object or unique_violation then
                null;  -- created at the same moment for another database
        end;
    end loop;
end;
$$;

grant usage on schema pgq to public;

do $$
declare
    f        record;
    r        record;
    readers  text[] := '{register_consumer,register_consumer_at,unregister_consumer,next_batch,next_batch_info,next_batch_custom,open_batch,batch_event_sql,batch_event_tables,get_batch_events,get_batch_cursor,get_batch_info,finish_batch,receive,ack,seek,force_tick,poke}';
    writers  text[] := '{insert_event,send,send_batch,producer_function,current_event_table}';
    public   text[] := '{version,get_queue_info,get_consumer_info,ring_info}';
    has      text[] := array(select rolname::text from pg_roles where rolname in ('pgq_reader', 'pgq_writer', 'pgq_admin'));
begin
    revoke all on all functions in schema pgq from public;
    for f in select p.oid::regprocedure::text as sig, p.proname::text as name from pg_proc p
             where p.pronamespace = 'pgq'::regnamespace and p.prokind = 'f' loop
        if f.name = any (public) then
            execute format('grant execute on function %s to public', f.sig);
        end if;
        if f.name = any (readers) and 'pgq_reader' = any (has) then
            execute format('grant execute on function %s to pgq_reader', f.sig);
        end if;
        if (f.name = any (writers) or f.name ~ '^produce_[0-9]+$') and 'pgq_writer' = any (has) then
            execute format('grant execute on function %s to pgq_writer', f.sig);
        end if;
        if f.name !~ '^_' and 'pgq_admin' = any (has) then
            execute format('grant execute on function %s to pgq_admin', f.sig);
        end if;
    end loop;

    for r in select ring_name from pgq.ring where ring_kind = 'event' loop
        perform pgq._grant_ring(r.ring_name);
    end loop;
    if 'pgq_reader' = any (has) then
        grant select on pgq.queue, pgq.consumer, pgq.registration, pgq.tick, pgq.subscription, pgq.event_template to pgq_reader;
    end if;
    if 'pgq_admin' = any (has) then
        grant select, update on pgq.queue to pgq_admin;
        grant select on pgq.consumer, pgq.registration, pgq.tick, pgq.subscription, pgq.event_template, pgq.ring, pgq.migration to pgq_admin;
    end if;
end;
$$;

-- In a block of its own: memberships belong to the cluster and may be another
-- role's to give; the rights above must not be undone with them.
do $$
begin
    if not (pg_has_role('pgq_admin', 'pgq_reader', 'usage') and pg_has_role('pgq_admin', 'pgq_writer', 'usage')) then
        grant pgq_reader, pgq_writer to pgq_admin;
    end if;
exception
    when insufficient_privilege or undefined_object then
        raise notice 'pgq_admin was not made a member of pgq_reader and pgq_writer: %', sqlerrm;
end;
$$;
