-- Idempotency keys: who holds a key now.
--
-- A key's holders form a chain in the key ring. Each row names the holder before it, and
-- two rows cannot follow the same one: the unique index decides between competitors, and
-- makes the second wait for the first, whose rollback lets it in. No advisory locks:
-- 20,000 keys of one transaction would exhaust the lock table.
--
-- The index is one per slot, so all writers of a moment must be in the same slot. A writer
-- locks the slot and looks at the phase again; the ring switches under SHARE ROW EXCLUSIVE
-- on the current slot, when no writer is inside (11_ring_step.sql). What a transaction of
-- another level than READ COMMITTED cannot see, because a slot was evacuated or left after
-- its snapshot, it must not take for absent: 40001.

create or replace function pgq._lock_key_slot()
returns int4 language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._lock_key_slot(0)
--
--      Lock the current slot of the key ring for writing, to the end of the
--      transaction.
-- Returns:
--      its number
-- Errors:
--      40001  - the snapshot is older than the last change of slots
-- ----------------------------------------------------------------------
declare
    g  bigint;
begin
    loop
        g := pg_sequence_last_value('pgq.key_ring_phase'::regclass) / 2;
        case g % 3
            when 0 then lock table only pgq.key_ring_0 in row exclusive mode;
            when 1 then lock table only pgq.key_ring_1 in row exclusive mode;
            else lock table only pgq.key_ring_2 in row exclusive mode;
        end case;
        exit when g = pg_sequence_last_value('pgq.key_ring_phase'::regclass) / 2;
    end loop;
    perform from pgq.key_ring limit 0;  -- from here on nothing is evacuated either
    perform pgq._require_fresh('key_ring');
    return (g % 3)::int4;
end;
$$;
comment on function pgq._lock_key_slot() is 'Lock the current slot of the key ring for writing';


create or replace function pgq._require_fresh(i_ring text)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._require_fresh(1)
--
--      Refuse a snapshot that is older than the last move of rows in a ring: they
--      were truncated where it would see them, and are invisible where they are.
--      In READ COMMITTED the next statement sees them.
-- Errors:
--      40001  - repeat the transaction
-- ----------------------------------------------------------------------
declare
    moved  xid8;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        moved := pg_sequence_last_value(format('pgq.%I', i_ring || '_moved')::regclass)::text::xid8;
        if not pg_visible_in_snapshot(moved, pg_current_snapshot()) then
            raise exception 'rows of % were moved since the snapshot of this transaction', i_ring
                using errcode = '40001', detail = 'Nothing was changed.', hint = 'Repeat the transaction.';
        end if;
    end if;
end;
$$;
comment on function pgq._require_fresh(text) is 'Refuse a snapshot that is older than the last move of rows in a ring';


create or replace function pgq._key_heads(i_scopes text[], i_keys text[])
returns table (scope text, key text, holder int8, job int8, free boolean) language plpgsql set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq._key_heads(2)
--
--      The last holder of each of these keys that ever was taken (as far as the ring
--      remembers), and whether it has let go.
-- ----------------------------------------------------------------------
begin
    return query
        select k.scope, k.key, k.ev_id, k.job_id,
               case when k.until is not null then k.until <= clock_timestamp()
                    else exists (select from pgq.key_ring r
                                 where r.scope = k.scope and r.key = k.key and r.prev_ev_id = -k.ev_id) end
        from unnest(i_scopes, i_keys) w(scope, key)
        join pgq.key_ring k on k.scope = w.scope and k.key = w.key and k.prev_ev_id >= 0
        where not exists (select from pgq.key_ring s
                          where s.scope = k.scope and s.key = k.key and s.prev_ev_id = k.ev_id);
end;
$$;
comment on function pgq._key_heads(text[], text[]) is 'Last holders of keys';


create or replace function pgq._take_keys(
    i_scopes text[], i_keys text[], i_ids int8[], i_until timestamptz[], i_jobs int8[] default null)
returns int8[] language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._take_keys(5)
--
--      Take keys, as far as they are free. At any isolation level.
--
--      Waits for transactions that are taking the same ones; keys are taken in
--      order, so that two bulk calls do not deadlock. Each is tried once: a key that is
--      let go a moment later was taken when it was asked for, and a second try would be
--      out of order.
-- Parameters:
--      i_scopes, i_keys, i_ids, i_until  - one element per key; i_ids are numbers that no
--                 holder had before, greater than 0; the same key may come again
--      i_jobs   - the jobs, where these are not i_ids
-- Returns:
--      the jobs that have the keys now: those given, or the earlier holders
-- Errors:
--      40001
-- ----------------------------------------------------------------------
declare
    slot     int4 := pgq._lock_key_slot();
    jobs     int8[] := coalesce(i_jobs, i_ids);
begin
    execute format($q$
        insert into pgq.key_ring_%s (scope, key, prev_ev_id, ev_id, until, job_id)
        select distinct on (w.scope, w.key) w.scope, w.key, coalesce(h.holder, 0), w.id, w.until, w.job
        from unnest($1, $2, $3, $4, $5) w(scope, key, id, until, job)
        left join pgq._key_heads($1, $2) h on h.scope = w.scope and h.key = w.key
        where h.free is not false
        order by w.scope, w.key, w.id
        on conflict do nothing $q$, slot) using i_scopes, i_keys, i_ids, i_until, jobs;
    return array(
        select h.job from unnest(i_scopes, i_keys) with ordinality w(scope, key, nth)
        left join (select distinct * from pgq._key_heads(i_scopes, i_keys)) h on h.scope = w.scope and h.key = w.key
        order by w.nth);
end;
$$;
comment on function pgq._take_keys(text[], text[], int8[], timestamptz[], int8[]) is 'Take idempotency keys as far as they are free';


create or replace function pgq._release_keys(i_scope text, i_keys text[], i_ids int8[])
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._release_keys(3)
--
--      Let go of keys, in the order of taking. At any isolation level: a release is
--      one row, whatever else is visible.
-- ----------------------------------------------------------------------
begin
    execute format('insert into pgq.key_ring_%s (scope, key, prev_ev_id, ev_id, job_id)'
                   ' select $1, key, -id, id, id from unnest($2, $3) w(key, id) order by key, id on conflict do nothing',
                   pgq._lock_key_slot())
        using i_scope, i_keys, i_ids;
end;
$$;
comment on function pgq._release_keys(text, text[], int8[]) is 'Let go of idempotency keys';


create or replace function pgq._holder(i_id bigint, i_options jsonb)
returns bigint language sql immutable as $$
    -- number under which a job has its key: its id, or what a replay gave it
    select coalesce((i_options ->> 'holder')::bigint, i_id)
$$;
comment on function pgq._holder(bigint, jsonb) is 'Number under which a job has its key';


create or replace function pgq._live_keys(i_slot text)
returns setof pgq.key_ring language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._live_keys(1)
--
--      The rows of a closed slot of the key ring that are still needed: last holders
--      that have not let go, of queues and schedules that exist.
-- ----------------------------------------------------------------------
begin
    return query execute format($q$
        select k.* from pgq.%I k
        where k.prev_ev_id >= 0
          and not exists (select from pgq.key_ring s
                          where s.scope = k.scope and s.key = k.key and s.prev_ev_id = k.ev_id)
          and case when k.until is not null then k.until > clock_timestamp()
                   else not exists (select from pgq.key_ring r
                                    where r.scope = k.scope and r.key = k.key and r.prev_ev_id = -k.ev_id) end
          and case when k.scope ~ '^queue:[0-9]+$'
                        then exists (select from pgq.job_queue where queue_id = split_part(k.scope, ':', 2)::int4)
                   when k.scope ~ '^cron:[0-9]+$'
                        then exists (select from pgq.schedule where schedule_id = split_part(k.scope, ':', 2)::int4)
                   else true end $q$, i_slot);
end;
$$;
comment on function pgq._live_keys(text) is 'Rows of a slot of the key ring that are still needed';


create or replace function pgq._check_key(i_key text)
returns void language plpgsql as $$
-- PQ006 unless the key has 1 to 512 bytes; null passes
begin
    if octet_length(i_key) not between 1 and 512 then
        raise exception 'invalid idempotency key of % bytes', octet_length(i_key)
            using errcode = 'PQ006', hint = 'A key has 1 to 512 bytes; hash what is longer.';
    end if;
end;
$$;
comment on function pgq._check_key(text) is 'Check an idempotency key';


create or replace function pgq.once(i_scope text, i_key text, i_window interval default interval '1 day')
returns boolean language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq.once(3)
--
--      Is this the first time within the window? For handlers whose effects are
--      outside of the database: commit it before the effect (at most once), or in
--      the transaction that completes the job (at least once).
--
--      A competitor waits until the first one commits or rolls back.
-- Parameters:
--      i_scope   - 1 to 128 characters; yours, shared by whoever uses the same
--      i_key     - 1 to 512 bytes
--      i_window  - up to ten years; it is what is kept and copied along for that long
-- Returns:
--      true for the first, false for all others until the window has passed
-- Errors:
--      PQ006, 40001
-- ----------------------------------------------------------------------
declare
    id  int8 := nextval('pgq.claim_id_seq');
begin
    perform pgq._check_name('scope', i_scope);
    perform pgq._check_key(coalesce(i_key, ''));
    if (i_window > interval '0' and i_window <= interval '10 years') is not true then
        raise exception 'window cannot be %', coalesce(i_window::text, 'NULL')
            using errcode = 'PQ006', hint = 'Allowed: more than 0, at most 10 years.';
    end if;
    return id = (pgq._take_keys(array['once:' || i_scope], array[i_key], array[id], array[clock_timestamp() + i_window]))[1];
end;
$$;
comment on function pgq.once(text, text, interval) is
'Is this the first call for a key within a window? True for the first, false for others.';
