-- Delayed events, retries and dead letters.
--
-- An operator need do nothing beforehand.

-- ---------------------------------------------------------------------------
-- pgq.delay_template: the shape of every delay ring (one per queue); holds no rows
-- itself. A row never changes: it is released when its time has come and is carried
-- along by rotation until then. Not to be published: slots have no primary key.
--
--   due         when it is to be put into the queue
--   cancels     the row is a cancellation: the event with this ev_id and ev_owner is not to come
--   ev_queue    queue
--   ev_*        the event; ev_txid is the delaying transaction, ev_owner the
--               registration that retries it (null: delayed by its producer, for all)
-- ---------------------------------------------------------------------------
create table pgq.delay_template (
    due       timestamptz not null,
    cancels   boolean     not null default false,
    ev_queue  int4        not null,
    ev_id     int8        not null,
    ev_time   timestamptz not null default now(),
    ev_txid   xid8        not null default pg_current_xact_id(),
    ev_owner  int4,
    ev_retry  int4,
    ev_type   text,
    ev_data   text,
    ev_extra1 text,
    ev_extra2 text,
    ev_extra3 text,
    ev_extra4 text
);
create index on pgq.delay_template (due);
create index on pgq.delay_template (ev_txid);
create index on pgq.delay_template (ev_id);
comment on table pgq.delay_template is 'Parent of all delay rings; see the view pgq.delayed_event';

-- ---------------------------------------------------------------------------
-- pgq.dead_ring: events that were given up, until they are replayed or purged.
--
--   dl_id          number of the dead letter
--   done           null: a dead letter; else the row says what became of it: 'replayed' or 'purged'
--   queue_name     where it was: names, for they outlive queue and registration
--   consumer_name  who gave it up
--   reason         why, free text of at most 8 kB
--   attempts       how often it was delivered
--   failed_at      when it was given up
--   ev_*           the event
-- ---------------------------------------------------------------------------
create table pgq.dead_ring (
    dl_id         int8        not null,
    done          text        not null default '',
    queue_name    text        not null,
    consumer_name text        not null,
    reason        text,
    attempts      int4        not null default 0,
    failed_at     timestamptz not null default now(),
    ev_id         int8        not null,
    ev_time       timestamptz,
    ev_retry      int4,
    ev_type       text,
    ev_data       text,
    ev_extra1     text,
    ev_extra2     text,
    ev_extra3     text,
    ev_extra4     text,
    primary key (dl_id, done),
    constraint dead_ring_done_check check (done in ('', 'replayed', 'purged'))
);
create index on pgq.dead_ring (queue_name, consumer_name, ev_id);
comment on table pgq.dead_ring is 'Parent of the ring of dead letters; see the view pgq.dead_letter';

create sequence pgq.dead_letter_id_seq;
comment on sequence pgq.dead_letter_id_seq is 'Numbers of dead letters';

-- ---------------------------------------------------------------------------
-- pgq.retry_policy: how often and how soon failed events come again.
--
--   queue_id       queue
--   consumer_name  consumer; '' for all of the queue that have no row of their own
--   max_retries    after so many the event is a dead letter
--   kind           'fixed' (base), 'exponential' (base, 2 base, 4 base .. up to cap) or 'list' (delays)
--   base, cap      see kind
--   jitter         a delay is longer or shorter by up to this part of it, 0 to 1
--   delays         one per retry; the last goes on
-- ---------------------------------------------------------------------------
create table pgq.retry_policy (
    queue_id       int4       not null,
    consumer_name  text       not null default '',
    max_retries    int4       not null default 5,
    kind           text       not null default 'exponential',
    base           interval   not null default interval '5 seconds',
    cap            interval   not null default interval '1 hour',
    jitter         float8     not null default 0.1,
    delays         interval[],
    primary key (queue_id, consumer_name),
    constraint retry_policy_max_retries_check check (max_retries between 0 and 1000000),
    constraint retry_policy_kind_check check (kind in ('fixed', 'exponential', 'list')),
    constraint retry_policy_base_check check (base >= interval '0' and base <= interval '1 year'),
    constraint retry_policy_cap_check check (cap >= base and cap <= interval '1 year'),
    constraint retry_policy_jitter_check check (jitter between 0 and 1),
    constraint retry_policy_delays_check check (kind <> 'list' or coalesce(cardinality(delays), 0) between 1 and 100)
);
comment on table pgq.retry_policy is 'How often and how soon failed events come again';

alter table pgq.ring drop constraint ring_kind_check;
alter table pgq.ring add constraint ring_kind_check check (ring_kind in ('event', 'tick', 'cursor', 'delay', 'dead'));
alter table pgq.ring drop constraint ring_ring_queue_key;
alter table pgq.ring add constraint ring_queue_key unique (ring_queue, ring_kind);
