"""When a consumer is done."""

from __future__ import annotations

from pgq_py.app import PgQ


def is_drained(pgq: PgQ, consumer: str) -> bool:
    """Everything sent to `orders` is acknowledged and nothing waits for a retry, all at one moment: events go round,
    so that looking at one place after the other could miss one."""
    with pgq.transaction() as tx:
        tx.execute("set transaction isolation level repeatable read")
        info = pgq.consumer_info("orders", consumer, conn=tx)
        newest = pgq.queue_info("orders", conn=tx).last_tick_id
        moving = pgq.queues_due(conn=tx) or any(queue.delayed for queue in pgq.delay_info(conn=tx))
    return not moving and info.last_tick == newest and info.current_batch is None
