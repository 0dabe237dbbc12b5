-- Workers: heartbeats, and what becomes of the jobs of those that fall silent.
--
-- Workers beat, jobs do not: one row per worker and beat, in a ring. Nobody is declared dead
-- for a silence that recover() did not watch: after an outage of the database all are given
-- a whole lease to speak up. Time is the database's.

create or replace function pgq._append_beat(i_worker text)
returns void language plpgsql as $$
-- A heartbeat of a worker, or with '' a mark that recover() was there
begin
    execute format('insert into pgq.%I values ($1, $2) on conflict do nothing',
                   pgq._slot('beat_ring', 3, pgq._phase('beat_ring') / 2)) using i_worker, pgq._clock();
end;
$$;
comment on function pgq._append_beat(text) is 'Append a heartbeat';


create or replace function pgq._last_beat(i_worker text)
returns timestamptz language plpgsql set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq._last_beat(1)
--
--      When a worker was last heard of. Under its row's lock, after having locked
--      the ring's slots against evacuation, so that a miss is none.
-- ----------------------------------------------------------------------
begin
    perform from pgq.beat_ring limit 0;
    return (select at from pgq.beat_ring where worker = i_worker order by worker desc, at desc limit 1);
end;
$$;
comment on function pgq._last_beat(text) is 'When a worker was last heard of';


create or replace function pgq.heartbeat(
    in i_worker text, in i_held bigint[] default null, in i_lease interval default interval '60 seconds',
    in i_info jsonb default '{}', in i_knows_all boolean default false, out claim_id bigint, out job_id bigint)
returns setof record language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.heartbeat(5)
--
--      Say that a worker is alive; to be called every fifth of its lease, from a
--      connection of its own. The first call registers it.
--
--      Claims of this worker that it does not know of are released: they were
--      committed and the answer got lost. Only those that are older than the beat before,
--      for a younger one may still be on its way to the worker.
--
-- Parameters:
--      i_worker  - the incarnation: host:pid:random
--      i_held    - all claims it has; null: it does not say
--      i_lease   - how long it may be silent; 1 second to 1 day; fixed by the first call
--      i_info    - what it says of itself, fixed by the first call
--      i_knows_all - it had the answer of each of its claims and finished those that it does not hold:
--                  so nothing is to be released, and they are not gone through, which takes longer
--                  the more claims the ring has
-- Returns:
--      jobs of the claims held that somebody wants to cancel
-- Errors:
--      PQ006, PQ007, PQ022 it was declared dead; 42501
-- ----------------------------------------------------------------------
declare
    w       pgq.worker;
    before  timestamptz;
    c       pgq.claim_ring;
begin
    perform pgq._require_read_committed('heartbeat');
    perform pgq._require_work();
    if (length(i_worker) between 1 and 200 and i_lease between interval '1 second' and interval '1 day') is not true then
        raise exception 'invalid worker %, lease %', quote_nullable(left(i_worker, 60)), i_lease
            using errcode = 'PQ006', hint = 'A name has 1 to 200 characters, a lease is 1 second to 1 day.';
    end if;
    insert into pgq.worker (worker, lease, info) select i_worker, i_lease, i_info
        where not exists (select from pgq.worker where worker = i_worker) on conflict do nothing;
    select * into w from pgq.worker where worker = i_worker for key share;
    perform pgq._worker_beats(i_worker);
    before := pgq._last_beat(i_worker);
    perform pgq._append_beat(i_worker);
    if i_held is not null and before is not null and not coalesce(i_knows_all, false) then
        for c in select * from pgq._open_claims_of(i_worker) o where o.at < before and o.claim_id <> all (i_held) loop
            perform pgq._give_back_all(c, 'released');
        end loop;
    end if;
    return query select x.claim_id, x.ev_id from pgq.claim_ring x
        where x.claim_id = any (i_held) and x.kind = 'x' order by x.claim_id, x.ev_id;
end;
$$;
comment on function pgq.heartbeat(text, bigint[], interval, jsonb, boolean) is
'Say that a worker is alive and which claims it has. Returns jobs that somebody wants to cancel.';


create or replace function pgq._require_work()
returns void language plpgsql as $$
-- 42501 unless the caller may work some job queue
begin
    if not pgq._is_member('pgq_reader') and not exists (
        select from pgq.consume_grant g where g.consumer_name = '' and to_regrole(quote_ident(g.role_name)) is not null
        and pg_has_role(pgq._caller(), g.role_name::name, 'usage'))
    then
        raise exception 'permission denied for workers'
            using errcode = '42501', hint = format('Grant it: select pgq.grant_work(queue, %L).', pgq._caller());
    end if;
end;
$$;
comment on function pgq._require_work() is 'Refuse a caller who may not work any job queue';


create or replace function pgq._open_claims_of(i_worker text)
returns setof pgq.claim_ring language plpgsql set enable_seqscan = off set jit = off as $$
-- Claims of a worker with heartbeats that are not closed. As in _running_ids(), no anti-join
begin
    perform from pgq.claim_ring limit 0;
    return query select c.* from pgq.claim_ring c
        where c.worker = i_worker and c.beats and c.ev_ids <> '{}'
          and (select true from pgq.claim_ring f
               where f.claim_id = c.claim_id and f.ev_id = 0 and f.kind = 'f' and f.nth = 0 limit 1) is null
        order by c.worker, c.claim_id;
end;
$$;
comment on function pgq._open_claims_of(text) is 'Claims of a worker that are not closed';


create or replace function pgq._quiet_claims(i_late boolean)
returns setof pgq.claim_ring language plpgsql set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq._quiet_claims(1)
--
--      Claims of workers without heartbeats that are not closed.
--
-- Parameters:
--      i_late  - only those whose lease, from the claim or the last extend(), has run out
-- ----------------------------------------------------------------------
begin
    perform from pgq.claim_ring limit 0;
    return query select c.* from pgq.claim_ring c join pgq.job_queue s on s.queue_id = c.queue_id
        where not c.beats and c.ev_ids <> '{}' and (c.at < pgq._clock() - s.lease or not i_late)
          and (select true from pgq.claim_ring f
               where f.claim_id = c.claim_id and f.ev_id = 0 and f.kind = 'f' and f.nth = 0 limit 1) is null
          and not (i_late and exists (select from pgq.claim_ring e
                                      where e.claim_id = c.claim_id and e.ev_id = -1 and e.kind = 'e' and e.at >= pgq._clock() - s.lease))
        order by c.claim_id;
end;
$$;
comment on function pgq._quiet_claims(boolean) is 'Claims of workers without heartbeats that are not closed';


create or replace function pgq._give_back_all(c pgq.claim_ring, i_outcome text)
returns int4 language plpgsql set lock_timeout = '100ms' as $$
-- ----------------------------------------------------------------------
-- Function: pgq._give_back_all(2)
--
--      Take all that is unfinished away from a claim, if nobody is finishing it at this
--      moment: then it is left for the next round.
-- Returns:
--      number of jobs
-- ----------------------------------------------------------------------
declare
    h     record;
    held  pgq.claim_ring;
    slot  int4;
begin
    h := pgq._claim_of(c.claim_id);
    held := h.c;
    slot := h.slot;
    if slot is null then
        return 0;
    end if;
    return pgq._give_back(held, slot, pgq._unfinished(held, slot), i_outcome, true);
exception
    when lock_not_available then
        return 0;
end;
$$;
comment on function pgq._give_back_all(pgq.claim_ring, text) is 'Take all that is unfinished away from a claim';


create or replace function pgq._watched(i_lease interval)
returns boolean language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._watched(1)
--
--      Was recover() there during the whole last lease, with no gap above half of it?
--      Otherwise the silence may be the database's own, and nobody is dead.
-- ----------------------------------------------------------------------
declare
    since  timestamptz := pgq._clock() - i_lease;
begin
    perform from pgq.beat_ring limit 0;
    return (
        select coalesce(min(at) <= since and max(gap) <= i_lease / 2, false)
        from (select at, coalesce(lead(at) over (order by at), pgq._clock()) - at as gap from pgq.beat_ring
              where worker = '' and at >= coalesce((select max(at) from pgq.beat_ring where worker = '' and at <= since), since)) m);
end;
$$;
comment on function pgq._watched(interval) is 'Was recover() there during the whole last lease';


create or replace function pgq._is_to_be_watched()
returns boolean language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._is_to_be_watched(0)
--
--      Is there a worker that may fall silent, or a claim whose lease may run out? If
--      not, recover() has nothing to do and leaves no mark. Reads only.
-- ----------------------------------------------------------------------
begin
    return exists (select from pgq.worker where ended_at is null)
        or exists (select from pgq._quiet_claims(false))
        or exists (select from pgq.worker where pgq._is_looked_for(ended_at, (select pgq._last_watch())));
end;
$$;
comment on function pgq._is_to_be_watched() is 'Is there anything for recover() to watch';


create or replace function pgq._last_watch()
returns timestamptz language plpgsql set enable_seqscan = off set jit = off as $$
-- When recover() last left a mark
begin
    perform from pgq.beat_ring limit 0;
    return (select at from pgq.beat_ring where worker = '' order by worker desc, at desc limit 1);
end;
$$;
comment on function pgq._last_watch() is 'When recover() last left a mark';


create or replace function pgq._is_looked_for(i_ended timestamptz, i_last timestamptz)
returns boolean language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._is_looked_for(2)
--
--      Is it time to look for claims of a worker that ended at that moment, recover() having
--      been there last at that other one?
--
--      A claim that was under way at the end may commit any time later, but hardly ever does,
--      and a look goes through all claims of the worker that are still in the ring. So
--      there is one at once and one after 2, 4, 8 .. seconds: who commits late waits as long again.
-- ----------------------------------------------------------------------
declare
    now_  timestamptz := pgq._clock();
begin
    if i_ended is null then
        return false;
    elsif i_last is null or i_last <= i_ended or i_last > now_ then
        return true;  -- never since it ended; or the clock was set back
    end if;
    return floor(log(2, greatest(1, extract(epoch from now_ - i_ended))))
         > floor(log(2, greatest(1, extract(epoch from i_last - i_ended))));
end;
$$;
comment on function pgq._is_looked_for(timestamptz, timestamptz) is 'Is it time to look for claims of a worker that ended';


create or replace function pgq.recover()
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.recover(0)
--
--      Declare workers dead that were silent for their lease, and give their unfinished
--      jobs to others. To be called every few seconds, by any worker and by the ticker;
--      one at a time does it, others return at once.
--
--      A job that was lost comes again with no attempt counted but with a loss, alone
--      with a worker: so one that kills its workers takes no neighbours along.
-- Returns:
--      number of jobs given back
-- Errors:
--      PQ007, 42501
-- ----------------------------------------------------------------------
declare
    w     pgq.worker;
    c     pgq.claim_ring;
    last  timestamptz;
    lost  int4 := 0;
begin
    perform pgq._require_read_committed('recover');
    perform pgq._require_work();
    if not pgq._is_to_be_watched() then
        return 0;  -- nothing to write
    end if;
    perform from pgq.ring where ring_name = 'beat_ring' for update skip locked;
    if not found then
        return 0;
    end if;
    last := pgq._last_watch();
    perform pgq._append_beat('');
    for w in select * from pgq.worker where ended_at is null order by worker loop
        if pgq._last_beat(w.worker) < pgq._clock() - w.lease and pgq._watched(w.lease) then
            perform pgq._bury_worker(w.worker);
        end if;
    end loop;
    -- also of those that were declared dead before: a claim of theirs may have committed since
    for w in select * from pgq.worker where pgq._is_looked_for(ended_at, last) order by worker loop
        for c in select * from pgq._open_claims_of(w.worker) loop
            lost := lost + pgq._give_back_all(c, case when w.lost then 'lost' else 'released' end);
        end loop;
    end loop;
    for c in select * from pgq._quiet_claims(true) loop
        if pgq._watched((select lease from pgq.job_queue where queue_id = c.queue_id)) then
            lost := lost + pgq._give_back_all(c, 'lost');
        end if;
    end loop;
    -- a day later there is nothing left to be found of them: the one row that is ever deleted
    delete from pgq.worker where ended_at < pgq._clock() - interval '1 day';
    return lost;
end;
$$;
comment on function pgq.recover() is
'Declare silent workers dead and give their unfinished jobs to others. Returns how many jobs.';


create or replace function pgq._bury_worker(i_worker text)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._bury_worker(1)
--
--      Declare a worker dead, unless somebody has its row, or it has beaten meanwhile.
-- ----------------------------------------------------------------------
declare
    w  pgq.worker;
begin
    select * into w from pgq.worker where worker = i_worker and ended_at is null for update skip locked;
    if found and pgq._last_beat(i_worker) < pgq._clock() - w.lease then
        update pgq.worker set ended_at = pgq._clock(), lost = true where worker = i_worker;
    end if;
end;
$$;
comment on function pgq._bury_worker(text) is 'Declare a worker dead';


create or replace function pgq.end_worker(i_worker text)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.end_worker(1)
--
--      A worker stops: what it still has is given back at once.
-- Returns:
--      number of jobs given back
-- Errors:
--      PQ007, 42501
-- ----------------------------------------------------------------------
declare
    c     pgq.claim_ring;
    back  int4 := 0;
begin
    perform pgq._require_read_committed('end_worker');
    perform pgq._require_work();
    update pgq.worker set ended_at = pgq._clock() where worker = i_worker and ended_at is null;
    for c in select * from pgq._open_claims_of(i_worker) loop
        back := back + pgq._give_back_all(c, 'released');
    end loop;
    return back;
end;
$$;
comment on function pgq.end_worker(text) is 'A worker stops: what it still has is given back. Returns how many jobs.';


create or replace function pgq._live_beats(i_slot text)
returns setof pgq.beat_ring language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._live_beats(1)
--
--      The rows of a closed slot of the beat ring that are still needed: the last
--      two of each living worker, and the marks of the longest lease.
-- ----------------------------------------------------------------------
begin
    return query execute format($q$
        select b.* from pgq.%I b
        where case when b.worker = ''
              then b.at >= clock_timestamp() - 2 * greatest((select max(lease) from pgq.job_queue), (select max(lease) from pgq.worker), interval '1 minute')
              else exists (select from pgq.worker w where w.worker = b.worker and w.ended_at is null)
                   and (select count(*) from pgq.beat_ring n where n.worker = b.worker and n.at > b.at) < 2 end $q$, i_slot);
end;
$$;
comment on function pgq._live_beats(text) is 'Rows of a slot of the beat ring that are still needed';


create or replace function pgq.grant_work(i_queue_name text, i_role text)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.grant_work(2)
--
--      Let a role work the jobs of one queue, without being a member of pgq_reader.
-- Returns:
--      1, or 0 when it was granted already
-- Errors:
--      PQ001, PQ006 no such role, PQ023
-- ----------------------------------------------------------------------
declare
    q   pgq.queue := pgq._queue_of_jobs(i_queue_name);
    fn  text;
begin
    perform pgq._check_role(i_role);
    for fn in select * from pgq._functions_for('worker') loop
        execute format('grant execute on routine %s to %I', fn, i_role);
    end loop;
    execute format('grant execute on routine pgq.%I, pgq.%I, pgq.%I to %I', pgq._job_function('work', q),
                   pgq._job_function('work_on', q), pgq._job_function('take', q), i_role);
    execute format('grant select (queue_id, queue_name, queue_ticker_paused) on pgq.queue to %I', i_role);
    execute format('grant select (queue_id) on pgq.job_queue to %I', i_role);
    insert into pgq.consume_grant (queue_id, consumer_name, role_name) values (q.queue_id, '', i_role) on conflict do nothing;
    return found::int;
end;
$$;
comment on function pgq.grant_work(text, text) is 'Let a role work the jobs of one queue. Returns 1, or 0 when it was granted already.';


create or replace function pgq.revoke_work(i_queue_name text, i_role text)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.revoke_work(2)
--
--      Undo grant_work.
-- Returns:
--      1, or 0 when it was not granted
-- Errors:
--      PQ001, PQ023
-- ----------------------------------------------------------------------
declare
    q  pgq.queue := pgq._queue_of_jobs(i_queue_name);
begin
    if to_regrole(quote_ident(i_role)) is not null then
        execute format('revoke execute on routine pgq.%I, pgq.%I, pgq.%I from %I', pgq._job_function('work', q),
                       pgq._job_function('work_on', q), pgq._job_function('take', q), i_role);
    end if;
    delete from pgq.consume_grant where queue_id = q.queue_id and consumer_name = '' and role_name = i_role;
    return found::int;
end;
$$;
comment on function pgq.revoke_work(text, text) is 'Undo grant_work. Returns 1, or 0 when it was not granted.';
