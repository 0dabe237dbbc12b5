"""Says that the worker is alive: in a thread and on a connection of its own, so that a handler that blocks the event
loop, or computes for a minute, costs no lease.

Each beat names the claims that the worker has, and the answer names the jobs that somebody wants to stop. Beside that
the thread looks after workers that died, and fires what is due of recurring jobs. A worker that was declared dead drops
what it holds and goes on under a new name.
"""

from __future__ import annotations

import logging
import os
import random
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from time import monotonic
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.sql import Identifier
from psycopg.types.json import Jsonb

from pgq_py.client import queries
from pgq_py.client._sync import calls
from pgq_py.client._sync.connections import connect_until
from pgq_py.client.acompat import Stop
from pgq_py.client.backoff import Backoff
from pgq_py.client.connecting import is_pooled
from pgq_py.client.listening import Notices
from pgq_py.errors import ConnectionFailed, PgqError, WorkerEnded
from pgq_py.jobs import statements
from pgq_py.jobs.recurring import fire_due
from pgq_py.settings import Settings

__all__ = ["Leasing"]

logger = logging.getLogger("pgq_py.jobs")

EVERY = 10
"""So many beats of a worker that knows of all its claims, and one of them has the database look, too."""

SHORTEST_GAP = 0.2
"""Seconds between two beats, however often somebody notifies."""


class Leasing:
    """`held` gives the claims that the worker has, and whether there can be no others; `cancel` gets pairs of claim and
    job; `renamed` gets the name after the first beat of each connection, and a new one after the worker was declared
    dead. All are called in this thread.
    """

    def __init__(
        self,
        settings: Settings,
        queues: Sequence[str],
        lease: float,
        info: dict[str, Any],
        *,
        held: Callable[[], tuple[list[int], bool]],
        cancel: Callable[[list[tuple[int, int]]], None],
        renamed: Callable[[str], None],
    ) -> None:
        self._settings, self._queues, self._lease, self._info = settings, queues, lease, info
        self._held, self._cancel, self._renamed = held, cancel, renamed
        self._stop = Stop()
        self._backoff = Backoff()
        self._beat_at = self._recover_at = self._fire_at = 0.0
        self._beats = 0
        self.worker = _name()
        self._thread = threading.Thread(target=self._run, name="pgq-lease", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """End, and give back what the worker still has, if that takes no longer than so many seconds."""
        self._stop.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._stop.is_set():
            conn = connect_until(self._settings, "lease", self._stop)
            if conn is None:
                return
            try:
                with conn:
                    self._session(conn)
            except (PgqError, psycopg.Error) as exc:
                logger.warning("the lease of %s: %s", self.worker, exc)
                self._stop.sleep(min(self._backoff.next(), 1.0))

    def _session(self, conn: Connection[Any]) -> None:
        notices = None if is_pooled(conn) else self._listen(conn)
        self._beat_at = 0.0
        first = True
        while not self._stop.is_set():
            self._step(conn)
            if first:
                self._renamed(self.worker)
                first = False
            self._wait(conn, notices)
        calls.value(conn, statements.END_WORKER, [self.worker])

    def _listen(self, conn: Connection[Any]) -> Notices:
        notices = Notices(conn)
        for queue in self._queues:
            channel = calls.value(conn, statements.CANCEL_CHANNEL, [queue])
            calls.command(conn, queries.LISTEN.format(Identifier(channel)))
        return notices

    def _step(self, conn: Connection[Any]) -> None:
        """Do what is due."""
        now = monotonic()
        if now >= self._beat_at:
            self._beat(conn)
            self._beat_at = now + self._lease / 5
        if now >= self._recover_at:
            self._recover_at = now + self._lease / 5 * random.uniform(0.8, 1.0)
            self._guarded(conn, "looking after dead workers", lambda: calls.value(conn, statements.RECOVER))
        if now >= self._fire_at:
            self._fire_at = now + 10.0
            self._guarded(conn, "recurring jobs", lambda: self._fire(conn))

    def _beat(self, conn: Connection[Any]) -> None:
        """Say that we are there. A worker that was declared dead is born again."""
        lease, info = timedelta(seconds=self._lease), Jsonb(self._info)
        held, knows_all = self._held()
        knows_all = knows_all and self._beats % EVERY > 0
        try:
            wanted = calls.rows(conn, statements.HEARTBEAT, [self.worker, held, lease, info, knows_all])
        except WorkerEnded:
            self._begin_anew(conn)
            return
        self._backoff.reset()
        self._beats += 1
        if wanted:
            self._cancel([(claim, job) for claim, job in wanted])

    def _begin_anew(self, conn: Connection[Any]) -> None:
        old, self.worker = self.worker, _name()
        logger.error("worker %s was declared dead: it drops its jobs and goes on as %s", old, self.worker)
        calls.rows(
            conn, statements.HEARTBEAT, [self.worker, [], timedelta(seconds=self._lease), Jsonb(self._info), True]
        )
        self._renamed(self.worker)

    def _fire(self, conn: Connection[Any]) -> None:
        self._fire_at = monotonic() + fire_due(conn, self._queues)

    def _guarded(self, conn: Connection[Any], what: str, call: Callable[[], object]) -> None:
        """A failure of these is no failure of the lease."""
        try:
            call()
        except (PgqError, psycopg.Error) as exc:
            if conn.closed or isinstance(exc, ConnectionFailed):
                raise
            logger.warning("%s: %s", what, exc)

    def _wait(self, conn: Connection[Any], notices: Notices | None) -> None:
        """Until something is due, or somebody wants to cancel a job. What a notification says is not relied on."""
        pause = min(self._beat_at, self._recover_at, self._fire_at) - monotonic()
        if notices is None:
            self._stop.sleep(max(pause, 0.0))
            return
        if not notices.take():
            self._stop.sleep_or_read(conn.fileno(), pause)
            if not notices.take():
                return
        self._beat_at = min(self._beat_at, max(monotonic(), self._beat_at - self._lease / 5 + SHORTEST_GAP))


def _name() -> str:
    """A name for one incarnation."""
    return f"{socket.gethostname()[:100]}:{os.getpid()}:{secrets.token_hex(4)}"
