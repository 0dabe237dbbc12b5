"""An application to be run, and killed, as a process: `python -m tests.consumers.shop`, with PGQ_DSN set.

Its consumers write into the table `effect` what they did.
"""

from __future__ import annotations

import time
from typing import Any

from pgq_py import Event
from pgq_py.app import PgQ

pgq = PgQ()


@pgq.consumer("orders", name="mirror", exactly_once=True, max_events=50)
def mirror(event: Event, tx: Any) -> None:
    tx.execute("insert into effect values ('mirror', %s)", [event.id])


@pgq.consumer("slow", name="sleeper")
def sleeper(event: Event) -> None:
    with pgq.transaction() as tx:
        tx.execute("insert into effect values ('begun', %s)", [event.id])
    time.sleep(0.5)
    with pgq.transaction() as tx:
        tx.execute("insert into effect values ('done', %s)", [event.id])


if __name__ == "__main__":
    pgq.run()
