"""One leading ticker on one connection: woken by producers while it sleeps, looking by itself while there is a rush.

To fall asleep it arms: producers notify from then on. But whoever had looked before may insert yet and commit later,
so until every transaction is over that ran at the arming, it also looks at all queues, ever less often; from then on
every event is announced, and it looks once a second, for writers that cannot announce (COPY without pgq.wake, two-phase
commit). All looking is reading; an idle minute writes nothing but the renewals of the deadline.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from time import monotonic
from typing import Any

import psycopg
from psycopg.errors import DeadlockDetected, SerializationFailure
from psycopg.sql import Identifier

from pgq_py.client import queries
from pgq_py.client._sync import calls
from pgq_py.client.acompat import Stop
from pgq_py.client.listening import Notices
from pgq_py.errors import PgqError, QueueNotFound, QueuePaused, SlotClosed
from pgq_py.settings import Settings
from pgq_py.ticker.complaints import Complaints
from pgq_py.ticker.due import Mark, Pace, Watch, worth_trying

__all__ = ["Session"]

logger = logging.getLogger("pgq_py.ticker")

ARMED_MS = 10_000
"""How long producers go on notifying a ticker that has died. Renewed at half."""

FIRST_LOOK, LONGEST_LOOK = 0.02, 0.25
"""Seconds between looks while a transaction may be open that saw the ticker awake."""

FALLBACK_LOOK = 1.0
"""Seconds between looks when every event is announced."""

GRACE = 0.003
"""Seconds between the announcement of an event and the tick for it, while it is calm. A consumer that listens has heard
of it too, and ticks on its own way to the event; then nothing is left to do."""

LENIENCE = 0.01
"""Seconds for which it does not read what is announced while others tick what was announced so far: being woken by each
of hundreds costs more than the ticks do. In a rush, too, workers tick for themselves, and ticks beside theirs would
only keep them from the lock: then it is the time between two looks at such a queue."""

LAST_LOOK = 0.05
"""Seconds after which it looks once more at a queue that others tick: their ticks were younger than the event, but
their snapshots may have been a moment older. While one event follows the other it is no sooner: a look takes time of a
processor that the worker may be waiting for."""

SPACING = 0.005
"""Seconds between two ticks of a queue that it makes itself while it is calm: nobody waits for them but those who poll,
or hear of ticks alone."""

REST, LONGEST_REST = 9, 0.01
"""In a rush it rests so many times as long as its ticks took, so many seconds at most: a server that makes ticks slowly
has too much to do, and its own ticks shall not be a tenth of that."""

FULL_LOOK = 10.0
"""Seconds between probes of every queue, also of those whose sequence has not moved: a replayed dead letter keeps its
id. In a rush, when producers are not asked to announce, as often as the fallback."""

CROWD_LOOK = 0.04
"""Seconds between looks at whether producers that notify are in each other's way, while there are many."""


@dataclass(slots=True)
class _Tended:
    """What is remembered of a queue. `heard_at` is its last announcement and `untended_since` the first one that no
    tick covers, `ticked_at` when we last ticked it, `left_until` is until when it is left to others."""

    heard_at: float = 0.0
    untended_since: float | None = None
    ticked_at: float = 0.0
    left_until: float = 0.0


class Session:
    """The life of one connection. `run` returns when stopped, and raises when the connection is lost."""

    def __init__(
        self, conn: psycopg.Connection[Any], settings: Settings, stop: Stop, complaints: Complaints | None = None
    ) -> None:
        self.ticks = 0
        self._conn, self._settings, self._stop = conn, settings, stop
        self._complaints = complaints or Complaints()
        self._notices = Notices(conn)
        self._watch, self._pace = Watch(), Pace()
        self._failed_at: dict[str, float] = {}
        self._release_at: dict[str, float] = {}
        self._hot: dict[str, float] = {}
        self._tick_at: dict[str, float] = {}
        self._tended: defaultdict[str, _Tended] = defaultdict(_Tended)
        self._armed_xmax = 0
        self._renew_at = self._look_at = self._full_at = self._crowd_at = self._deaf_until = 0.0
        self._delay = FIRST_LOOK
        self._probe_took = self._ticking_took = 0.0

    def once(self) -> None:
        """Make the releases and ticks that are due, and go."""
        self._refresh_releases(None)
        for queue in self._release_at.copy():
            self._release(queue)
        self._probe(None)

    def run(self) -> None:
        """Tick and release until stopped."""
        calls.command(self._conn, queries.ASYNCHRONOUS_COMMIT)
        calls.command(self._conn, queries.TICKER_PATIENCE)
        calls.command(self._conn, queries.LISTEN.format(Identifier("pgq_wake")))
        self._arm()
        while not self._stop.is_set():
            self.beat()
            self._sleep()
        calls.value(self._conn, queries.ARM_WAKE, [0])

    def beat(self) -> None:
        """Do what is due now."""
        now = monotonic()
        woken, later = self._woken()
        for queue in woken:
            tended = self._tended[queue]
            self._hot[queue] = tended.heard_at = now
            if tended.untended_since is None:
                tended.untended_since = now
                calm_at = max(now + GRACE, tended.ticked_at + SPACING, tended.left_until)
                self._tick_at[queue] = now if self._pace.busy else calm_at
        if woken and all(self._tended[queue].left_until > now for queue in woken):
            self._deaf_until = now + LENIENCE
        for queue in self._due_now(now):
            self._tick(queue)
        self._ticking_took = monotonic() - now
        if later:
            self._refresh_releases(later)
        if now >= self._full_at:
            self._look()
            self._probe(None)
            # while it is calm, half a percent of the time at most
            pause = FALLBACK_LOOK if self._pace.busy else max(FULL_LOOK, 200 * self._probe_took)
            self._full_at = now + pause
        elif now >= self._look_at:
            self._probe(self._look())
        for queue in [queue for queue, at in self._release_at.items() if at <= monotonic()]:
            self._release(queue)
        self._settle()

    def _due_now(self, now: float) -> set[str]:
        """Queues to tick now: those announced a moment ago and, in a rush, those that have just been ticked, unless
        others see to them."""
        due = {queue for queue, at in self._tick_at.items() if at <= now}
        for queue in due:
            del self._tick_at[queue]
        if self._pace.busy:
            due |= {queue for queue in self._hot if self._tended[queue].left_until <= now}
        return due

    # -- sleeping and waking -------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Ask to be woken, and look for whoever had not heard of it."""
        calls.value(self._conn, queries.ARM_WAKE, [ARMED_MS])
        self._armed_xmax = calls.value(self._conn, queries.CURRENT_XMAX)
        self._renew_at = monotonic() + ARMED_MS / 2000
        self._delay = FIRST_LOOK
        self._look_at = 0.0

    def _settle(self) -> None:
        """Change between sleeping and looking as the rate demands, and keep the deadline ahead."""
        now = monotonic()
        for queue in [queue for queue, at in self._hot.items() if now - at > Pace.WINDOW]:
            del self._hot[queue]
        if self._pace.wonders and now >= self._crowd_at:
            self._pace.committing(calls.value(self._conn, queries.NOTIFYING))
            # where the server has very many locks, looking at them takes long
            self._crowd_at = now + max(CROWD_LOOK, 50 * (monotonic() - now))
        if self._pace.decide(now):
            if self._pace.busy:
                calls.value(self._conn, queries.ARM_WAKE, [0])
            else:
                self._hot.clear()
                self._arm()
        elif not self._pace.busy and now >= self._renew_at:
            calls.value(self._conn, queries.ARM_WAKE, [ARMED_MS])
            self._renew_at = now + ARMED_MS / 2000

    def _sleep(self) -> None:
        if self._pace.busy:
            rest = min(REST * self._ticking_took, LONGEST_REST)
            self._stop.sleep(max(self._settings.tick_interval, rest))
            return
        times = self._tick_at.values(), self._release_at.values()
        wake_at, now = min(self._look_at, self._full_at, self._renew_at, *chain(*times)), monotonic()
        if now < self._deaf_until:
            self._stop.sleep(max(0.0, min(wake_at, self._deaf_until) - now))
        else:
            self._stop.sleep_or_read(self._conn.fileno(), wake_at - now)

    def _woken(self) -> tuple[set[str], set[str]]:
        """Queues for which producers have announced events, and events for later.

        A payload that is no queue of ours is somebody's joke, or a new queue.
        """
        heard = [payload.split() for channel, payload in self._notices.take() if channel == "pgq_wake"]
        self._pace.woken(monotonic(), len(heard))
        found: tuple[set[str], set[str]] = set(), set()
        for number, *later in filter(None, heard):
            queue = self._watch.names.get(int(number)) if number.isascii() and number.isdigit() else None
            if queue is None:
                self._look_at = 0.0
            else:
                found[bool(later)].add(queue)
        return found

    # -- looking ---------------------------------------------------------------------------------------------------

    def _look(self) -> list[str]:
        """See where all queues stand; returns those that are worth a probe."""
        started = monotonic()
        marks = [Mark(*row) for row in calls.rows(self._conn, queries.QUEUE_MARKS)]
        probe = self._watch.look(marks)
        self._pace.seen(started, sum(mark.event_seq for mark in marks), marks[0].xmax if marks else 0)
        if self._pace.busy:
            self._hot |= dict.fromkeys(probe, started)
            pause = FIRST_LOOK
        elif marks and marks[0].xmin < self._armed_xmax:
            pause, self._delay = self._delay, min(self._delay * 1.6, LONGEST_LOOK)
        else:
            pause = FALLBACK_LOOK
        # with very many queues a look takes milliseconds: it may not take more than a twentieth of the time
        self._look_at = monotonic() + max(pause, 20 * (monotonic() - started))
        return probe

    def _probe(self, queues: list[str] | None) -> None:
        """Ask which of these queues (None: of all) need a tick or hold delayed events."""
        if queues == []:
            return
        started = monotonic()
        try:
            due = calls.values(self._conn, queries.QUEUES_DUE, [queues])
            self._probe_took = monotonic() - started
            self._complaints.settled("queues_due")
        except (PgqError, psycopg.Error) as exc:
            self._complain("queues_due", exc)
            return
        for queue in worth_trying(due, self._failed_at, monotonic()):
            self._tick(queue)
        self._refresh_releases(queues)

    # -- ticking and releasing -------------------------------------------------------------------------------------

    def _tick(self, queue: str, *, released: bool = False) -> None:
        """Tick one queue, if that is due; its failure is its own. Whatever others have ticked, no tick covers events
        that have just been released."""
        now, tended = monotonic(), self._tended[queue]
        since, tended.untended_since = tended.untended_since, None
        if not worth_trying([queue], self._failed_at, now):
            return
        age: timedelta | None = None
        if self._pace.busy and not released:
            age = timedelta(seconds=min(now - tended.ticked_at, LENIENCE))
        elif since is not None and not released:
            age = timedelta(seconds=now - since)
        try:
            made = calls.value(self._conn, queries.TICKER_TICK, [queue, age])
        except (QueuePaused, QueueNotFound):
            self._forget(queue)
            return
        except (SlotClosed, SerializationFailure, DeadlockDetected):
            # a ring rotated at that moment: nothing is broken, and in a rush nobody else would say that there is more
            self._tick_at.setdefault(queue, now + GRACE)
            return
        except (PgqError, psycopg.Error) as exc:
            self._failed_at[queue] = now
            self._complain(f"queue {queue}", exc)
            return
        if self._failed_at.pop(queue, None) is not None:
            self._complaints.settled(f"queue {queue}")
        if made == 0:
            self._left_to_others(queue, since, now)
        elif made is not None:
            self.ticks += 1
            self._pace.ticked(now)
            self._hot[queue] = now
            tended.ticked_at = monotonic()  # later than the tick's own time: it is not taken for somebody else's

    def _left_to_others(self, queue: str, since: float | None, now: float) -> None:
        """Somebody has ticked since then; what was announced later may not be in that tick."""
        tended = self._tended[queue]
        if self._pace.busy:
            self._hot[queue], tended.left_until = now, now + LENIENCE
            return
        self._tick_at[queue] = tended.left_until = now + LAST_LOOK
        if since is not None and tended.heard_at > since:
            tended.untended_since = tended.heard_at

    def _release(self, queue: str) -> None:
        """Release what is due in one queue; the tick that shows it follows."""
        try:
            if calls.value(self._conn, queries.TICKER_RELEASE, [queue]):
                self._tick(queue, released=True)
            self._complaints.settled(f"release {queue}")
        except QueueNotFound:
            self._forget(queue)
            return
        except (PgqError, psycopg.Error) as exc:
            self._complain(f"release {queue}", exc)
            self._release_at[queue] = monotonic() + 1.0
            return
        self._refresh_releases([queue])

    def _refresh_releases(self, queues: set[str] | list[str] | None) -> None:
        """Ask when the next release of these queues (None: of all) is due; not more often than every few ms."""
        rows = calls.rows(self._conn, queries.RELEASES_DUE, [None if queues is None else list(queues)])
        now = monotonic()
        for queue in list(self._release_at) if queues is None else queues:
            self._release_at.pop(queue, None)
        for queue, wait_ms in rows:
            self._release_at[queue] = now + max(wait_ms / 1000, self._settings.tick_interval)

    def _forget(self, queue: str) -> None:
        for forgotten in (self._hot, self._tick_at, self._tended, self._release_at):
            forgotten.pop(queue, None)

    def _complain(self, subject: str, exc: Exception) -> None:
        """Log it, unless it is the connection that failed: that ends the session."""
        if self._conn.closed:
            raise exc
        self._complaints.about(subject, exc)
