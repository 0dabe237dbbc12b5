"""Every statement that the client, the ticker and the consumers run, named and described in one place.

Nearly all are calls of database functions, whose reference says the rest. Parameters are psycopg's `%s`; the few
statements with a composed identifier are `psycopg.sql` templates and say so.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from psycopg.sql import SQL

# -- producing ---------------------------------------------------------------------------------------------------------

PRODUCER_FUNCTION: Final = "select pgq.producer_function(%s)"
"""The name of the function generated for a queue: static SQL, hence faster than insert_event(queue, ...)."""

PRODUCE: Final = SQL("select pgq.{}(%s, %s, %s, %s, %s, %s)")
"""One event through that function (template: its name): type, data, four extras; returns the event id."""

PRODUCE_PLAIN: Final = SQL("select pgq.{}(%s, %s, null, null, null, null)")
"""The same without extras, which most events do not have: each parameter takes its time in a pipeline."""

INSERT_EVENTS: Final = (
    "select pgq.insert_events(%s, %b::text[], %b::text[], %b::text[], %b::text[], %b::text[], %b::text[])"
)
"""Queue, and columns of events; in binary, for as text each element of an array is looked through character by
character."""

CURRENT_EVENT_TABLE: Final = "select pgq.current_event_table(%s)"
"""The slot that takes a queue's events now, as 'schema.table'."""

COPY_EVENTS: Final = SQL("copy {} (ev_type, ev_data) from stdin")
"""Many events into that slot (template: the table)."""

COPY_EVENTS_WITH_EXTRAS: Final = SQL(
    "copy {} (ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4) from stdin"
)
"""The same where some of them have extras: empty columns would cost the others a tenth of the rate."""

INSERT_EVENT_AT: Final = (
    "select pgq.insert_event_at(%s, coalesce(%s::timestamptz, clock_timestamp() + %s::interval), "
    "%s, %s, %s, %s, %s, %s)"
)
"""One event for later: queue, time or (when that is null) interval, type, data, four extras; returns its id."""

INSERT_EVENTS_AT: Final = (
    "select count(pgq.insert_event_at(%s, due, t, d, x1, x2, x3, x4)) from (select *, "
    "coalesce(%s::timestamptz, statement_timestamp() + %s::interval) as due from "
    "unnest(%b::text[], %b::text[], %b::text[], %b::text[], %b::text[], %b::text[]) "
    "with ordinality u(t, d, x1, x2, x3, x4, nth) order by nth) events"
)
"""Many events for one time later, each with its own type and extras (arrays); returns how many."""

SEND_BATCH_AT: Final = (
    "select cardinality(pgq.send_batch_at(%s, array[coalesce(%s::timestamptz, statement_timestamp() + %s::interval)], "
    "%s, %b::text[]))"
)
"""The same where all are of one type and have no extras, in a single insert; returns how many."""

CANCEL_EVENT: Final = "select pgq.cancel_event(%s, %s)"
"""Take back a delayed event: 1, or 0 when it does not wait (any more)."""

# -- consuming ---------------------------------------------------------------------------------------------------------

REGISTER_CONSUMER: Final = "select pgq.register_consumer(%s, %s)"
"""1 when new, 0 when it was there; a new one reads what comes from now on."""

REGISTER_CONSUMER_AT: Final = "select pgq.register_consumer_at(%s, %s, %s)"
"""The same from a given tick on; an existing consumer is moved there."""

UNREGISTER_CONSUMER: Final = "select pgq.unregister_consumer(%s, %s)"
"""Drop the consumer and its position."""

OPENER_FUNCTION: Final = "select pgq.opener_function(%s)"
"""Name of the function that opens small batches of one queue."""

OPEN_BATCH: Final = "select * from pgq.{}(%s, %s, %s, %s)"
"""The opener: consumer, about how many events, how many of them to return at once, whether to tick first (NULL: if new
ids were drawn). Events of the open batch, else of the next one, in the columns of `Event`, and the batch in the last
row; no row when none waits."""

PEEK_BATCH: Final = "select e.* from set_config('synchronous_commit', 'off', true), pgq.{}(%s, %s, %s, %s, true) e"
"""The same without waiting for the disk, and a batch of few events is not opened: its id is negative. After a crash of
the server its last tick may be gone, and another have its id: only for who forgets the batch when the connection is
lost."""

ACK_PEEKED: Final = "select pgq.ack_peeked(%s, %s, %s, %s, %s)"
"""Queue, consumer, negative id of a batch, the ticks ahead of it and at its end: 1, it is finished."""

OPEN_PEEKED: Final = "select pgq.open_peeked(%s, %s, %s, %s, %s)"
"""The same: id of the batch, which is open now."""

BATCH_EVENT_SQL: Final = (
    "select pgq.batch_event_sql(%s), set_config('cursor_tuple_fraction', '1', true), "
    "set_config('work_mem', greatest(pg_size_bytes(current_setting('work_mem')), 67108864) / 1024 || 'kB', true)"
)
"""The query of what is left of a batch, and the settings to run it with in this transaction. It will be read to its
end, not to the first tenth, which is what the planner expects of a cursor. And up to 64 MB, events are sorted and
spooled in memory, which saves a fifth of the time for 200,000 of them."""

BATCH_CURSOR: Final = SQL(
    "declare pgq_batch no scroll cursor with hold for "
    "select ev_id, ev_time, ev_txid, ev_retry, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, "
    "ev_extra4 from ({}) e"
)
"""That query as a cursor (template: its text), in the columns of `Event`. The first rows are fetched in the transaction
that declares it; only a cursor that still has rows at the commit is spooled, by the server, and from then on holds
neither a snapshot nor a lock on the slots."""

FETCH_BATCH: Final = SQL("fetch forward {} from pgq_batch")
"""Its next rows (template: how many)."""

CLOSE_BATCH: Final = "close all"
"""Forget the cursor, also one that a rollback has taken already."""

RECEIVE: Final = "select * from pgq.receive(%s, %s, %s)"
"""Queue, consumer, most events: batch_id and the columns of `Event`; the same again until they are acknowledged."""

ACK: Final = "select pgq.ack(%s, %s, %s, %s)"
"""Queue, consumer, batch, event id or null for all: 1 when the batch is finished, 0 when a part remains."""

NACK: Final = "select retried, dead from pgq.nack(%s, %s, %s, %s::bigint[], %s, %s, %s)"
"""Queue, consumer, batch, events, reason, interval or null for the policy's, give up at once: what became of them."""

SEEK_TARGET: Final = "select pgq.seek_target(%s, %s, %s)"
"""The tick that seek would go to for a tick, a time or a word, as text; moves nothing."""

SEEK_TICK: Final = "select pgq.seek(%s, %s, %s::bigint)"
"""Move a consumer to a tick."""

SEEK_END: Final = "select pgq.seek(%s, %s, %s::text)"
"""Move a consumer to 'earliest' or 'latest'."""

SEEK_TIME: Final = "select pgq.seek(%s, %s, %s::timestamptz)"
"""Move a consumer to the last tick before a time."""

OWN_SUBSCRIPTION: Final = "select pg_try_advisory_lock(hashtextextended(%s, 0))"
"""Session-level ownership of 'pgq:queue/consumer', so that one of several workers reads and the others stand by."""

DISOWN_SUBSCRIPTION: Final = "select pg_advisory_unlock(hashtextextended(%s, 0))"
"""Give it up before the session ends: the end of a session reaches the server later than its last statement does."""

BACKEND_PID: Final = "select pg_backend_pid()"
"""The process that serves this statement: behind a pooler, not the one that the connection was told of."""

OWN_SESSION: Final = (
    "select set_config('default_transaction_isolation', 'read committed', false), "
    "set_config('tcp_keepalives_idle', '5', false), set_config('tcp_keepalives_interval', '5', false), "
    "set_config('tcp_keepalives_count', '2', false), set_config('tcp_user_timeout', '15000', false)"
)
"""For sessions of our own. The calls that move a cursor refuse every other level, whatever the database's default. And
the server is to notice a client that went away without a word (by default after two hours): what the session owns is
owned until then. On a Unix socket it ignores that."""

# -- ticking and maintenance -------------------------------------------------------------------------------------------

TICK_ALL: Final = "select pgq.ticker()"
"""Tick every queue that needs it; the number of ticks made."""

TICK: Final = "select pgq.ticker(%s)"
"""Tick one queue if it needs it; the tick id or null."""

POKE: Final = "select pgq.poke(%s)"
"""The same for consumers that wait while nobody ticks: gives way to a tick in progress."""

POKE_LIGHTLY: Final = "select pgq.poke(%s) from set_config('synchronous_commit', 'off', true)"
"""The same without waiting for the disk: the acknowledgement of what comes of it does that."""

FORCE_TICK: Final = "select pgq.tick_now(%s)"
"""Make a tick now, whatever the queue's settings."""

QUEUES_DUE: Final = "select pgq.queues_due(%s::text[])"
"""Names of the queues that need a tick now, of those given or of all (null); reads only."""

QUEUE_MARKS: Final = "select queue_name, queue_id, event_seq, snapshot_xmin, snapshot_xmax from pgq.queue_marks()"
"""Where the event sequence of each queue stands, and the bounds of a snapshot; reads only, and little."""

RELEASES_DUE: Final = "select queue_name, wait_ms from pgq.releases_due(%s::text[])"
"""Queues with delayed events, of those given or of all (null), and for how many ms the next release can wait."""

RELEASE: Final = "select pgq.release(%s)"
"""Put a queue's delayed events that are due into it: how many, or null when none was due."""

ARM_WAKE: Final = "select pgq.arm_wake(%s)"
"""Ask producers to notify pgq_wake for so many ms; 0 stops it."""

NOTIFYING: Final = """select count(*) from pg_locks
    where locktype = 'object' and database = 0 and classid = 'pg_database'::regclass and objid = 0"""
"""How many transactions that notify are about to commit: one does, the others wait for the lock that it has."""

WAKE_ARMED_MS: Final = "select pgq.wake_armed_ms()"
"""For how many ms they will."""

WAKE: Final = "select pgq.wake(%s)"
"""Notify as a producer does, for events that came by COPY."""

CURRENT_XMAX: Final = "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
"""Every transaction that runs now has a smaller id."""

TICK_CHANNEL: Final = "select pgq.tick_channel(%s)"
"""The channel on which a queue's ticks are announced; its number is what producers announce on pgq_wake."""

LISTEN: Final = SQL("listen {}")
"""Hear of notifications on a channel (template: its name)."""

LEAD: Final = "select pg_try_advisory_lock(hashtextextended('pgq ticker', 0))"
"""Session-level leadership among tickers of one database."""

DATABASES: Final = "select datname from pg_database where datallowconn and not datistemplate order by datname"
"""Databases that a ticker for all of them looks into."""

ASYNCHRONOUS_COMMIT: Final = "set synchronous_commit = off"
"""For the ticker's own session: a tick lost in a crash is made again, and a commit that acknowledges a batch flushes
the ticks before it."""

TICKER_PATIENCE: Final = "set lock_timeout = '100ms'"
"""For the ticker's own session: a queue whose row somebody has locked, and not committed, must not stall the others."""

TICKER_TICK: Final = "select pgq.ticker_if_late(%s, %s), set_config('lock_timeout', '0', true)"
"""TICK for that session: queue, and how long ago an event was announced, if one was. Its patience is for the queue's
row alone. The commit waits for a lock as well, since it notifies and so do others; giving up there would leave the tick
behind as a dead row."""

TICKER_RELEASE: Final = "select pgq.release(%s), set_config('lock_timeout', '0', true)"
"""RELEASE for that session, likewise."""

MAINT_OPERATIONS: Final = "select func_name, func_arg from pgq.maint_operations()"
"""What maintenance has to call now; an argument may be null."""

MAINT_CALL: Final = SQL("select {}(%s)")
"""One operation with its argument (template: its name); 1 asks for another call."""

MAINT_CALL_BARE: Final = SQL("select {}()")
"""One operation that takes no argument (template: its name)."""

MAINT_VACUUM: Final = SQL("vacuum {}")
"""The operation 'vacuum' (template: the table), which no function can run."""

ROTATE_QUEUE: Final = "select pgq.rotate_queue(%s)"
"""One forced rotation step: 'closed', 'truncated', 'switched', 'idle', 'blocked' or 'waiting'."""

# -- administration ----------------------------------------------------------------------------------------------------

CREATE_QUEUE: Final = "select pgq.create_queue(%s, %s)"
"""Name, number of slots: 1 when new, 0 when it was there."""

DROP_QUEUE: Final = "select pgq.drop_queue(%s, %s)"
"""The queue and its events; consumers are dropped along only when forced."""

SET_QUEUE_CONFIG: Final = "select pgq.set_queue_config(%s, %s, %s)"
"""Queue, parameter, value as text."""

PAUSE_QUEUE: Final = "select pgq.pause_queue(%s)"
"""Stop delivery, keep events; 0 when it was paused."""

RESUME_QUEUE: Final = "select pgq.resume_queue(%s)"
"""Deliver again; 0 when it was not paused."""

SET_RETRY_POLICY: Final = "select pgq.set_retry_policy(%s, %s, %s, %s, %s, %s, %s, %s::interval[])"
"""Queue, consumer or null for the queue's own, maximum of retries, kind, base, cap, jitter, delays."""

GRANT_PRODUCE: Final = "select pgq.grant_produce(%s, %s)"
"""Queue, role: it may send there."""

REVOKE_PRODUCE: Final = "select pgq.revoke_produce(%s, %s)"
"""Undo that."""

GRANT_CONSUME: Final = "select pgq.grant_consume(%s, %s, %s)"
"""Queue, consumer, role: it may act as that consumer; 0 when it was granted already."""

REVOKE_CONSUME: Final = "select pgq.revoke_consume(%s, %s, %s)"
"""Undo that; 0 when it was not granted."""

# -- dead letters ------------------------------------------------------------------------------------------------------

DEAD_LETTERS: Final = (
    "select * from pgq.dead_letter where (%s::text is null or queue_name = %s) and (%s::text is null or "
    "consumer_name = %s) and (%s::text is null or ev_type = %s) and dl_id > %s order by dl_id limit %s"
)
"""By queue, consumer and type (each twice; null: any), numbered above the given one, at most so many."""

DEAD_LETTER: Final = "select * from pgq.dead_letter where dl_id = %s"
"""One of them."""

REPLAY: Final = "select pgq.dlq_replay(%s)"
"""Deliver one again to the consumer that gave it up; the event's id."""

REPLAY_ALL: Final = "select pgq.dlq_replay_all(%s, %s, %s)"
"""The same for a queue, consumer and type (null: any); how many."""

PURGE: Final = "select pgq.dlq_purge(%s, %s, %s, %s, %s::bigint[])"
"""Drop those of a queue, consumer and type, older than an interval, with these numbers (null: any); how many."""

# -- changes of tables -------------------------------------------------------------------------------------------------

ADD_CAPTURE: Final = "select pgq.add_capture(%s, %s, %s::text[], %s::text[])"
"""Put the changes of a table into a queue: queue, table, key columns (null: the primary key), ignored columns."""

DROP_CAPTURE: Final = "select pgq.drop_capture(%s)"
"""Stop that; 0 when there was nothing to stop."""

CAPTURES: Final = "select * from pgq.get_captures(%s)"
"""The tables whose changes go into a queue, or into any (null)."""

# -- information -------------------------------------------------------------------------------------------------------

VERSION: Final = "select pgq.version()"
"""The version of the installed schema."""

QUEUES_INFO: Final = "select * from pgq.get_queue_info()"
"""All queues."""

QUEUE_INFO: Final = "select * from pgq.get_queue_info(%s)"
"""One queue."""

CONSUMERS_INFO: Final = "select * from pgq.get_consumer_info()"
"""All consumers of all queues."""

QUEUE_CONSUMERS_INFO: Final = "select * from pgq.get_consumer_info(%s)"
"""All consumers of one queue."""

CONSUMER_INFO: Final = "select * from pgq.get_consumer_info(%s, %s)"
"""One consumer of one queue."""

BATCH_INFO: Final = "select * from pgq.get_batch_info(%s)"
"""One open batch."""

DELAY_INFO: Final = "select * from pgq.delay_info()"
"""What waits for its time, and dead letters, of every queue."""

RING_INFO: Final = "select * from pgq.ring_info()"
"""All rings."""

RING_BLOCKERS: Final = "select * from pgq.ring_blockers()"
"""Who holds a lock on a slot."""


def seek(target: int | str | datetime) -> str:
    """The one of the three SEEK statements that takes such a target."""
    if isinstance(target, int):
        return SEEK_TICK
    return SEEK_END if isinstance(target, str) else SEEK_TIME
