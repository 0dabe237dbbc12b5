-- Consumers that share the batches of one position, and rings of optional parts.
--
-- An operator need do nothing beforehand.

-- ---------------------------------------------------------------------------
-- pgq.registration
--
--   sub_main      registration whose batches this one gets a share of: it is a
--                 subconsumer, and has no position of its own; null: it has. Its
--                 cursor is that of the batch it has open. With none open, lo is
--                 9223372036854775807: it needs no event.
-- ---------------------------------------------------------------------------
alter table pgq.registration add column sub_main int4;

-- A kind is the name of what is live in a ring: of the function _live_<kind>s. Which
-- there are is no longer fixed, since optional parts declare rings of their own.
alter table pgq.ring drop constraint ring_kind_check;
alter table pgq.ring add constraint ring_kind_check check (ring_kind ~ '^[a-z]+$');
