-- Maintenance of a ring: one step per transaction, each under the ring's own lock
-- with the state read again after it.
--
--      close       v even -> odd, while holding SHARE on the previous slot: no writer is inside
--      truncate    v odd, the oldest generation that holds rows is dead: TRUNCATE
--                  (rings whose slots hold a few rows still needed copy those into
--                  the current slot first, in the same transaction)
--      switch      v odd -> even, when the next slot is empty and the current one
--                  is old or large enough
--
-- Only absolute setval: a crash makes nextval jump. Only NOWAIT, never lock_timeout (but for
-- keys): a waiting ACCESS EXCLUSIVE stops every writer behind it and fails pg_dump.

create or replace function pgq._ring_step(i_ring text, i_force boolean default false)
returns text language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._ring_step(2)
--
--      Do the next step of a ring.
--
-- Parameters:
--      i_ring   - the ring
--      i_force  - switch even when the current slot is neither old nor large
-- Returns:
--      closed, truncated, switched  - what was done
--      blocked  - a lock was not to be had; counted; try again later
--      waiting  - the oldest slot is still needed, and there is no free one
--      idle     - nothing to do
--      busy     - somebody else maintains this ring now
-- ----------------------------------------------------------------------
declare
    r       pgq.ring;
    v       bigint;
    result  text;
begin
    perform pgq._require_read_committed('ring maintenance');
    select * into r from pgq.ring where ring_name = i_ring for update skip locked;
    if not found then
        return 'busy';
    end if;

    v := pgq._phase(i_ring);
    if v % 2 = 0 then
        return pgq._ring_close(r, v);
    end if;
    result := pgq._ring_truncate(r, v / 2);
    -- A ring that is evacuated may not switch over a slot that is not: its old rows would be
    -- copied past newer ones, and what is found in the current slot would not be the newest.
    if result = 'truncated' or (result is not null and r.ring_kind <> 'event') then
        return result;
    end if;
    return coalesce(pgq._ring_switch(r, v, i_force), result, 'idle');
end;
$$;
comment on function pgq._ring_step(text, boolean) is 'Do the next maintenance step of a ring';


create or replace function pgq._ring_close(r pgq.ring, v bigint)
returns text language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._ring_close(2)
--
--      Close the previous slot unless a writer is inside.
--
--      SHARE conflicts with the writers' ROW EXCLUSIVE and with nothing a
--      reader takes. A transaction that did not write to this very slot,
--      however long it runs, does not matter.
-- ----------------------------------------------------------------------
declare
    previous  text := pgq._slot(r.ring_name, r.ring_slots, v / 2 - 1);
begin
    -- our own lock would not stop us, and our own uncommitted rows would be lost behind lo
    if pgq._holds_lock(previous, 'RowExclusiveLock') or not pgq._try_lock(previous, 'share') then
        return pgq._count_skip(r.ring_name);
    end if;
    perform setval(format('pgq.%I', r.ring_name || '_phase')::regclass, v + 1);
    return 'closed';
end;
$$;
comment on function pgq._ring_close(pgq.ring, bigint) is 'Close the previous slot of a ring';


create or replace function pgq._ring_truncate(r pgq.ring, g bigint)
returns text language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._ring_truncate(2)
--
--      Truncate the oldest generation that holds rows, if nobody needs them.
--      v is odd: all generations before g are closed.
--
--      Whether it is dead is found out before the lock is tried: each lock
--      attempt stalls replay on standbys.
-- Returns:
--      truncated, blocked, waiting, or null when nothing holds rows
-- ----------------------------------------------------------------------
declare
    oldest  bigint;
    slot    text;
    jobs    boolean;
begin
    -- Generations below 0 never were, but a refused insert can have left rows in their slots.
    select min(old) into oldest
        from generate_series(g - r.ring_slots + 1, g - 1) old
        where pgq._slot_bytes(pgq._slot(r.ring_name, r.ring_slots, old + r.ring_slots)) > 0;
    if oldest is null then
        return null;
    end if;

    slot := pgq._slot(r.ring_name, r.ring_slots, oldest + r.ring_slots);
    jobs := r.ring_kind in ('event', 'held') and pgq._has_jobs(r.ring_queue);
    if r.ring_kind = 'event' then
        if not pgq._events_dead(r.ring_queue, oldest)
           or (jobs and pgq._count_live_jobs(r.ring_queue, slot) > (select held_limit from pgq.job_queue where queue_id = r.ring_queue)) then
            return 'waiting';
        end if;
    elsif not pgq._mostly_dead(r, slot) then
        return 'waiting';
    end if;
    -- claims read these slots: with the locks of their lanes none is in the way, and none misses a job on the move
    if (jobs and not pgq._lock_lanes(r.ring_queue))
       or not pgq._try_lock(slot, 'access exclusive', r.ring_kind = 'key') then
        return pgq._count_skip(r.ring_name);
    end if;

    -- from here on, in statements whose snapshots come after the lock
    if r.ring_kind = 'event' then
        if jobs then
            perform pgq._hold_jobs(r.ring_queue, slot);
        end if;
        perform pgq._raise_floor(r.ring_queue, oldest + 1);
    else
        perform pgq._evacuate(r, slot, g);
    end if;
    execute format('truncate pgq.%I', slot);
    return 'truncated';
end;
$$;
comment on function pgq._ring_truncate(pgq.ring, bigint) is 'Truncate the oldest dead slot of a ring';


create or replace function pgq._ring_switch(r pgq.ring, v bigint, i_force boolean)
returns text language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._ring_switch(3)
--
--      Make the next slot current, if it is empty and the current one holds
--      anything and is large or old enough.
--
--      Not in the transaction that truncated the next slot, or evacuated the
--      previous one: setval outlives a rollback, TRUNCATE does not, and a slot
--      full of old cursors would be the current one, or left behind it.
--
--      A stalled writer may still have rows in the next slot that were or
--      will be refused; they are dead and do not matter.
-- Returns:
--      switched, or null when it is not time or not possible
-- ----------------------------------------------------------------------
declare
    g         bigint := v / 2;
    previous  text := pgq._slot(r.ring_name, r.ring_slots, g - 1);
    next      text := pgq._slot(r.ring_name, r.ring_slots, g + 1);
    bytes     bigint := pgq._slot_bytes(pgq._slot(r.ring_name, r.ring_slots, g));
begin
    if bytes = 0 or pgq._slot_bytes(next) > 0 or not (i_force or pgq._switch_due(r, bytes)) then
        return null;
    end if;
    if pgq._holds_lock(next, 'AccessExclusiveLock') or pgq._holds_lock(previous, 'AccessExclusiveLock') then
        return null;
    end if;
    if r.ring_kind = 'key' and not pgq._leave_key_slot(r, g) then
        return pgq._count_skip(r.ring_name);
    end if;
    perform setval(format('pgq.%I', r.ring_name || '_phase')::regclass, v + 1),
            pgq._note_switch(r.ring_name);
    return 'switched';
end;
$$;
comment on function pgq._ring_switch(pgq.ring, bigint, boolean) is 'Make the next slot of a ring current';


create or replace function pgq._leave_key_slot(r pgq.ring, g bigint)
returns boolean language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._leave_key_slot(2)
--
--      Let no writer be in the current slot of the key ring while the ring leaves it: whether
--      a key is taken is decided by the unique index of one slot (63_keys.sql). The only
--      ring that has no late writers.
-- Returns:
--      false when somebody is writing keys
-- ----------------------------------------------------------------------
declare
    slot  text := pgq._slot(r.ring_name, r.ring_slots, g);
begin
    if pgq._holds_lock(slot, 'RowExclusiveLock') or not pgq._try_lock(slot, 'share row exclusive', true) then
        return false;
    end if;
    perform pgq._note_move(r.ring_name);
    return true;
end;
$$;
comment on function pgq._leave_key_slot(pgq.ring, bigint) is 'Let no writer be in the current slot of the key ring';


create or replace function pgq._note_move(i_ring text)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._note_move(1)
--
--      Remember that this transaction moves rows of a ring, for snapshots that are
--      older (_require_fresh). A sequence: it must be seen by them. If this transaction
--      fails, its id is soon seen as over, too.
-- ----------------------------------------------------------------------
begin
    perform setval(format('pgq.%I', i_ring || '_moved')::regclass, pg_current_xact_id()::text::bigint);
end;
$$;
comment on function pgq._note_move(text) is 'Remember that this transaction moves rows of a ring';


create or replace function pgq._switch_due(r pgq.ring, i_bytes bigint)
returns boolean language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._switch_due(2)
--
--      Is the current slot, of i_bytes, large or old enough to switch?
--
--      A TRUNCATE leaves about five dead rows in pg_class. While somebody
--      pins the xmin horizon vacuum cannot remove them, so the more there
--      are, the larger a slot must be: at 1,000 dead rows twice as large.
--      A period of 0 asks for a switch at every call and gets it. A global
--      ring that has hardly grown is not worth copying for its age.
-- ----------------------------------------------------------------------
declare
    period  interval := r.ring_period;
    thrift  float8 := 1 + coalesce(pg_stat_get_dead_tuples('pg_catalog.pg_class'::regclass), 0) / 1000.0;
begin
    if r.ring_kind = 'event' then
        select queue_rotation_period into period from pgq.queue where queue_id = r.ring_queue;
        if period is null then
            return false;
        end if;
    elsif i_bytes < 131072 then
        return false;
    end if;
    return i_bytes >= r.ring_min_bytes * thrift
        or clock_timestamp() >= pgq._switched_at(r.ring_name) + period * thrift;
end;
$$;
comment on function pgq._switch_due(pgq.ring, bigint) is 'Is the current slot large or old enough to switch';


create or replace function pgq._ring_wants_step(r pgq.ring)
returns boolean language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._ring_wants_step(1)
--
--      Could a step do something now? Looks at sizes and the phase only,
--      takes no lock.
-- ----------------------------------------------------------------------
declare
    v       bigint := pgq._phase(r.ring_name);
    filled  int4;
    bytes   bigint := pgq._slot_bytes(pgq._slot(r.ring_name, r.ring_slots, v / 2));
begin
    select count(*) into filled from generate_series(0, r.ring_slots - 1) nr
        where nr <> v / 2 % r.ring_slots
          and pgq._slot_bytes(r.ring_name || '_' || nr) > 0;
    return v % 2 = 0 or filled > 0 or (bytes > 0 and pgq._switch_due(r, bytes));
end;
$$;
comment on function pgq._ring_wants_step(pgq.ring) is 'Could a maintenance step of this ring do something now';


create or replace function pgq._try_lock(i_slot text, i_mode text, i_wait boolean default false)
returns boolean language plpgsql set lock_timeout = '50ms' as $$
-- ----------------------------------------------------------------------
-- Function: pgq._try_lock(3)
--
--      Lock a slot until the end of the transaction, or say at once that it
--      is not to be had.
--
-- Parameters:
--      i_slot  - table in schema pgq
--      i_mode  - 'share', 'share row exclusive' or 'access exclusive'
--      i_wait  - wait for 50 ms: for keys, where steady short writers would leave no moment
-- ----------------------------------------------------------------------
begin
    execute format('lock table only pgq.%I in %s mode%s', i_slot, i_mode, case when i_wait then '' else ' nowait' end);
    return true;
exception
    when lock_not_available then
        return false;
end;
$$;
comment on function pgq._try_lock(text, text, boolean) is 'Lock a slot without waiting, or hardly';


create or replace function pgq._holds_lock(i_slot text, i_mode text)
returns boolean language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._holds_lock(2)
--
--      Has this very transaction locked a slot in a mode already? Locks never
--      conflict with those of the same transaction, so _try_lock cannot tell.
-- ----------------------------------------------------------------------
begin
    return exists (select from pg_locks
                   where pid = pg_backend_pid() and mode = i_mode and granted
                     and relation = format('pgq.%I', i_slot)::regclass);
end;
$$;
comment on function pgq._holds_lock(text, text) is 'Has this transaction locked a slot in a mode already';


create or replace function pgq._count_skip(i_ring text)
returns text language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._count_skip(1)
--
--      Count that a step found its slot locked.
-- Returns:
--      'blocked'
-- ----------------------------------------------------------------------
begin
    perform setval(s, coalesce(pg_sequence_last_value(s), 0) + 1)
        from (select format('pgq.%I', i_ring || '_skipped')::regclass as s) seq;
    return 'blocked';
end;
$$;
comment on function pgq._count_skip(text) is 'Count a step that found its slot locked';
