"""State-changing functions refuse any isolation level but READ COMMITTED; producing and asking work at all of them.

A row lock on a row that nobody modifies does not make a REPEATABLE READ transaction see what happened meanwhile: it
would hand out a batch twice, tick from an old snapshot, or truncate what is still needed.
"""

from __future__ import annotations

import pytest

from tests.clusters import Database
from tests.engine.support import (
    OLD_SNAPSHOTS,
    Conn,
    begin,
    column,
    configure,
    create,
    deliver,
    drain,
    event_ring,
    next_batch,
    phase,
    refused,
    rollback,
    rows,
    send,
    tick,
    value,
)

# Every function that decides something by the newest state and then changes it, with a call that would do so.
DECIDING = {
    "create_queue(text)": "select pgq.create_queue('new')",
    "create_queue(text,integer)": "select pgq.create_queue('new', 3)",
    "drop_queue(text)": "select pgq.drop_queue('spare')",
    "drop_queue(text,boolean)": "select pgq.drop_queue('q', true)",
    "register_consumer(text,text)": "select pgq.register_consumer('q', 'new')",
    "register_consumer_at(text,text,bigint)": "select pgq.register_consumer_at('q', 'c', 1)",
    "unregister_consumer(text,text)": "select pgq.unregister_consumer('q', 'c')",
    "seek(text,text,bigint)": "select pgq.seek('q', 'c', 1)",
    "seek(text,text,timestamp with time zone)": "select pgq.seek('q', 'c', now())",
    "seek(text,text,text)": "select pgq.seek('q', 'c', 'latest')",
    "next_batch(text,text)": "select pgq.next_batch('q', 'c')",
    "next_batch_info(text,text)": "select * from pgq.next_batch_info('q', 'c')",
    "next_batch_custom(text,text,interval,integer,interval)": "select pgq.next_batch_custom('q', 'c', null, 1, null)",
    "open_batch(text,text,integer)": "select pgq.open_batch('q', 'c')",
    "open_batch_events(text,text,integer,integer,boolean)": "select * from pgq.open_batch_events('q', 'c')",
    "receive(text,text,integer)": "select * from pgq.receive('q', 'c')",
    "ack(text,text,bigint,bigint)": "select pgq.ack('q', 'c', 1)",
    "finish_batch(bigint)": "select pgq.finish_batch(1)",
    "ack_peeked(text,text,bigint,bigint,bigint)": "select pgq.ack_peeked('q', 'c', -1, 1, 2)",
    "open_peeked(text,text,bigint,bigint,bigint)": "select pgq.open_peeked('q', 'c', -1, 1, 2)",
    "batch_event_sql(bigint)": "select pgq.batch_event_sql(1)",
    "batch_event_tables(bigint)": "select pgq.batch_event_tables(1)",
    "get_batch_events(bigint)": "select * from pgq.get_batch_events(1)",
    "get_batch_cursor(bigint,text,integer)": "select * from pgq.get_batch_cursor(1, 'x', 1)",
    "get_batch_cursor(bigint,text,integer,text)": "select * from pgq.get_batch_cursor(1, 'x', 1, 'true')",
    "ticker()": "select pgq.ticker()",
    "ticker(text)": "select pgq.ticker('q')",
    "ticker_if_late(text,interval)": "select pgq.ticker_if_late('q', null)",
    "ticker(text,bigint,timestamp with time zone,bigint)": "select pgq.ticker('external', 9, now(), 9)",
    "poke(text)": "select pgq.poke('q')",
    "tick_now(text)": "select pgq.tick_now('q')",
    "force_tick(text)": "select pgq.force_tick('q')",
    "rotate_queue(text)": "select pgq.rotate_queue('q')",
    "maint_rotate_tables_step1(text)": "select pgq.maint_rotate_tables_step1('q')",
    "maint_rotate_tables_step2()": "select pgq.maint_rotate_tables_step2()",
    "maint_evict_consumers(text)": "select pgq.maint_evict_consumers('q')",
    "maint_retry_events()": "select pgq.maint_retry_events()",
    "release(text)": "select pgq.release('q')",
    "cancel_event(text,bigint)": "select pgq.cancel_event('q', 1)",
    "event_retry(bigint,bigint,timestamp with time zone)": "select pgq.event_retry(1, 1, now())",
    "event_retry(bigint,bigint,integer)": "select pgq.event_retry(1, 1, 0)",
    "batch_retry(bigint,integer)": "select pgq.batch_retry(1, 0)",
    "nack(text,text,bigint,bigint[],text,interval,boolean)": "select pgq.nack('q', 'c', 1, '{1}')",
    "dlq_replay(bigint)": "select pgq.dlq_replay(1)",
    "dlq_replay_all(text,text,text)": "select pgq.dlq_replay_all('q')",
    "dlq_purge(text,text,text,interval,bigint[])": "select pgq.dlq_purge('q')",
    "create_job_queue(text,integer[])": "select pgq.create_job_queue('new')",
    "declare_priority(text,integer)": "select pgq.declare_priority('jobs', 7)",
    "claim(text,text,integer,boolean)": "select * from pgq.claim('jobs', 'w')",
    "claimed(bigint,bigint)": "select * from pgq.claimed(1, 1)",
    "take(text,text,integer)": "select * from pgq.take('jobs', 'w')",
    "complete_and_claim(bigint,bigint,text,text,integer)": (
        "select * from pgq.complete_and_claim(null, null, 'jobs', 'w')"
    ),
    "complete_and_claim_with(bigint,bigint,text,text,integer)": (
        "select * from pgq.complete_and_claim_with(null, null, 'jobs', 'w', 1)"
    ),
    "heartbeat(text,bigint[],interval,jsonb,boolean)": "select * from pgq.heartbeat('w')",
    "recover()": "select pgq.recover()",
    "end_worker(text)": "select pgq.end_worker('w')",
    "cancel(text,bigint[])": "select * from pgq.cancel('jobs', '{1}')",
    "retry_jobs(text,bigint[])": "select pgq.retry_jobs('jobs', '{1}')",
    "maint_sweep_jobs(text)": "select pgq.maint_sweep_jobs('jobs')",
    "maint_recover_jobs()": "select pgq.maint_recover_jobs()",
    "solo_waits(text)": "select pgq.solo_waits('jobs')",
    "fire_schedule(text,timestamp with time zone,boolean,boolean)": "select pgq.fire_schedule('s', now())",
}

# Functions that ask, produce, or change settings in one statement: they may be called in any transaction.
FREE = {
    "version", "get_queue_info", "get_consumer_info", "get_batch_info", "ring_info", "ring_blockers", "queues_due",
    "maint_operations", "maint_tables_to_vacuum", "insert_event", "insert_events", "insert_event_raw",
    "send", "send_batch",
    "producer_function", "opener_function", "worker_procedure", "taker_function", "current_event_table",
    "set_queue_config", "pause_queue", "resume_queue",
    "seek_target", "wake", "wake_armed_ms", "arm_wake", "disarm_wake", "queue_marks",
    "grant_produce", "grant_consume", "revoke_produce", "revoke_consume", "releases_due", "insert_event_at",
    "send_batch_at", "event_retry_raw", "set_retry_policy", "delay_info",
    "tick_channel", "enqueue", "enqueue_with", "enqueue_many", "complete", "fail", "snooze", "release", "extend",
    "progress", "set_result", "enqueuer_function",
    "once", "get_job", "get_result", "jobs", "get_job_stats", "get_worker_info", "get_lane_info", "set_job_config",
    "set_schedule",
    "drop_schedule", "get_schedules", "grant_work", "revoke_work",
    "jsontriga", "logutriga", "sqltriga", "capture", "add_capture", "drop_capture",
    "get_captures", "find_tick_helper", "seq_getval", "seq_setval",
    "quote_fqname", "grant_perms", "tune_storage", "upgrade_schema",
}  # fmt: skip


def _signatures(conn: Conn) -> dict[str, str]:
    """Signature to name of every function that is not internal."""
    found = rows(
        conn,
        "select replace(oid::regprocedure::text, 'pgq.', ''), proname from pg_proc"
        " where pronamespace = 'pgq'::regnamespace and prokind = 'f' and proname !~ '^_'"
        " and proname !~ '^(produce|open|enqueue|next_jobs|job_rows|work|work_on|take)_[0-9]'",
    )
    return {str(signature): str(name) for signature, name in found}


@pytest.mark.catalog
def test_every_function_is_listed(db: Database) -> None:
    """A new one must be put on one of the two lists above, with a thought."""
    signatures = _signatures(db.connect())
    assert DECIDING.keys() <= signatures.keys()
    assert {name for signature, name in signatures.items() if signature not in DECIDING} <= FREE


@pytest.mark.parametrize("level", OLD_SNAPSHOTS)
def test_every_deciding_function_refuses_an_old_snapshot(db: Database, level: str) -> None:
    old, conn = db.connect(), db.connect()
    create(conn, "c")
    create(conn, queue="spare")
    create(conn, queue="external")
    configure(conn, "external_ticker", "true", queue="external")
    conn.execute("select pgq.create_job_queue('jobs')")
    conn.execute("select pgq.enqueue('jobs', 'a')")
    send(conn, "a")
    tick(conn)
    assert next_batch(conn) == 1
    begin(old, level)
    old.execute("savepoint s")
    before = _state(conn)
    for call in DECIDING.values():
        with refused("PQ007", "needs isolation level READ COMMITTED"):
            old.execute(call.encode())
        old.execute("rollback to s")
    rollback(old)
    assert _state(conn) == before
    assert drain(conn) == ["a"]


def _state(conn: Conn) -> list[object]:
    return [
        rows(conn, "select * from pgq.cursor_ring order by sub_id, pos"),
        rows(conn, "select * from pgq.tick_ring order by tick_queue, tick_id"),
        rows(conn, "select queue_name from pgq.queue order by 1"),
        phase(conn, event_ring(conn)),
    ]


@pytest.mark.parametrize("level", OLD_SNAPSHOTS)
def test_asking_and_producing_work_at_every_level(db: Database, level: str) -> None:
    old, conn = db.connect(), db.connect()
    create(conn, "c")
    begin(old, level)
    for query in (
        "select pgq.version()",
        "select * from pgq.get_queue_info('q')",
        "select * from pgq.get_consumer_info('q')",
        "select * from pgq.get_batch_info(1)",
        "select * from pgq.ring_info()",
        "select * from pgq.ring_blockers()",
        "select * from pgq.queues_due()",
        "select * from pgq.maint_operations()",
    ):
        old.execute(query.encode())
    send(old, "a")
    value(old, "select pgq.send_batch('q', 't', '{b,c}'::text[])")
    old.execute("commit")
    assert deliver(conn) == ["a", "b", "c"]


@pytest.mark.parametrize("level", OLD_SNAPSHOTS)
def test_a_default_level_of_the_database_is_refused_too(db: Database, level: str) -> None:
    conn = db.connect()
    create(conn, "c")
    value(conn, "select set_config('default_transaction_isolation', %s, false)", level)
    with refused("PQ007"):
        conn.execute("select pgq.next_batch('q', 'c')")
    conn.execute("reset default_transaction_isolation")
    assert column(conn, "select pgq.next_batch('q', 'c')") == [None]
