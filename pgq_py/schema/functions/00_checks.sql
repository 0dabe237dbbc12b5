-- Checks at the door, shared by the API functions.

create or replace function pgq._require_read_committed(i_function text)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._require_read_committed(1)
--
--      Refuse to go on unless the transaction is READ COMMITTED.
--
--      Row locks on rows that nobody modifies do not protect a REPEATABLE
--      READ transaction: it would go on reading the state of its snapshot
--      and hand out a batch twice, or truncate what is still needed.
--
-- Parameters:
--      i_function  - name for the message
-- Errors:
--      PQ007       - any other isolation level
-- ----------------------------------------------------------------------
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception '% needs isolation level READ COMMITTED, the transaction is %',
                i_function, upper(current_setting('transaction_isolation'))
            using errcode = 'PQ007',
                  hint = 'Call it in a READ COMMITTED transaction; producing works at every level.';
    end if;
end;
$$;
comment on function pgq._require_read_committed(text) is 'Refuse any isolation level but READ COMMITTED';


create or replace function pgq._raise_missing(i_message text)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._raise_missing(1)
--
--      Report that a row which must be there is not found.
--
--      Above READ COMMITTED that may be the transaction's snapshot: TRUNCATE
--      is not MVCC, so of a row that was moved since it shows neither place.
-- Errors:
--      40001  - the snapshot may be too old
--      PQ012  - it is not
-- ----------------------------------------------------------------------
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'rows of schema pgq were moved after the snapshot of this transaction was taken'
            using errcode = '40001', detail = i_message, hint = 'Repeat the transaction; nothing was changed.';
    end if;
    raise exception '%', i_message using errcode = 'PQ012';
end;
$$;
comment on function pgq._raise_missing(text) is 'Report that a row which must be there is not found';


create or replace function pgq._queue(i_queue_name text, i_message text default null)
returns pgq.queue language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._queue(2)
--
--      Look up a queue by name.
--
-- Parameters:
--      i_queue_name  - name of the queue
--      i_message     - error text to use instead of the default
-- Errors:
--      PQ001         - no such queue
-- ----------------------------------------------------------------------
declare
    q  pgq.queue;
begin
    select * into q from pgq.queue where queue_name = i_queue_name;
    if not found then
        raise exception '%', coalesce(i_message, 'No such queue')
            using errcode = 'PQ001',
                  detail = format('queue: %s', coalesce(quote_literal(i_queue_name), 'NULL')),
                  hint = 'Create it with pgq.create_queue(name), or see the existing ones in pgq.get_queue_info().';
    end if;
    return q;
end;
$$;
comment on function pgq._queue(text, text) is 'Look up a queue by name or raise';


create or replace function pgq._check_name(i_what text, i_name text)
returns void language plpgsql as $$
-- ----------------------------------------------------------------------
-- Function: pgq._check_name(2)
--
--      Check a queue's or a consumer's name before it is stored.
--
-- Parameters:
--      i_what  - 'queue' or 'consumer', for the message
--      i_name  - the name: 1 to 128 characters, no control characters
-- Errors:
--      PQ006   - anything else
-- ----------------------------------------------------------------------
begin
    if i_name is null then
        raise exception 'Invalid NULL value' using errcode = 'PQ006',
            hint = format('Give the %s a name of 1 to 128 characters.', i_what);
    end if;
    if length(i_name) not between 1 and 128 or i_name ~ '[[:cntrl:]]' or i_name <> btrim(i_name) then
        raise exception 'invalid % name: %', i_what, quote_literal(i_name)
            using errcode = 'PQ006',
                  hint = 'A name has 1 to 128 characters, no control characters and no space at its ends.';
    end if;
end;
$$;
comment on function pgq._check_name(text, text) is 'Check the name of a queue or consumer';
