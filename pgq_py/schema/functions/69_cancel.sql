-- Cancelling jobs, wherever they are; and replaying those that were given up.

create or replace function pgq.cancel(in i_queue_name text, in i_job_ids bigint[], out job_id bigint, out outcome text)
returns setof record language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.cancel(2)
--
--      Cancel jobs: those that wait never run; those that run are asked to stop, and are
--      not retried. In a short transaction of its own, for it stops claims.
--
-- Returns:
--      one row per job given, outcome:
--      cancelled         - it will not run
--      cancel_requested  - it runs; its worker is told at its next heartbeat or sooner
--      completed, failed - too late; or it was cancelled before: cancelled
--      null              - there is no such job, or it is long gone
-- Errors:
--      PQ001, PQ007, PQ023, 42501
-- ----------------------------------------------------------------------
declare
    q  pgq.queue := pgq._queue_of_jobs(i_queue_name);
    s  pgq.job_status;
    l  int2;
begin
    perform pgq._require_read_committed('cancel');
    perform pgq._require_produce(q);
    perform pgq._lock_delays(q.queue_id);
    for l in select lane from pgq.lane where queue_id = q.queue_id order by lane = 0 desc, lane desc loop
        perform from pgq.lane where queue_id = q.queue_id and lane = l for update;  -- in the order of claims
    end loop;
    for job_id in select distinct unnest(i_job_ids) loop
        s := pgq._job_status(q, job_id);
        outcome := s.state;
        if s.state in ('scheduled', 'retrying') then
            perform pgq._cancel_delayed(q, job_id, s);
            outcome := 'cancelled';
        elsif s.state = 'pending' then
            perform pgq._bury_pending(q, job_id, s);
            outcome := 'cancelled';
        elsif s.state = 'running' then
            perform pgq._ask_to_cancel(q, job_id, s.claim_id);
            outcome := 'cancel_requested';
        end if;
        return next;
    end loop;
end;
$$;
comment on function pgq.cancel(text, bigint[]) is
'Cancel jobs: cancelled, cancel_requested for those that run, or what became of them.';


create or replace function pgq._cancel_delayed(q pgq.queue, i_id bigint, s pgq.job_status)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._cancel_delayed(3)
--
--      Cancel a job in the delay ring, whose lock the caller has.
-- ----------------------------------------------------------------------
begin
    execute format('insert into pgq.%I (due, cancels, ev_queue, ev_id, ev_owner) values ($1, true, $2, $3, $4)', pgq._delay_slot(q.queue_id))
        using s.run_at, q.queue_id, i_id, case when s.state = 'retrying' then 0 end;
    if s.key is not null then
        perform pgq._release_keys('queue:' || q.queue_id, array[s.key], array[pgq._holder(i_id, s.options)]);
    end if;
end;
$$;
comment on function pgq._cancel_delayed(pgq.queue, bigint, pgq.job_status) is 'Cancel a job in the delay ring';


create or replace function pgq._bury_pending(q pgq.queue, i_id bigint, s pgq.job_status)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._bury_pending(3)
--
--      Cancel a job that no claim has reached. The caller has the locks of all lanes.
--
--      The tombstone is probed only by lanes that were told of one: with a claim of
--      nothing that leaves the lane where it stands.
-- ----------------------------------------------------------------------
declare
    c  pgq.claim_ring;
    t  pgq.claim_ring;
    l  int2;
begin
    for l in select lane from pgq.lane where queue_id = q.queue_id loop
        c := pgq._lane_state(q.queue_id, l);
        if not c.tombs then
            c.claim_id := nextval('pgq.claim_id_seq');
            c.tombs := true;
            c.ev_ids := '{}';
            perform pgq._append_claim(c);
        end if;
    end loop;
    t := pgq._finish_row(c, i_id, 'cancelled');
    t.claim_id := -q.queue_id;
    t.kind := 't';
    t.n := null;
    execute format('insert into pgq.%I select (pgq._stamped($1)).* on conflict do nothing',
                   pgq._slot('claim_ring', 3, pgq._phase('claim_ring') / 2)) using t;
    if s.key is not null then
        perform pgq._release_keys('queue:' || q.queue_id, array[s.key], array[pgq._holder(i_id, s.options)]);
    end if;
end;
$$;
comment on function pgq._bury_pending(pgq.queue, bigint, pgq.job_status) is 'Cancel a job that no claim has reached';


create or replace function pgq._ask_to_cancel(q pgq.queue, i_id bigint, i_claim_id bigint)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._ask_to_cancel(3)
--
--      Ask the worker of a running job to stop it: a row that its heartbeat returns,
--      and a notification on pgq_cancel_<queue id>, "<claim> <job>".
-- ----------------------------------------------------------------------
declare
    h     record;
    c     pgq.claim_ring;
    slot  int4;
    f     pgq.claim_ring;
begin
    h := pgq._claim_of(i_claim_id);
    c := h.c;
    slot := h.slot;
    if slot is null then
        return;
    end if;
    f := pgq._finish_row(c, i_id, null);
    f.kind := 'x';
    f.n := null;
    perform pgq._append_beside(c, slot, array[f]);
    perform pg_notify('pgq_cancel_' || q.queue_id, i_claim_id || ' ' || i_id);
end;
$$;
comment on function pgq._ask_to_cancel(pgq.queue, bigint, bigint) is 'Ask the worker of a running job to stop it';


create or replace function pgq._replay_job(d pgq.dead_ring)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._replay_job(1)
--
--      Run a job that was given up again, from its first attempt, with no losses. The
--      caller has the dead ring's lock.
-- Errors:
--      PQ024  - another job with its key is active: that one was enqueued since
-- ----------------------------------------------------------------------
declare
    q       pgq.queue := pgq._queue_of_jobs(d.queue_name);
    j       pgq.job_template;
    holder  int8;
    other   int8;
begin
    perform pgq._require_produce(q);
    if d.ev_extra2 is not null then
        holder := nextval(q.queue_event_seq::regclass);
        other := (pgq._take_keys(array['queue:' || q.queue_id], array[d.ev_extra2], array[holder], array[null::timestamptz], array[d.ev_id]))[1];
    end if;
    if other <> d.ev_id then
        raise exception 'job % cannot run again: another one with key % is active', d.ev_id, quote_literal(d.ev_extra2)
            using errcode = 'PQ024', detail = 'The dead letter is kept.', hint = 'Wait for the other one, or cancel it, or purge this one.';
    end if;
    j := (d.ev_id, d.ev_time, null, 0, null, d.ev_type, d.ev_data, pgq._options_text(
              (pgq._options(d.ev_extra1) - '{losses,holder}'::text[]) || jsonb_strip_nulls(jsonb_build_object('holder', holder))), d.ev_extra2,
          null, null, case when d.ev_lane > 0 then d.ev_lane else pgq._lane_of(q, null) end)::pgq.job_template;
    perform pgq._append_jobs(q, null, null, array[j]);
    perform pgq._mark_dead(d, 'replayed');
end;
$$;
comment on function pgq._replay_job(pgq.dead_ring) is 'Run a job that was given up again';


create or replace function pgq.retry_jobs(i_queue_name text, i_job_ids bigint[])
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.retry_jobs(2)
--
--      Run jobs that were given up again, from their first attempt.
-- Returns:
--      how many; those that are no dead letters do not count
-- Errors:
--      PQ001, PQ007, PQ023, PQ024, 42501
-- ----------------------------------------------------------------------
declare
    q  pgq.queue := pgq._queue_of_jobs(i_queue_name);
    d  pgq.dead_ring;
    n  int4 := 0;
begin
    perform pgq._require_read_committed('retry_jobs');
    perform pgq._require_produce(q);
    for d in select * from pgq._choose_dead(null, i_queue_name, '', null, null) c where c.ev_id = any (i_job_ids) loop
        perform pgq._replay_job(d);
        n := n + 1;
    end loop;
    return n;
end;
$$;
comment on function pgq.retry_jobs(text, bigint[]) is 'Run jobs that were given up again. Returns how many.';
