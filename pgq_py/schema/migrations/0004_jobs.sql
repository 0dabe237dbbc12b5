-- The job facade: competing workers on a queue's log.
--
-- An operator need do nothing beforehand. Existing queues stay as they are; a queue is
-- a job queue from its creation on.

-- ---------------------------------------------------------------------------
-- pgq.job_queue: queues whose events are jobs, and the settings of their workers.
--
--   queue_id         queue
--   lease            a worker that is silent for so long is dead
--   max_losses       a job whose worker dies so often while it runs nothing else is a dead letter
--   held_limit       jobs of a slot that rotation carries along; more are left where they are, and the slot waits
--   archive          finished jobs are copied into pgq.job_archive
-- ---------------------------------------------------------------------------
create table pgq.job_queue (
    queue_id    int4     not null primary key,
    lease       interval not null default interval '60 seconds',
    max_losses  int4     not null default 3,
    held_limit  int4     not null default 20000,
    archive     boolean  not null default false,
    constraint job_queue_lease_check check (lease between interval '1 second' and interval '1 day'),
    constraint job_queue_max_losses_check check (max_losses between 1 and 100),
    constraint job_queue_held_limit_check check (held_limit between 0 and 1000000)
);
comment on table pgq.job_queue is 'Queues whose events are jobs, and the settings of their workers';

-- ---------------------------------------------------------------------------
-- pgq.lane: the priorities of a job queue. Where each lane stands is in the claim ring;
-- this row never changes and is what claims lock.
--
--   queue_id  queue
--   lane      priority, 1 to 32000, higher first; 0: the solo lane, of jobs that lost a worker
-- ---------------------------------------------------------------------------
create table pgq.lane (
    queue_id  int4 not null,
    lane      int2 not null,
    primary key (queue_id, lane),
    constraint lane_check check (lane between 0 and 32000)
);
comment on table pgq.lane is 'Priorities of job queues';

-- ---------------------------------------------------------------------------
-- pgq.worker: incarnations of workers that send heartbeats.
--
--   worker      host:pid:random
--   started_at  first heartbeat
--   lease       silent for so long, it is dead
--   info        what it says of itself: queues, slots, versions
--   ended_at    when it was declared dead, or said that it stops
--   lost        it was declared dead
-- ---------------------------------------------------------------------------
create table pgq.worker (
    worker      text        not null primary key,
    started_at  timestamptz not null default clock_timestamp(),
    lease       interval    not null,
    info        jsonb       not null default '{}',
    ended_at    timestamptz,
    lost        boolean     not null default false,
    constraint worker_check check (length(worker) between 1 and 200),
    constraint worker_lease_check check (lease between interval '1 second' and interval '1 day')
);
comment on table pgq.worker is 'Incarnations of workers that send heartbeats';

-- ---------------------------------------------------------------------------
-- pgq.job_template: the shape of a job queue's event tables, an event with a lane. Holds
-- no rows itself. Not to be published by logical replication: slots have no primary key.
--
--   ev_id       the job's id; retries keep it
--   ev_owner    null: first run, fan-out consumers see it; 0: a retry, for workers alone
--   ev_retry    failed attempts so far; null: none
--   ev_type     kind of job
--   ev_data     arguments, JSON
--   ev_extra1   options, a JSON object: max_attempts, losses, timeout, tags, traceparent, ..
--   ev_extra2   idempotency key while the job is active
--   ev_lane     priority
-- ---------------------------------------------------------------------------
create table pgq.job_template (
    ev_lane  int2 not null default 100
) inherits (pgq.event_template);
create index on pgq.job_template (ev_txid);
create index on pgq.job_template (ev_lane, ev_txid, ev_id);
create index on pgq.job_template (ev_id);
comment on table pgq.job_template is 'Parent of the event tables of all job queues';

-- ---------------------------------------------------------------------------
-- pgq.held_template: the shape of the held rings: unfinished jobs that rotation took out of
-- a dying slot, with their lane, transaction and id. Fan-out consumers never read them.
-- ---------------------------------------------------------------------------
create table pgq.held_template (
    like pgq.job_template including defaults,
    ev_queue  int4 not null
);
create index on pgq.held_template (ev_lane, ev_txid, ev_id);
create index on pgq.held_template (ev_id);
comment on table pgq.held_template is 'Parent of the held rings: unfinished jobs that rotation carries along';

-- ---------------------------------------------------------------------------
-- pgq.claim_ring: what workers did. All rows of a claim are in one slot.
--
--   kind     q  the claim itself: cursor of its lane, lease, and list of jobs (ev_id is -1)
--            f  a finish: of the job ev_id, or of all that are left (ev_id is 0)
--            x  somebody asks to cancel the job     p  progress of the job (nth rises)
--            r  result of the job                   e  the lease begins anew (nth rises)
--            t  a job that was cancelled before it was claimed (claim_id is -queue_id)
--            s  totals of a queue (claim_id is -queue_id, nth rises)
--   claim_id number of the claim, rising within a lane
--   token    random: after a crash a number may be given out again, and numbers alone would
--            let a zombie finish another's jobs
--   base_tick, top_tick   the window in which the lane stands: events of (base, top]
--   to_txid, to_id        and its position in it, in order of (ev_txid, ev_id)
--   from_txid, from_id    first job of the claim
--   lo, hi                slot generations that the window's events are in
--   lows, highs           what is ahead in the window, as ranges of transactions (null: to be
--                         computed from the ticks)
--   seen                  newest tick then: no lane above this one had work up to it, nor did lane 0
--   exhausted             nothing is left of the window behind the position
--   tombs                 cancelled jobs may be ahead (kind t)
--   keyed                 one of the jobs has an idempotency key
--   ev_ids, worker, beats the jobs (of claims alone); who has them; whether that worker sends heartbeats
--   txid, at              the writing transaction, and when
--   outcome, error, data, n  see kind; n: jobs that a finish is of (of finishes alone)
-- ---------------------------------------------------------------------------
create table pgq.claim_ring (
    claim_id   int8        not null,
    ev_id      int8        not null,
    kind       "char"      not null,
    nth        int8        not null default 0,
    queue_id   int4        not null,
    lane       int2,
    token      int8,
    base_tick  int8,
    top_tick   int8,
    from_txid  xid8,
    from_id    int8,
    to_txid    xid8,
    to_id      int8,
    lo         int8,
    hi         int8,
    lows       xid8[],
    highs      xid8[],
    seen       int8,
    exhausted  boolean,
    tombs      boolean,
    keyed      boolean,
    beats      boolean,
    worker     text,
    ev_ids     int8[],
    txid       xid8        not null default pg_current_xact_id(),
    at         timestamptz not null default clock_timestamp(),
    outcome    text,
    error      text,
    data       jsonb,
    n          int4,
    primary key (claim_id, ev_id, kind, nth)
);
-- No condition of a partial index follows from that of a look-up by claim_id, or a plan made on an
-- empty slot, where all indexes cost the same, may read one of these from end to end ever after.
create index on pgq.claim_ring (queue_id, lane, claim_id) where ev_ids is not null;
create index on pgq.claim_ring (queue_id, lane, to_txid, to_id) where ev_ids is not null;
create index on pgq.claim_ring (worker, claim_id) where beats;
create index on pgq.claim_ring (claim_id) where not beats;
create index on pgq.claim_ring (queue_id, txid) where n is not null;
comment on table pgq.claim_ring is 'Parent of the claim ring: claims and what became of their jobs';

create sequence pgq.claim_id_seq;
comment on sequence pgq.claim_id_seq is 'Numbers of claims';

-- ---------------------------------------------------------------------------
-- pgq.key_ring: idempotency keys, as chains.
--
--   scope       whose key: queue:<id>, cron:<id>, or what once() was given
--   key         the key
--   prev_ev_id  holder before this one, 0 for none: two rows cannot follow the same one. Of a
--               release: minus the holder that lets go
--   ev_id       number of the holder: the job's id, but for a job that takes its key again (its
--               option "holder"); of a schedule, its due time in us since 1970
--   job_id      the job
--   until       the key is taken until then, whatever the holder does; null: until released
-- ---------------------------------------------------------------------------
create table pgq.key_ring (
    scope       text        not null,
    key         text        not null,
    prev_ev_id  int8        not null,
    ev_id       int8        not null,
    job_id      int8        not null,
    until       timestamptz,
    primary key (scope, key, prev_ev_id)
);
comment on table pgq.key_ring is 'Parent of the ring of idempotency keys';

-- ---------------------------------------------------------------------------
-- pgq.beat_ring: heartbeats.
--
--   worker  incarnation; '' : a run of recover(), which may only call a worker dead while it
--           was there itself
--   at      when
-- ---------------------------------------------------------------------------
create table pgq.beat_ring (
    worker  text        not null,
    at      timestamptz not null,
    primary key (worker, at)
);
comment on table pgq.beat_ring is 'Parent of the ring of heartbeats';

-- ---------------------------------------------------------------------------
-- pgq.schedule: recurring jobs. When each was last due is in the key ring.
--
--   schedule_id    internal id
--   schedule_name  unique
--   queue_id, ev_type, ev_data, priority, options   the job
--   cron, tz       five or six fields, and the time zone they are meant in
--   catch_up       of due times that were missed: none, latest, or all (at most max_catch_up)
--   enabled        false: it rests
--   since          due times count from here
-- ---------------------------------------------------------------------------
create table pgq.schedule (
    schedule_id    int4        not null generated by default as identity primary key,
    schedule_name  text        not null unique,
    queue_id       int4        not null,
    ev_type        text        not null,
    ev_data        jsonb       not null default '{}',
    priority       int4,
    options        jsonb       not null default '{}',
    cron           text        not null,
    tz             text        not null default 'UTC',
    catch_up       text        not null default 'latest',
    max_catch_up   int4        not null default 100,
    enabled        boolean     not null default true,
    since          timestamptz not null default clock_timestamp(),
    constraint schedule_name_check check (length(schedule_name) between 1 and 128),
    constraint schedule_catch_up_check check (catch_up in ('none', 'latest', 'all')),
    constraint schedule_max_catch_up_check check (max_catch_up between 1 and 10000)
);
comment on table pgq.schedule is 'Recurring jobs';

-- ---------------------------------------------------------------------------
-- pgq.job_archive: finished jobs of queues with archive = true; rows are only ever
-- inserted here, when the claim ring rotates. Purge it as you like.
-- ---------------------------------------------------------------------------
create table pgq.job_archive (
    queue_name   text        not null,
    job_id       int8        not null,
    type         text,
    payload      jsonb,
    state        text        not null,
    attempt      int4,
    worker       text,
    created_at   timestamptz,
    claimed_at   timestamptz,
    finished_at  timestamptz not null,
    error        text,
    primary key (queue_name, job_id, finished_at)
);
comment on table pgq.job_archive is 'Finished jobs of queues that keep them';

-- ---------------------------------------------------------------------------
-- pgq.job_status: a job as get_job(), jobs() and the view pgq.job show it.
--
--   state       scheduled, pending, running, retrying, completed, failed, cancelled
--   priority    0: it lost a worker, and runs alone
--   attempt     the one that runs, ran last, or comes next, from 1
--   losses      how many workers died with it
--   run_at      when it is due (scheduled, retrying)
--   claim_id    the last claim that had it
--   cancel_requested  somebody wants the running job to stop
-- ---------------------------------------------------------------------------
create type pgq.job_status as (
    queue_name        text,
    id                bigint,
    type              text,
    state             text,
    priority          int4,
    attempt           int4,
    max_attempts      int4,
    losses            int4,
    key               text,
    created_at        timestamptz,
    run_at            timestamptz,
    claimed_at        timestamptz,
    finished_at       timestamptz,
    worker            text,
    claim_id          bigint,
    cancel_requested  boolean,
    error             text,
    progress          jsonb,
    payload           text,
    options           jsonb
);
comment on type pgq.job_status is 'A job as it is shown';

alter table pgq.delay_template add column ev_lane int2;
alter table pgq.dead_ring add column ev_lane int2;

alter table pgq.ring drop constraint ring_kind_check;
alter table pgq.ring add constraint ring_kind_check
    check (ring_kind in ('event', 'tick', 'cursor', 'delay', 'dead', 'held', 'claim', 'key', 'beat'));
