-- A limit of events per transaction, and what change triggers pass around.
--
-- An operator need do nothing beforehand.

-- queue_per_tx_limit: one transaction may put at most so many events into the queue; null: any number
alter table pgq.queue add column queue_per_tx_limit int4;
comment on column pgq.queue.queue_per_tx_limit is 'Events that one transaction may put into the queue; null: any number';

-- ---------------------------------------------------------------------------
-- pgq.trigger_plan: what a change trigger is to do, made of its arguments and its table.
-- In its statements $1 is a row of the table; in differing it is the old row, and $2 the new one.
--
--   op            INSERT, UPDATE, DELETE, TRUNCATE
--   queue         where events go
--   table_name    schema.table, unquoted
--   path          schema, table
--   pkey          the key's columns as one text, as given or a,b
--   keys          the same, one by one
--   ignored       columns that do not matter; null: the argument was not given
--   skip          the operation itself is not to be done
--   backup        the old row goes into ev_extra2 of an update
--   columns       all columns but magic ones, in their order
--   magic         columns _pgq_ev_*, which fill the field they are named after
--   texts         selects the values of columns as PostgreSQL prints them, text[]
--   encoded       selects the row, without ignored columns, in the trigger's encoding (a backup's, for sqltriga)
--   differing     selects the names of the columns that differ, text[]
--   field_names   fields of the event that are SQL expressions of the row
--   field_values  selects their values, text[]
--   condition     selects whether there is to be an event, and the expression's type
-- ---------------------------------------------------------------------------
create type pgq.trigger_plan as (
    op            text,
    queue         text,
    table_name    text,
    path          text[],
    pkey          text,
    keys          text[],
    ignored       text[],
    skip          boolean,
    backup        boolean,
    columns       text[],
    magic         text[],
    texts         text,
    encoded       text,
    differing     text,
    field_names   text[],
    field_values  text,
    condition     text
);
comment on type pgq.trigger_plan is 'What a change trigger is to do, made of its arguments and its table';
