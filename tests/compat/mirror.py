"""A process that mirrors captured tables into another database: `python -m tests.compat.mirror SOURCE TARGET`.

Each batch is applied in one transaction of the target, together with the number of the tick at which it ends. So a
process that dies between that commit and finish_batch() knows, when the batch comes again, that it has been applied.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import psycopg

from tests.compat.applying import apply

QUEUE, CONSUMER = "changes", "mirror"

Conn = psycopg.Connection[Any]


def step(source: Conn, target: Conn) -> bool:
    """Mirror the next batch; False when there is none."""
    (batch, last) = source.execute(
        "select batch_id, cur_tick_id from pgq.next_batch_info(%s, %s)", [QUEUE, CONSUMER]
    ).fetchall()[0]
    if batch is None:
        return False
    with target.transaction():
        ((applied,),) = target.execute("select tick from mirrored for update").fetchall()
        if last > applied:
            events = source.execute("select ev_data from pgq.get_batch_events(%s)", [batch]).fetchall()
            with target.pipeline():
                for (envelope,) in events:
                    apply(target, envelope)
                target.execute("update mirrored set tick = %s", [last])
    source.execute("select pgq.finish_batch(%s)", [batch])
    return True


def main(source_dsn: str, target_dsn: str) -> None:
    """Until killed; a lost connection is made anew."""
    while True:
        try:
            with psycopg.connect(source_dsn, autocommit=True) as source, psycopg.connect(target_dsn) as target:
                while True:
                    if not step(source, target):
                        time.sleep(0.02)
        except psycopg.OperationalError:
            time.sleep(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])
