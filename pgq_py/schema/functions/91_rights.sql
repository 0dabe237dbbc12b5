-- Rights per queue. PgQ's roles let every reader finish anyone's batch and every writer
-- write to any queue; these grants are narrower, and such a role needs no other.
--
--      produce  is EXECUTE on the queue's produce function, checked by PostgreSQL itself
--               in insert_event and send, and by _require_produce elsewhere
--      consume  is a row in pgq.consume_grant, checked by _require_consume

create or replace function pgq._caller()
returns name language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._caller()
--
--      Whose rights count: the session's role, as SET ROLE left it.
--
--      current_user would be the owner of this schema in a SECURITY DEFINER
--      function. Within a SECURITY DEFINER function of an application it is
--      the session's rights that count, not those of its owner: narrower,
--      never wider.
-- ----------------------------------------------------------------------
begin
    return case current_setting('role') when 'none' then session_user else current_setting('role') end;
end;
$$;
comment on function pgq._caller() is 'The role whose rights count';


create or replace function pgq._is_member(i_role text)
returns boolean language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._is_member(1)
--
--      Has the caller the rights of a role, or of this schema's owner? False
--      for a role that does not exist.
-- ----------------------------------------------------------------------
declare
    caller  name := pgq._caller();
begin
    -- current_user is the owner here: this runs inside SECURITY DEFINER functions only
    return pg_has_role(caller, current_user, 'usage')
        or (to_regrole(quote_ident(i_role)) is not null and pg_has_role(caller, i_role, 'usage'));
end;
$$;
comment on function pgq._is_member(text) is 'Has the caller the rights of a role';


create or replace function pgq._require_consume(i_queue int4, i_consumer_name text)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._require_consume(2)
--
--      Refuse a caller who may not act for this consumer.
--
-- Parameters:
--      i_queue          - the queue's id
--      i_consumer_name  - null: for any consumer of the queue
-- Errors:
--      42501
-- ----------------------------------------------------------------------
begin
    if pgq._is_member('pgq_reader') or exists (
        select from pgq.consume_grant g
        where g.queue_id = i_queue and (i_consumer_name is null or g.consumer_name = i_consumer_name)
          and to_regrole(quote_ident(g.role_name)) is not null
          and pg_has_role(pgq._caller(), g.role_name::name, 'usage'))
    then
        return;
    end if;
    raise exception 'permission denied for consumer %',
            coalesce(quote_literal(i_consumer_name), 'of queue ' || i_queue)
        using errcode = '42501',
              hint = format('Grant it: select pgq.grant_consume(queue, consumer, %L).', pgq._caller());
end;
$$;
comment on function pgq._require_consume(int4, text) is 'Refuse a caller who may not act for a consumer';


create or replace function pgq._require_consume_as(r pgq.registration)
returns void language plpgsql as $$
-- as _require_consume(2), for a registration; null passes, for it is nobody's
begin
    if r.sub_id is not null then
        perform pgq._require_consume(r.sub_queue, pgq._main_consumer(r));
    end if;
end;
$$;
comment on function pgq._require_consume_as(pgq.registration) is 'Refuse a caller who may not act for a registration';


create or replace function pgq._require_produce(q pgq.queue)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._require_produce(1)
--
--      Refuse a caller who may not execute the queue's produce function.
-- Errors:
--      42501
-- ----------------------------------------------------------------------
begin
    if not has_function_privilege(pgq._caller(), format('pgq.%I(text,text,text,text,text,text)',
                                                        pgq._produce_name(q.queue_id, q.queue_name)), 'execute') then
        raise exception 'permission denied for function %', pgq._produce_name(q.queue_id, q.queue_name)
            using errcode = '42501',
                  hint = format('Grant it: select pgq.grant_produce(%L, %L).', q.queue_name, pgq._caller());
    end if;
end;
$$;
comment on function pgq._require_produce(pgq.queue) is 'Refuse a caller who may not produce into a queue';


create or replace function pgq._functions_for(i_role text)
returns setof text language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._functions_for(1)
--
--      Signatures of the API functions that belong to a role. The one list of
--      what producers and consumers call; grants.sql and the per-queue grants
--      read it. Of the optional parts, pgq_coop belongs to consumers; pgq_ext to
--      pgq_writer as a whole (see grants.sql), not to who may produce into one
--      queue.
--
-- Parameters:
--      i_role  - pgq_reader, pgq_writer, worker, pgq_admin (all that is not internal) or public
-- ----------------------------------------------------------------------
declare
    names  text[] := case i_role
        when 'pgq_writer' then '{insert_event,insert_events,insert_event_at,send,send_batch,send_batch_at,cancel_event,producer_function,current_event_table,wake,'
            'enqueue,enqueue_with,enqueue_many,enqueuer_function,cancel,retry_jobs,once,get_job,get_result,jobs,set_schedule,'
            'capture,add_capture,drop_capture,get_captures,_captured_table,jsontriga,logutriga,sqltriga,_plan_trigger,_log_change,'
            '_row_matters,_key_condition,_change_sql,_change_type,_change_wanted,_urlencode}'
        when 'pgq_reader' then
            '{register_consumer,register_consumer_at,unregister_consumer,next_batch,next_batch_info,next_batch_custom,'
            'open_batch,open_batch_events,opener_function,batch_event_sql,batch_event_tables,get_batch_events,get_batch_cursor,get_batch_info,'
            'finish_batch,receive,ack,ack_peeked,open_peeked,nack,event_retry,batch_retry,dlq_replay,dlq_replay_all,seek,seek_target,'
            'tick_now,force_tick,find_tick_helper,poke,wake_armed_ms,tick_channel,'
            'claim,claimed,take,solo_waits,complete,complete_and_claim,complete_and_claim_with,worker_procedure,taker_function,fail,snooze,release,extend,progress,set_result,heartbeat,recover,'
            'end_worker,once,get_job,get_result,jobs,get_worker_info,get_schedules,fire_schedule}'
        when 'worker' then
            '{claim,claimed,take,solo_waits,complete,complete_and_claim,complete_and_claim_with,worker_procedure,taker_function,fail,snooze,release,extend,progress,set_result,heartbeat,recover,'
            'end_worker,once,get_job,get_result,jobs,get_worker_info,get_schedules,fire_schedule,poke,wake_armed_ms,tick_channel}'
        when 'public' then
            '{version,get_queue_info,get_consumer_info,ring_info,delay_info,get_job_stats,get_lane_info,seq_getval,quote_fqname}' end;
begin
    return query
        select p.oid::regprocedure::text from pg_proc p
        where (p.pronamespace = 'pgq'::regnamespace
               and (p.proname = any (names) or (i_role = 'pgq_admin' and p.proname !~ '^_')))
           or (p.pronamespace = to_regnamespace('pgq_coop')
               and case i_role when 'public' then p.proname = 'version'
                   else i_role in ('pgq_reader', 'pgq_admin') and p.proname !~ '^_' end)
           or (p.pronamespace = to_regnamespace('pgq_ext')
               and case i_role when 'public' then p.proname = 'version'
                   else i_role = 'pgq_admin' and p.proname !~ '^_' end);
end;
$$;
comment on function pgq._functions_for(text) is 'Signatures of the API functions that belong to a role';


create or replace function pgq._check_role(i_role text)
returns void language plpgsql as $$
-- PQ006 unless the role exists
begin
    if i_role is null or not exists (select from pg_roles where rolname = i_role) then
        raise exception 'role % does not exist', coalesce(quote_literal(i_role), 'NULL')
            using errcode = 'PQ006', hint = 'Create it first: create role ... login.';
    end if;
end;
$$;
comment on function pgq._check_role(text) is 'Check that a role exists';


create or replace function pgq._slots_of(i_queue pgq.queue)
returns text language sql stable as $$
    select string_agg(format('pgq.%I', 'event_' || i_queue.queue_id || '_' || nr), ', ')
    from generate_series(0, i_queue.queue_ntables - 1) nr
$$;
comment on function pgq._slots_of(pgq.queue) is 'Event slots of a queue, as a list for GRANT';


create or replace function pgq.grant_produce(i_queue_name text, i_role text)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.grant_produce(2)
--
--      Let a role produce into one queue: insert_event, send, and COPY into
--      current_event_table(). It need not be a member of pgq_writer.
-- Returns:
--      1
-- Errors:
--      PQ001, PQ006 no such role
-- ----------------------------------------------------------------------
declare
    q   pgq.queue := pgq._queue(i_queue_name);
    fn  text;
begin
    perform pgq._check_role(i_role);
    for fn in select * from pgq._functions_for('pgq_writer') loop
        execute format('grant execute on routine %s to %I', fn, i_role);
    end loop;
    execute format('grant execute on function pgq.%I to %I', pgq._produce_name(q.queue_id, q.queue_name), i_role);
    if pgq._has_jobs(q.queue_id) then
        execute format('grant execute on function pgq.%I to %I', pgq._job_function('enqueue', q), i_role);
        execute format('grant select (queue_id) on pgq.job_queue to %I', i_role);
    end if;
    execute format('grant select (queue_id, queue_name) on pgq.queue to %I', i_role);
    execute format('grant insert (ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4) on %s to %I',
                   pgq._slots_of(q), i_role);
    execute format('grant usage on sequence %s to %I', q.queue_event_seq, i_role);
    execute format('grant select on sequence pgq.%I to %I', 'event_' || q.queue_id || '_phase', i_role);
    return 1;
end;
$$;
comment on function pgq.grant_produce(text, text) is 'Let a role produce into one queue. Returns 1.';


create or replace function pgq.revoke_produce(i_queue_name text, i_role text)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.revoke_produce(2)
--
--      Undo grant_produce for one queue.
-- Returns:
--      1
-- Errors:
--      PQ001, PQ006 no such role
-- ----------------------------------------------------------------------
declare
    q  pgq.queue := pgq._queue(i_queue_name);
begin
    perform pgq._check_role(i_role);
    execute format('revoke execute on function pgq.%I from %I', pgq._produce_name(q.queue_id, q.queue_name), i_role);
    if pgq._has_jobs(q.queue_id) then
        execute format('revoke execute on function pgq.%I from %I', pgq._job_function('enqueue', q), i_role);
    end if;
    execute format('revoke insert (ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4) on %s from %I',
                   pgq._slots_of(q), i_role);
    execute format('revoke usage on sequence %s from %I', q.queue_event_seq, i_role);
    execute format('revoke select on sequence pgq.%I from %I', 'event_' || q.queue_id || '_phase', i_role);
    return 1;
end;
$$;
comment on function pgq.revoke_produce(text, text) is 'Undo grant_produce for one queue. Returns 1.';


create or replace function pgq.grant_consume(i_queue_name text, i_consumer_name text, i_role text)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.grant_consume(3)
--
--      Let a role act for one consumer of one queue: register it, take and
--      finish its batches, move it; and read the queue's events. It need not
--      be a member of pgq_reader, and other consumers stay out of its reach.
-- Returns:
--      1, or 0 when it was granted already
-- Errors:
--      PQ001, PQ006 the consumer's name, or no such role
-- ----------------------------------------------------------------------
declare
    q   pgq.queue := pgq._queue(i_queue_name);
    fn  text;
begin
    perform pgq._check_role(i_role);
    perform pgq._check_name('consumer', i_consumer_name);
    for fn in select * from pgq._functions_for('pgq_reader') loop
        execute format('grant execute on routine %s to %I', fn, i_role);
    end loop;
    execute format('grant execute on function pgq.%I to %I', pgq._open_name(q.queue_id, q.queue_name), i_role);
    execute format('grant select on %s, %s to %I', q.queue_data_pfx, pgq._slots_of(q), i_role);
    insert into pgq.consume_grant (queue_id, consumer_name, role_name)
        values (q.queue_id, i_consumer_name, i_role) on conflict do nothing;
    return found::int;
end;
$$;
comment on function pgq.grant_consume(text, text, text) is
'Let a role act for one consumer of one queue. Returns 1, or 0 when it was granted already.';


create or replace function pgq.revoke_consume(i_queue_name text, i_consumer_name text, i_role text)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq.revoke_consume(3)
--
--      Undo grant_consume.
-- Returns:
--      1, or 0 when it was not granted
-- Errors:
--      PQ001
-- ----------------------------------------------------------------------
declare
    q    pgq.queue := pgq._queue(i_queue_name);
    had  boolean;
begin
    delete from pgq.consume_grant
        where queue_id = q.queue_id and consumer_name = i_consumer_name and role_name = i_role;
    had := found;
    if to_regrole(quote_ident(i_role)) is not null
       and not exists (select from pgq.consume_grant where queue_id = q.queue_id and role_name = i_role) then
        execute format('revoke select on %s, %s from %I', q.queue_data_pfx, pgq._slots_of(q), i_role);
        execute format('revoke execute on function pgq.%I from %I', pgq._open_name(q.queue_id, q.queue_name), i_role);
    end if;
    return had::int;
end;
$$;
comment on function pgq.revoke_consume(text, text, text) is 'Undo grant_consume. Returns 1, or 0 when it was not granted.';
