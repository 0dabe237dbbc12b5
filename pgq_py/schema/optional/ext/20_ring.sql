-- The ring of marks: what is live in it, reading it, appending to it.

create or replace function pgq._live_dones(i_slot text)
returns setof pgq.done_ring language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._live_dones(1)
--
--      The rows of a closed slot of the ring of marks that are still needed:
--      the newest of each consumer and kind, and the marked events of the batch
--      that a consumer is at. A forgotten tick need not be remembered: what it
--      forgets is not in a later slot.
-- ----------------------------------------------------------------------
begin
    return query execute format($q$
        with newest as materialized (
            select distinct on (ec_id, what) ec_id, what, pos, run
            from pgq.done_ring order by ec_id, what, pos desc)
        select d.* from pgq.%I d join newest n using (ec_id, what)
        where (d.pos = n.pos or d.pos >= n.run) and d.done is not null $q$, i_slot);
end;
$$;
comment on function pgq._live_dones(text) is 'Rows of a slot of the ring of marks that are still needed';


create or replace function pgq_ext._newest(i_consumer int4, i_what text)
returns pgq.done_ring language plpgsql set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq_ext._newest(2)
--
--      The newest mark of a consumer and kind, or null.
--
--      The current slot is looked at first: what is found there is the newest.
--      On a miss the whole ring is locked, which waits for an evacuation that
--      is under way and keeps the next one out, and is read in a statement after
--      that: what it does not find is not there.
-- ----------------------------------------------------------------------
declare
    d  pgq.done_ring;
begin
    case pg_sequence_last_value('pgq.done_ring_phase'::regclass) / 2 % 3
        when 0 then
            select * into d from pgq.done_ring_0 where ec_id = i_consumer and what = i_what
                order by ec_id desc, what desc, pos desc limit 1;
        when 1 then
            select * into d from pgq.done_ring_1 where ec_id = i_consumer and what = i_what
                order by ec_id desc, what desc, pos desc limit 1;
        else
            select * into d from pgq.done_ring_2 where ec_id = i_consumer and what = i_what
                order by ec_id desc, what desc, pos desc limit 1;
    end case;
    if d.ec_id is null then
        perform from pgq.done_ring limit 0;
        select * into d from pgq.done_ring where ec_id = i_consumer and what = i_what
            order by ec_id desc, what desc, pos desc limit 1;
    end if;
    return d;
end;
$$;
comment on function pgq_ext._newest(int4, text) is 'Newest mark of a consumer and kind, or null';


create or replace function pgq_ext._marked(d pgq.done_ring, i_event bigint)
returns boolean language plpgsql set enable_seqscan = off set jit = off as $$
-- ----------------------------------------------------------------------
-- Function: pgq_ext._marked(2)
--
--      Is an event of the batch marked whose newest event mark is d?
--
--      If the batch was begun in the current slot, its marks are all there;
--      else see _newest.
-- ----------------------------------------------------------------------
declare
    g  bigint := pg_sequence_last_value('pgq.done_ring_phase'::regclass) / 2;
begin
    if d.run_from = g then
        return case g % 3
            when 0 then exists (select from pgq.done_ring_0 where ec_id = d.ec_id and ev_id = i_event and run = d.run)
            when 1 then exists (select from pgq.done_ring_1 where ec_id = d.ec_id and ev_id = i_event and run = d.run)
            else exists (select from pgq.done_ring_2 where ec_id = d.ec_id and ev_id = i_event and run = d.run) end;
    end if;
    perform from pgq.done_ring limit 0;
    return exists (select from pgq.done_ring where ec_id = d.ec_id and ev_id = i_event and run = d.run);
end;
$$;
comment on function pgq_ext._marked(pgq.done_ring, bigint) is 'Is an event of the batch that a consumer is at marked';


create or replace function pgq_ext._append(d pgq.done_ring)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq_ext._append(1)
--
--      Append a mark. The caller has locked the consumer.
-- ----------------------------------------------------------------------
begin
    case pg_sequence_last_value('pgq.done_ring_phase'::regclass) / 2 % 3
        when 0 then insert into pgq.done_ring_0 values (d.*);
        when 1 then insert into pgq.done_ring_1 values (d.*);
        else insert into pgq.done_ring_2 values (d.*);
    end case;
end;
$$;
comment on function pgq_ext._append(pgq.done_ring) is 'Append a mark';


create or replace function pgq_ext._known(i_consumer text, i_subconsumer text)
returns int4 language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq_ext._known(2)
--
--      Id of a consumer, or null.
-- Errors:
--      PQ007  - isolation level: an old snapshot can miss a mark that rotation
--               carries along, and the batch would be done again
-- ----------------------------------------------------------------------
begin
    perform pgq._require_read_committed('pgq_ext');
    return (select ec_id from pgq_ext.consumer where consumer_id = i_consumer and subconsumer_id = i_subconsumer);
end;
$$;
comment on function pgq_ext._known(text, text) is 'Id of a consumer of remote queues, or null';


create or replace function pgq_ext._locked(i_consumer text, i_subconsumer text)
returns int4 language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq_ext._locked(2)
--
--      Id of a consumer, made if need be, and locked until the end of the
--      transaction.
-- Errors:
--      PQ006 a name is null, PQ007
-- ----------------------------------------------------------------------
declare
    id  int4 := pgq_ext._known(i_consumer, i_subconsumer);
begin
    if id is null then
        if i_consumer is null or i_subconsumer is null then
            raise exception 'Invalid NULL value' using errcode = 'PQ006', hint = 'Give the consumer a name.';
        end if;
        insert into pgq_ext.consumer (consumer_id, subconsumer_id) values (i_consumer, i_subconsumer) on conflict do nothing;
        id := pgq_ext._known(i_consumer, i_subconsumer);
    end if;
    perform from pgq_ext.consumer where ec_id = id for update;
    return id;
end;
$$;
comment on function pgq_ext._locked(text, text) is 'Id of a consumer of remote queues, locked';

do $$
begin
    if not exists (select from pgq.ring where ring_name = 'done_ring') then
        perform pgq._declare_ring('done_ring', 'done', null, 3, interval '1 hour');
    end if;
end;
$$;
