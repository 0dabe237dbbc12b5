-- complete_and_claim() in the common case, as one function per queue.
--
-- What it costs to finish a job and get the next is PL/pgSQL itself: each function that is entered,
-- and in each transaction each expression, is set up anew. Composed of the parts in 64_lane.sql,
-- 65_claim.sql, 65_claimed.sql and 66_finish.sql it takes some twenty-five functions; here it is
-- one, with the same statements in the same order. It does what nearly every call needs and leaves
-- the rest to the parts: a claim without keys in the current slot of the claim ring, a lane in the
-- middle of a window of one range and one event slot, no cancelled and no held jobs, no tick since
-- the claim before.

create or replace function pgq._generate_work(q pgq.queue)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._generate_work(1)
--
--      (Re)create work_N(claim, token, worker, n, completes, claims): complete a claim,
--      claim the next jobs of its lane, or both, in a READ COMMITTED transaction.
--
--      Returns how far it came: 0 nowhere, 1 completed, 2 claimed (as well). EXECUTE on
--      it is the right to work the queue (see grant_work).
-- ----------------------------------------------------------------------
declare
    fn      text := format('pgq.%I(int8, int8, text, int4, boolean, boolean)', pgq._job_function('work', q));
    slots   text;
begin
    select string_agg(format('when %s then %s', nr, pgq._work_sql(q, nr)), ' ' order by nr) into slots
        from generate_series(0, 2) nr;
    execute format($f$
        create or replace function pgq.%1$I(
            i_claim_id int8, i_token int8, i_worker text, i_n int4, i_completes boolean, i_claims boolean,
            out stage int4, out claim_id int8, out token int8, out job_ids int8[])
        returns record language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp
        set enable_seqscan = off set jit = off set enable_sort = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan as $b$
        #variable_conflict use_column
        declare
            c       record;
            l       record;
            found_  record;
            newest  int8;
            g       bigint := pg_sequence_last_value('pgq.claim_ring_phase'::regclass) / 2;
        begin
            stage := 0;
            case g %% 3 %2$s end case;
        end; $b$ $f$, pgq._job_function('work', q), slots);
    execute format('comment on function %s is %L', fn, 'Complete a claim and claim the next jobs; generated, called by complete_and_claim()');
    execute format('revoke all on function %s from public', fn);
    perform pgq._grant_function(fn, 'pgq_reader');
end;
$$;
comment on function pgq._generate_work(pgq.queue) is 'Generate the function that completes a claim and claims the next jobs';


create or replace function pgq._work_sql(q pgq.queue, i_slot int4)
returns text language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._work_sql(2)
--
--      The body of work_N for one slot of the claim ring.
-- ----------------------------------------------------------------------
declare
    ticks   text := pgq._in_current_slot_sql('tick_ring', format(
                        'select tick_id into newest from SLOT where tick_queue = %s order by tick_queue desc, tick_id desc limit 1',
                        q.queue_id));
    events  text := pgq._in_slot_sql('event_' || q.queue_id, q.queue_ntables, 'l.hi',
                        'select array_agg(e.ev_id) as ids, array_agg(e.ev_txid) as txids,'
                        ' bool_or(e.ev_extra2 is not null) as keyed into found_'
                        ' from (select ev_id, ev_txid, ev_extra2 from SLOT'
                        ' where ev_lane = c.lane and ev_txid >= l.lows[1] and ev_txid < l.highs[1]'
                        ' and (ev_txid, ev_id) > (l.to_txid, l.to_id)'
                        ' order by ev_lane, ev_txid, ev_id limit i_n + 1) e');
    held    text;
begin
    select string_agg(format('pg_relation_size(''pgq.held_%s_%s''::regclass)', q.queue_id, nr), ' + ' order by nr)
        into held from generate_series(0, 2) nr;
    return format($w$
        -- complete, as _close() does
        select lane, seen, keyed, ev_ids, (select ended_at is null from pgq.worker where worker = i_worker) as alive
            into c from pgq.claim_ring_%1$s
            where claim_id = i_claim_id and ev_id = -1 and kind = 'q' and nth = 0 and token = i_token and queue_id = %2$s;
        if not found or c.keyed or c.lane = 0 or c.alive = false then
            return;
        end if;
        if i_completes then
            insert into pgq.claim_ring_%1$s (claim_id, ev_id, kind, queue_id, lane, outcome, n)
                select i_claim_id, 0, 'f', %2$s, c.lane, 'completed', cardinality(c.ev_ids) - (
                    select count(*) from pgq.claim_ring_%1$s f where f.claim_id = i_claim_id and f.ev_id > 0 and f.kind = 'f')
                on conflict do nothing;
            if not found then
                return;
            end if;
            stage := 1;
        end if;
        if not i_claims or (select queue_ticker_paused from pgq.queue where queue_id = %2$s) then
            return;
        end if;

        -- claim, as _claim() and _claim_lane() do
        %3$s
        if newest is not distinct from c.seen then
            perform from pgq.lane where queue_id = %2$s and lane = c.lane for update;
        else
            newest := null;
        end if;
        select s.*, exists (select from pgq.claim_ring_%1$s where claim_id = i_claim_id and ev_id = -1 and kind = 'q' and nth = 0) as is_here
            into l from (select 1) one left join (
                select base_tick, top_tick, to_txid, to_id, lo, hi, lows, highs, exhausted, tombs from pgq.claim_ring_%1$s
                where queue_id = %2$s and lane = c.lane and ev_ids is not null
                order by queue_id desc, lane desc, claim_id desc limit 1) s on true;
        if not l.is_here then
            perform pgq._raise_moved(i_claim_id);
        end if;
        if newest is null or l.exhausted is distinct from false or l.tombs or l.lo <> l.hi
           or cardinality(l.lows) is distinct from 1 or %5$s > 0 then
            return;
        end if;
        %4$s
        if found_.ids is null then
            return;
        end if;
        insert into pgq.claim_ring_%1$s as t (claim_id, ev_id, kind, queue_id, lane, token, base_tick, top_tick, from_txid, from_id,
                to_txid, to_id, lo, hi, lows, highs, seen, exhausted, tombs, keyed, beats, worker, ev_ids)
            select nextval('pgq.claim_id_seq'), -1, 'q', %2$s, c.lane, hashtextextended(gen_random_uuid()::text, i_claim_id),
                   l.base_tick, l.top_tick, found_.txids[1], found_.ids[1], found_.txids[k], found_.ids[k], l.lo, l.hi,
                   case when more then l.lows end, case when more then l.highs end, newest, not more, false, found_.keyed,
                   c.alive is not null, i_worker, found_.ids[:i_n]
            from (select least(cardinality(found_.ids), i_n) as k, cardinality(found_.ids) > i_n as more) p
            returning t.claim_id, t.token, t.ev_ids into claim_id, token, job_ids;
        if pg_sequence_last_value('pgq.claim_ring_phase'::regclass) / 2 <> g then
            perform pgq._raise_moved(i_claim_id);
        end if;
        stage := 2; $w$, i_slot, q.queue_id, ticks, events, held);
end;
$$;
comment on function pgq._work_sql(pgq.queue, int4) is 'Body of the function that completes a claim and claims the next jobs';


create or replace function pgq._generate_work_on(q pgq.queue)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._generate_work_on(1)
--
--      (Re)create work_on_N; see worker_procedure for what it does. With the caller's
--      rights: a SECURITY DEFINER procedure, or one with a SET clause, may not commit.
-- ----------------------------------------------------------------------
declare
    fn  text := format('pgq.%I(int8, int8, int8[], text, int4)', pgq._job_function('work_on', q));
begin
    execute format($f$
        create or replace procedure pgq.%1$I(
            inout claim_id int8, inout token int8, inout job_ids int8[], i_worker text, i_n int4 default 1)
        language plpgsql as $b$
        declare
            old_claim  int8 := claim_id;
            old_token  int8 := token;
            w          record;
            state      text;
        begin
            state := pg_catalog.set_config('synchronous_commit', 'off', true);
            claim_id := null;
            token := null;
            job_ids := null;
            if old_claim is not null and i_n between 1 and 10000 and coalesce(length(i_worker), 0) <= 200 then
                w := pgq.%2$I(old_claim, old_token, i_worker, i_n, false, true);
                claim_id := w.claim_id;
                token := w.token;
                job_ids := w.job_ids;
            end if;
            if claim_id is null then
                select c.claim_id, c.token, c.job_ids into claim_id, token, job_ids from pgq.claim(%3$L, i_worker, i_n) c;
            end if;
            commit;
            if old_claim is null then
                return;
            end if;
            w := pgq.%2$I(old_claim, old_token, i_worker, i_n, true, false);
            if w.stage = 1 then
                return;
            end if;
            begin
                perform pgq.complete(old_claim, old_token);
                return;
            exception
                when others then
                    get stacked diagnostics state = returned_sqlstate;
                    w := row(sqlerrm);
            end;
            if claim_id is not null then
                perform pgq.release(claim_id, token);
            end if;
            commit;
            raise exception '%%', w.f1
                using errcode = state, detail = 'Nothing was completed, and no job is claimed.',
                      hint = 'Roll back what the jobs did, if that can be done, and go on with null as the claim.';
        end; $b$ $f$, pgq._job_function('work_on', q), pgq._job_function('work', q), q.queue_name);
    execute format('comment on procedure %s is %L', fn, 'Claim the next jobs, then complete a claim; generated, see worker_procedure()');
    execute format('revoke all on procedure %s from public', fn);
    perform pgq._grant_function(fn, 'pgq_reader');
end;
$$;
comment on function pgq._generate_work_on(pgq.queue) is 'Generate the procedure that claims the next jobs and completes a claim';


create or replace function pgq.worker_procedure(i_queue_name text)
returns text language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.worker_procedure(1)
--
--      Name (in schema pgq) of the queue's own procedure that completes a claim and
--      claims the next jobs in two transactions, for many workers that do little:
--      CALL work_on_N_HASH(claim_id, token, null, worker, n), outside of a transaction
--      block, returns claim_id, token and job_ids of the next claim. With null as the
--      claim it only claims.
--
--      A claim holds the lock of its lane until its transaction ends, which with a
--      durable commit is when the disk has answered. So the claim comes first, commits
--      asynchronously, and frees the lane at once; the completion commits as the
--      session's synchronous_commit says, and what flushes it flushes the claim, which
--      is ahead of it in the log. A first call, that only claims, does not wait for the
--      disk: after a crash of the server the claim was never made.
--
--      Its errors are those of complete() and claim(). When the completion fails, what
--      was claimed is given back. Within a transaction block it is 2D000.
-- Errors:
--      PQ001, PQ023
-- ----------------------------------------------------------------------
begin
    return pgq._job_function('work_on', pgq._queue_of_jobs(i_queue_name));
end;
$$;
comment on function pgq.worker_procedure(text) is
'Name, in schema pgq, of the queue''s own procedure (claim_id, token, null, worker, n): the fastest way to work many small jobs, from many sessions.';
