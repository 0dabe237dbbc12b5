-- Taking and finishing the batches of a cooperative consumer.
--
-- Locks, in this order: the event ring's (registering; taking over, without waiting for
-- it), the main consumer's registration (whoever hands out a batch), the subconsumer's own
-- (whoever moves it).

create or replace function pgq_coop._dead(i_main int4, i_mine int4, i_interval interval)
returns pgq.registration language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq_coop._dead(3)
--
--      A subconsumer of i_main, other than i_mine, that has neither taken nor
--      finished anything for i_interval: one with a batch open, if there is;
--      or null.
-- ----------------------------------------------------------------------
declare
    r    pgq.registration;
    c    pgq.cursor_ring;
    one  pgq.registration;
begin
    for r in select * from pgq.registration where sub_main = i_main and sub_id <> i_mine order by sub_id loop
        c := pgq._cursor(r.sub_id);
        if c.at < clock_timestamp() - i_interval then
            one := r;
            exit when c.batch_id is not null;
        end if;
    end loop;
    return one;
end;
$$;
comment on function pgq_coop._dead(int4, int4, interval) is 'A subconsumer that was not heard of for so long';


create or replace function pgq_coop._take_over(c pgq.cursor_ring, i_main int4, i_interval interval)
returns bigint language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq_coop._take_over(3)
--
--      Remove a dead subconsumer and give its open batch, under the same id, to
--      the one whose state c is. The caller has the locks of the event ring (a
--      truncation must not look at the one after, and at the other before), of
--      the main consumer and of the taker.
--
--      Not one whose registration is locked: its transaction is open, so it
--      is slow, not dead.
-- Returns:
--      the batch, or null when nobody is dead or the dead had none
-- ----------------------------------------------------------------------
declare
    dead  pgq.registration := pgq_coop._dead(i_main, c.sub_id, i_interval);
    d     pgq.cursor_ring;
begin
    perform from pgq.registration where sub_id = dead.sub_id for update skip locked;
    if not found then
        return null;
    end if;
    d := pgq._cursor(dead.sub_id);
    if d.at >= clock_timestamp() - i_interval then
        return null;
    end if;
    if d.batch_id is not null then
        -- read the ticks: their slot is then not evacuated before this is committed
        perform pgq._cursor_tick(dead.sub_queue, d.last_tick), pgq._cursor_tick(dead.sub_queue, d.next_tick);
        d.sub_id := c.sub_id;
        d.pos := greatest(c.pos, d.pos);  -- see _batch_registration
        d.handed := null;
        perform pgq._move_cursor(d);
    end if;
    perform pgq._remove_registration(dead, 'its subconsumer died');
    return d.batch_id;
end;
$$;
comment on function pgq_coop._take_over(pgq.cursor_ring, int4, interval) is 'Take over the batch of a dead subconsumer';


create or replace function pgq_coop._hand_out(
    r pgq.registration, c pgq.cursor_ring, m pgq.cursor_ring,
    i_min_lag interval, i_min_count int4, i_min_interval interval)
returns bigint language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq_coop._hand_out(6)
--
--      Give the main consumer's next window to a subconsumer, and let the main
--      consumer go on behind it. The caller has locked both.
--
-- Parameters:
--      r        - the subconsumer
--      c, m     - its state and the main consumer's
--      i_min_*  - see pgq.next_batch_custom
-- Returns:
--      the batch, or null when there is nothing (yet)
-- ----------------------------------------------------------------------
declare
    prev  pgq.tick_ring := pgq._cursor_tick(r.sub_queue, m.last_tick);
    cur   pgq.tick_ring := pgq._choose_tick(r.sub_queue, prev, null, i_min_lag, i_min_count, i_min_interval);
begin
    if cur.tick_id is null then
        return null;
    end if;
    c.last_tick := prev.tick_id;
    c.next_tick := cur.tick_id;
    c.lo := prev.lo;
    c.batch_id := nextval('pgq.batch_id_seq');
    perform pgq._move_cursor(c), pgq._place_cursor(m, cur);
    return c.batch_id;
end;
$$;
comment on function pgq_coop._hand_out(pgq.registration, pgq.cursor_ring, pgq.cursor_ring, interval, int4, interval) is
'Give the next window of a main consumer to a subconsumer';


create or replace function pgq_coop._require_free(m pgq.cursor_ring)
returns void language plpgsql as $$
-- PQ009 when the main consumer, whose state m is, has a batch of its own open
begin
    if m.batch_id is not null then
        raise exception 'main consumer has batch open?'
            using errcode = 'PQ009', detail = format('batch: %s', m.batch_id),
                  hint = 'Somebody uses it with pgq.next_batch() or receive(): finish that batch, and use subconsumers alone.';
    end if;
end;
$$;
comment on function pgq_coop._require_free(pgq.cursor_ring) is 'Refuse a main consumer with a batch of its own';


create or replace function pgq_coop.next_batch_custom(
    i_queue_name text, i_consumer_name text, i_subconsumer_name text,
    i_min_lag interval, i_min_count int4, i_min_interval interval, i_dead_interval interval)
returns bigint language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq_coop.next_batch_custom(7)
--
--      Take the next batch of a cooperative consumer, or get the open one
--      again, which also says that one is alive. Registers what is not
--      registered yet.
--
--      A poll that finds nothing takes no lock and writes nothing.
-- Parameters:
--      i_min_lag        - only events at least this old
--      i_min_count      - at least about this many events
--      i_min_interval   - or covering at least this much time
--      i_dead_interval  - take over the batch of a subconsumer that was not
--                         heard of for so long, and remove it; null: of none
-- Returns:
--      the batch, or null when there is nothing (yet)
-- Errors:
--      PQ001, PQ006 a name, PQ007, 42501
--      PQ009  - the main consumer has a batch of its own open
-- Tables touched:
--      pgq.registration (locked), pgq.cursor_ring (insert)
-- ----------------------------------------------------------------------
declare
    q      pgq.queue := pgq._queue(i_queue_name, 'Event queue not created yet');
    r      pgq.registration;
    m      pgq.cursor_ring;
    c      pgq.cursor_ring;
    helps  boolean;
    taken  bigint;
begin
    perform pgq._require_read_committed('next_batch');
    perform pgq._require_consume(q.queue_id, i_consumer_name);
    loop
        r := pgq_coop._find(q.queue_id, i_consumer_name, i_subconsumer_name);
        exit when r.sub_id is not null;
        perform pgq_coop.register_subconsumer(i_queue_name, i_consumer_name, i_subconsumer_name);
    end loop;
    m := pgq._cursor(r.sub_main);
    c := pgq._cursor(r.sub_id);
    perform pgq_coop._require_free(m);
    helps := c.batch_id is null and i_dead_interval is not null
             and (pgq_coop._dead(r.sub_main, r.sub_id, i_dead_interval)).sub_id is not null;
    if c.batch_id is null and not helps and (pgq._newest_tick(q.queue_id)).tick_id = m.last_tick then
        return null;
    end if;
    if helps then
        -- not waiting: this transaction may have a batch, and so the main consumer, from an earlier call
        perform from pgq.ring where ring_name = 'event_' || q.queue_id for update skip locked;
        helps := found;
    end if;
    if not (pgq._lock_registration(r.sub_main) and pgq._lock_registration(r.sub_id)) then
        return null;  -- taken for dead just now, or unregistered; to register it anew here could deadlock
    end if;

    m := pgq._cursor(r.sub_main);
    c := pgq._cursor(r.sub_id);
    perform pgq_coop._require_free(m);
    if c.batch_id is not null then
        perform pgq._move_cursor(c);
        return c.batch_id;
    end if;
    if helps then
        taken := pgq_coop._take_over(c, r.sub_main, i_dead_interval);
    end if;
    return coalesce(taken, pgq_coop._hand_out(r, c, m, i_min_lag, i_min_count, i_min_interval));
end;
$$;
comment on function pgq_coop.next_batch_custom(text, text, text, interval, int4, interval, interval) is
'Take the next batch of a cooperative consumer, with a least age, size or span of time, or that of a dead subconsumer. Null: nothing.';


create or replace function pgq_coop.next_batch_custom(
    i_queue_name text, i_consumer_name text, i_subconsumer_name text,
    i_min_lag interval, i_min_count int4, i_min_interval interval)
returns bigint language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- as next_batch_custom(7), taking over nobody's batch
begin
    return pgq_coop.next_batch_custom(i_queue_name, i_consumer_name, i_subconsumer_name,
                                      i_min_lag, i_min_count, i_min_interval, null);
end;
$$;
comment on function pgq_coop.next_batch_custom(text, text, text, interval, int4, interval) is
'Take the next batch of a cooperative consumer, with a least age, size or span of time. Null: nothing.';


create or replace function pgq_coop.next_batch(
    i_queue_name text, i_consumer_name text, i_subconsumer_name text, i_dead_interval interval)
returns bigint language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- as next_batch_custom(7), without conditions
begin
    return pgq_coop.next_batch_custom(i_queue_name, i_consumer_name, i_subconsumer_name, null, null, null, i_dead_interval);
end;
$$;
comment on function pgq_coop.next_batch(text, text, text, interval) is
'Take the next batch of a cooperative consumer, or that of a subconsumer not heard of for so long. Null: nothing.';


create or replace function pgq_coop.next_batch(i_queue_name text, i_consumer_name text, i_subconsumer_name text)
returns bigint language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- as next_batch_custom(7), without conditions, taking over nobody's batch
begin
    return pgq_coop.next_batch_custom(i_queue_name, i_consumer_name, i_subconsumer_name, null, null, null, null);
end;
$$;
comment on function pgq_coop.next_batch(text, text, text) is
'Take the next batch of a cooperative consumer, or get the open one again. Null: nothing.';


create or replace function pgq_coop.finish_batch(i_batch_id bigint)
returns integer language plpgsql security definer set search_path = pg_catalog, pgq, pg_temp as $$
-- ----------------------------------------------------------------------
-- Function: pgq_coop.finish_batch(1)
--
--      Finish a batch of a subconsumer. In the transaction of its own writes,
--      both are done or neither is.
--
-- Returns:
--      1, or 0 with a warning when the batch is not open (any more)
-- Errors:
--      PQ007, 42501
-- Tables touched:
--      pgq.registration (locked), pgq.cursor_ring (insert)
-- ----------------------------------------------------------------------
declare
    r  pgq.registration;
    c  pgq.cursor_ring;
begin
    perform pgq._require_read_committed('finish_batch');
    r := pgq._batch_registration(i_batch_id);
    perform pgq._require_consume_as(r);
    if r.sub_main is not null and pgq._lock_registration(r.sub_id) then
        c := pgq._cursor(r.sub_id);
        if c.batch_id = i_batch_id then
            perform pgq._place_cursor(c, pgq._cursor_tick(r.sub_queue, c.next_tick));
            return 1;
        end if;
    end if;
    raise warning 'coop_finish_batch: batch % not found', i_batch_id;
    return 0;
end;
$$;
comment on function pgq_coop.finish_batch(bigint) is
'Finish a batch of a subconsumer. Returns 1, or 0 when it is not open.';


create or replace function pgq_coop._set_active()
returns trigger language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq_coop._set_active()
--
--      INSTEAD OF UPDATE trigger of pgq.subscription: sub_active may be set, as
--      in PgQ, to have a subconsumer taken for dead or alive. For the owner.
-- Errors:
--      PQ006  - another column is changed
-- ----------------------------------------------------------------------
declare
    c  pgq.cursor_ring;
begin
    if new is distinct from old and (new.sub_id, new.sub_queue, new.sub_consumer, new.sub_last_tick, new.sub_batch, new.sub_next_tick)
       is distinct from (old.sub_id, old.sub_queue, old.sub_consumer, old.sub_last_tick, old.sub_batch, old.sub_next_tick) then
        raise exception 'of pgq.subscription only sub_active can be changed'
            using errcode = 'PQ006', hint = 'Positions are moved with pgq.seek(queue, consumer, ...).';
    end if;
    perform pgq._lock_registration(old.sub_id);
    c := pgq._cursor(old.sub_id);
    c.pos := c.pos + 1;
    c.at := new.sub_active;
    execute format('insert into pgq.%I values ($1.*)', pgq._slot('cursor_ring', 3, pgq._phase('cursor_ring') / 2)) using c;
    return new;
end;
$$;
comment on function pgq_coop._set_active() is 'Trigger: let sub_active of pgq.subscription be set';

create or replace trigger set_active instead of update on pgq.subscription
    for each row execute function pgq_coop._set_active();
