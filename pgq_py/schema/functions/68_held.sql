-- Rotation of what jobs are in: event slots of job queues, the held ring, the claim ring.
--
-- One lane that starves must not keep the whole log. When a slot of a job queue dies for its
-- fan-out consumers, the jobs in it that are not claimed or not finished are copied into the
-- held ring, with lane, transaction and id, so that every lane finds them where they were in
-- its order. That happens with the locks of all lanes, so no claim reads meanwhile.

create or replace function pgq._lock_lanes(i_queue int4)
returns boolean language plpgsql set lock_timeout = '100ms' as $$
-- ----------------------------------------------------------------------
-- Function: pgq._lock_lanes(1)
--
--      Lock all lanes of a queue, in the order in which claims do. Waiting for a row
--      lock stops nobody but claims; but not for a claim that somebody left open.
-- Returns:
--      false when one was not to be had
-- ----------------------------------------------------------------------
declare
    l  int2;
begin
    for l in select lane from pgq.lane where queue_id = i_queue order by lane = 0 desc, lane desc loop
        perform from pgq.lane where queue_id = i_queue and lane = l for update;
    end loop;
    return true;
exception
    when lock_not_available then
        return false;
end;
$$;
comment on function pgq._lock_lanes(int4) is 'Lock all lanes of a queue';


create or replace function pgq._lane_marks(i_queue int4)
returns table (lane int2, base pg_snapshot, top pg_snapshot, to_txid xid8, to_id int8, done boolean) language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._lane_marks(1)
--
--      Where each lane of a queue stands, with the snapshots of its window.
-- ----------------------------------------------------------------------
declare
    c  pgq.claim_ring;
begin
    for lane in select l.lane from pgq.lane l where l.queue_id = i_queue loop
        c := pgq._lane_state(i_queue, lane);
        base := (pgq._cursor_tick(i_queue, c.base_tick)).tick_snapshot;
        top := (pgq._cursor_tick(i_queue, c.top_tick)).tick_snapshot;
        to_txid := c.to_txid;
        to_id := c.to_id;
        done := c.exhausted;
        return next;
    end loop;
end;
$$;
comment on function pgq._lane_marks(int4) is 'Where each lane of a queue stands';


create or replace function pgq._running_ids(i_queue int4)
returns int8[] language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._running_ids(1)
--
--      Jobs of a queue that are claimed and not finished.
--
--      What is not there is asked for row by row, by index: no statistics are kept of a
--      ring, and an anti-join was planned as a loop over all finishes for each claim, which took
--      seconds after some ten thousand. A subquery with a limit is never made a join.
-- ----------------------------------------------------------------------
begin
    perform from pgq.claim_ring limit 0;
    return array(
        select i.id from pgq.claim_ring c cross join lateral unnest(c.ev_ids) i(id)
        where c.queue_id = i_queue and c.ev_ids is not null
          and (select true from pgq.claim_ring f
               where f.claim_id = c.claim_id and f.ev_id = 0 and f.kind = 'f' and f.nth = 0 limit 1) is null
          and (select true from pgq.claim_ring f
               where f.claim_id = c.claim_id and f.ev_id = i.id and f.kind = 'f' and f.nth = 0 limit 1) is null);
end;
$$;
comment on function pgq._running_ids(int4) is 'Jobs of a queue that are claimed and not finished';


create or replace function pgq._live_jobs_sql(i_slot text)
returns text language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._live_jobs_sql(1)
--
--      SELECT of the jobs in a closed slot that are not claimed ($1: the queue) or
--      not finished ($2: the running ones). What base shows of a lane is claimed, and what
--      top shows up to the position.
-- ----------------------------------------------------------------------
begin
    return format($q$
        select e.* from pgq.%I e left join pgq._lane_marks($1) m on m.lane = e.ev_lane
        where e.ev_id = any ($2)
           or not (coalesce(pg_visible_in_snapshot(e.ev_txid, m.base), false)
                   or coalesce(pg_visible_in_snapshot(e.ev_txid, m.top)
                               and (m.done or (e.ev_txid, e.ev_id) <= (m.to_txid, m.to_id)), false)) $q$, i_slot);
end;
$$;
comment on function pgq._live_jobs_sql(text) is 'SELECT of the jobs in a slot that are still needed';


create or replace function pgq._count_live_jobs(i_queue int4, i_slot text)
returns bigint language plpgsql as $$
-- How many jobs in a closed slot are still needed, not counted beyond what rotation carries along
declare
    n  bigint;
begin
    execute format('select count(*) from (%s limit $3) j', pgq._live_jobs_sql(i_slot))
        into n using i_queue, pgq._running_ids(i_queue),
        (select held_limit + 1 from pgq.job_queue where queue_id = i_queue);
    return n;
end;
$$;
comment on function pgq._count_live_jobs(int4, text) is 'How many jobs in a slot are still needed';


create or replace function pgq._hold_jobs(i_queue int4, i_slot text)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._hold_jobs(2)
--
--      Copy the jobs of a dying event slot that are still needed into the held ring. The
--      caller has the locks of all lanes and ACCESS EXCLUSIVE on the slot.
-- ----------------------------------------------------------------------
begin
    execute format('insert into pgq.%I (ev_id, ev_time, ev_txid, ev_owner, ev_retry, ev_type, ev_data,'
                   ' ev_extra1, ev_extra2, ev_extra3, ev_extra4, ev_lane)'
                   ' select ev_id, ev_time, ev_txid, ev_owner, ev_retry, ev_type, ev_data,'
                   ' ev_extra1, ev_extra2, ev_extra3, ev_extra4, ev_lane from (%s) j',
                   pgq._slot('held_' || i_queue, 3, pgq._phase('held_' || i_queue) / 2), pgq._live_jobs_sql(i_slot))
        using i_queue, pgq._running_ids(i_queue);
end;
$$;
comment on function pgq._hold_jobs(int4, text) is 'Copy what is still needed of an event slot into the held ring';


create or replace function pgq._live_helds(i_slot text)
returns setof pgq.held_template language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._live_helds(1)
--
--      The rows of a closed slot of a held ring that are still needed.
-- ----------------------------------------------------------------------
declare
    nr  int4 := split_part(i_slot, '_', 2)::int4;
begin
    return query execute pgq._live_jobs_sql(i_slot) using nr, pgq._running_ids(nr);
end;
$$;
comment on function pgq._live_helds(text) is 'Rows of a slot of a held ring that are still needed';


create or replace function pgq._live_claims(i_slot text)
returns setof pgq.claim_ring language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._live_claims(1)
--
--      The rows of a closed slot of the claim ring that are still needed: of claims
--      that are open, are a lane's newest, or have a result that is kept, all rows but
--      progress that is not the newest; tombstones of jobs that are still ahead; the newest
--      totals of each queue.
-- ----------------------------------------------------------------------
begin
    return query execute format($q$
        with newest as materialized (
            select (pgq._lane_state(queue_id, lane)).claim_id from pgq.lane),
        kept as materialized (
            select c.claim_id from pgq.%1$I c
            join pgq.job_queue s on s.queue_id = c.queue_id
            where c.kind = 'q' and (
                (c.ev_ids <> '{}'
                 and not exists (select from pgq.%1$I f where f.claim_id = c.claim_id and f.ev_id = 0 and f.kind = 'f')
                 and (select count(*) from pgq.%1$I f where f.claim_id = c.claim_id and f.ev_id > 0 and f.kind = 'f')
                     < cardinality(c.ev_ids))
                or exists (select from pgq.%1$I r where r.claim_id = c.claim_id and r.kind = 'r' and r.at > clock_timestamp())
                or c.claim_id in (select claim_id from newest)))
        select r.* from pgq.%1$I r
        where r.claim_id in (select claim_id from kept)
              and not (r.kind in ('p', 'e') and exists (select from pgq.%1$I n where n.claim_id = r.claim_id and n.ev_id = r.ev_id
                                                        and n.kind = r.kind and n.nth > r.nth))
           or r.kind = 't' and exists (select from pgq.job_queue where queue_id = -r.claim_id) and pgq._is_ahead(r.queue_id, r.ev_id)
           or r.kind = 's' and exists (select from pgq.job_queue where queue_id = -r.claim_id)
              and not exists (select from pgq.claim_ring n where n.claim_id = r.claim_id and n.ev_id = r.ev_id
                              and n.kind = 's' and n.nth > r.nth) $q$, i_slot);
end;
$$;
comment on function pgq._live_claims(text) is 'Rows of a slot of the claim ring that are still needed';


create or replace function pgq._archive(i_slot text)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._archive(1)
--
--      Copy the jobs that were finished for good by claims in a dying slot of the claim
--      ring into pgq.job_archive, for queues that ask for it. Of a job whose event has
--      rotated away already the arguments are missing: let the queue's rotation_period
--      be longer than an hour, the claim ring's.
-- ----------------------------------------------------------------------
declare
    q  pgq.queue;
begin
    for q in select q_.* from pgq.queue q_ join pgq.job_queue s using (queue_id) where s.archive loop
        execute format($q$
            with ended as (
                select distinct on (i.id) i.id, f.outcome, f.error, f.at, c.worker, c.at as claimed_at
                from pgq.%1$I f join pgq.%1$I c on c.claim_id = f.claim_id and c.ev_id = -1 and c.kind = 'q'
                cross join lateral unnest(case when f.ev_id = 0 then c.ev_ids else array[f.ev_id] end) i(id)
                where f.queue_id = $1.queue_id and f.kind = 'f' and f.outcome in ('completed', 'failed', 'cancelled')
                  and (f.ev_id > 0 or not exists (select from pgq.%1$I o where o.claim_id = f.claim_id and o.ev_id = i.id and o.kind = 'f'))
                order by i.id, f.at desc)
            insert into pgq.job_archive
            select $1.queue_name, e.id, j.ev_type, pgq._json_or_null(j.ev_data), e.outcome, coalesce(j.ev_retry, 0) + 1, e.worker,
                   j.ev_time, e.claimed_at, e.at, e.error
            from ended e left join pgq._job_rows($1, array(select id from ended)) j on j.ev_id = e.id
            where not exists (select from pgq.job_archive a where a.queue_name = $1.queue_name and a.job_id = e.id and a.finished_at = e.at)
            $q$, i_slot) using q;
    end loop;
end;
$$;
comment on function pgq._archive(text) is 'Copy finished jobs of a dying slot into the archive';
