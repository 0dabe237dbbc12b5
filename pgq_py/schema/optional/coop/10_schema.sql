-- pgq_coop: several processes share the batches of one consumer, PgQ's way.
--
-- A subconsumer is a registration of its own, "consumer.subconsumer", with the main
-- consumer's in sub_main. The main consumer has the position. When a subconsumer asks
-- for a batch, the main consumer goes on behind it and the window becomes the open batch
-- of the subconsumer's cursor, in one transaction: two rows appended to the cursor ring,
-- nothing updated. Rotation spares the window because the subconsumer's cursor has its
-- lo; without a batch that is infinitely far, so an idle subconsumer keeps no event.
--
-- Batches are finished in any order, so events of one consumer are not handled in theirs.

create schema if not exists pgq_coop;
comment on schema pgq_coop is 'pgq-py: cooperative consumers';
