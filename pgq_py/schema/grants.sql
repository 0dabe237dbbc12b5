-- Roles and rights. Applied on every install and upgrade.
--
--      pgq_reader  consumes: registers, takes and finishes batches, reads events
--      pgq_writer  produces
--      pgq_admin   both, and creates, configures, ticks and rotates
--
-- PUBLIC may ask for the version and for information, nothing else. Optional parts have
-- schemas of their own: pgq_coop is for readers, pgq_ext for writers, as in PgQ.

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
    part  text;
    fn    text;
begin
    for part in select nspname from pg_namespace where nspname in ('pgq_coop', 'pgq_ext') loop
        execute format('grant usage on schema %I to public', part);
        execute format('revoke all on all functions in schema %I from public', part);
    end loop;
    if to_regrole('pgq_writer') is not null then
        for fn in select oid::regprocedure from pg_proc where pronamespace = to_regnamespace('pgq_ext') and proname !~ '^_' loop
            execute format('grant execute on function %s to pgq_writer', fn);
        end loop;
    end if;
end;
$$;

do $$
declare
    role  text;
    fn    text;
    r     record;
    has   text[] := array(select rolname::text from pg_roles where rolname in ('pgq_reader', 'pgq_writer', 'pgq_admin'));
begin
    revoke all on all routines in schema pgq from public;
    foreach role in array has || 'public'::text loop
        for fn in select * from pgq._functions_for(role) loop
            execute format('grant execute on routine %s to ' || case when role = 'public' then role else '%I' end, fn, role);
        end loop;
    end loop;
    if 'pgq_writer' = any (has) then
        for fn in select p.oid::regprocedure::text from pg_proc p
                  where p.pronamespace = 'pgq'::regnamespace and p.proname ~ '^(produce|enqueue)_[0-9]+_' loop
            execute format('grant execute on function %s to pgq_writer', fn);
        end loop;
        grant select (queue_id, queue_name) on pgq.queue to pgq_writer;
        grant select (queue_id) on pgq.job_queue to pgq_writer;
    end if;

    for r in select ring_name from pgq.ring where ring_kind = 'event' loop
        perform pgq._grant_ring(r.ring_name);
    end loop;
    if 'pgq_reader' = any (has) then
        for fn in select p.oid::regprocedure::text from pg_proc p
                  where p.pronamespace = 'pgq'::regnamespace and p.proname ~ '^(work|work_on|take|open)_[0-9]+_' loop
            execute format('grant execute on routine %s to pgq_reader', fn);
        end loop;
        grant select on pgq.queue, pgq.consumer, pgq.registration, pgq.tick, pgq.subscription, pgq.event_template,
            pgq.retry_queue, pgq.dead_letter, pgq.job_queue, pgq.lane, pgq.schedule, pgq.job, pgq.job_stats,
            pgq.worker_info, pgq.job_archive to pgq_reader;
    end if;
    if 'pgq_admin' = any (has) then
        -- settings alone: the number of slots is fixed, and what runs as the ticker is its owner's to say
        grant select, update (queue_rotation_period, queue_retention, queue_external_ticker, queue_ticker_paused,
                              queue_disable_insert, queue_per_tx_limit, queue_ticker_max_count, queue_ticker_max_lag,
                              queue_ticker_idle_period, queue_max_consumer_lag) on pgq.queue to pgq_admin;
        grant select on pgq.consumer, pgq.registration, pgq.tick, pgq.subscription, pgq.event_template, pgq.ring,
            pgq.retry_queue, pgq.delayed_event, pgq.dead_letter, pgq.retry_policy, pgq.eviction,
            pgq.consume_grant, pgq.migration, pgq.job_queue, pgq.lane, pgq.worker, pgq.schedule, pgq.job, pgq.job_stats,
            pgq.worker_info, pgq.job_archive to pgq_admin;
    end if;
end;
$$;

-- Roles with rights for single consumers, on functions that have been added since.
do $$
declare
    role  text;
    fn    text;
begin
    for role in select distinct role_name from pgq.consume_grant where to_regrole(quote_ident(role_name)) is not null loop
        for fn in select * from pgq._functions_for('pgq_reader') loop
            execute format('grant execute on routine %s to %I', fn, role);
        end loop;
    end loop;
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
