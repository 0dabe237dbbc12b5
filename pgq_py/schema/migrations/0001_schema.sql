-- The schema, and the ledger of what has been applied to it.
--
-- An operator need do nothing beforehand. The owner of the schema owns every
-- object in it and every SECURITY DEFINER function runs with its rights, so
-- install as a role that is neither a superuser nor used by applications.

create schema pgq;
comment on schema pgq is 'pgq-py: event log and job queue';

-- ---------------------------------------------------------------------------
-- pgq.migration: one row per applied migration, and one (version 0) for the
-- re-applied part: functions, rings and grants.
--
--   version     number at the head of the file's name; 0 for the re-applied part
--   name        the file's name without number and ending
--   checksum    sha256 of the text, in hex; a changed migration is refused
--   applied_at  when
--   applied_by  by which role
-- ---------------------------------------------------------------------------
create table pgq.migration (
    version     int4        not null primary key,
    name        text        not null,
    checksum    text        not null,
    applied_at  timestamptz not null default clock_timestamp(),
    applied_by  text        not null default current_user
);
comment on table pgq.migration is 'Ledger of applied migrations';
