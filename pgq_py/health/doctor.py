"""The checks behind `pgq doctor`: what is wrong, with what, and the command that mends it.

An error stops delivery, or rotation; a warning will, or stops something else; information is worth knowing. Each check
stands alone: one that may not look says so and hides no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import sleep
from typing import Any

import psycopg
from psycopg import Connection

from pgq_py import schema
from pgq_py.client import Client
from pgq_py.client._sync import calls
from pgq_py.client._sync.connections import connect
from pgq_py.client.connecting import is_pooled
from pgq_py.errors import ConnectionFailed, PermissionDenied, PgqError, SchemaMissing, SchemaOutdated
from pgq_py.health import queries
from pgq_py.health.findings import SEVERITIES, Finding, Problem, quoted
from pgq_py.health.jobs import job_findings
from pgq_py.health.judgement import Health, Limits, examine
from pgq_py.health.paths import search_paths, unpinned_functions
from pgq_py.health.surroundings import foreign_script, missing_roles, pinned_horizon, pooler, standby, swollen_catalog
from pgq_py.settings import Settings

__all__ = ["Finding", "diagnose"]

Look = Callable[[], Iterable[Finding]]


def diagnose(
    settings: Settings, limits: Limits | None = None, *, wait: Callable[[float], None] = sleep
) -> list[Finding]:
    """Every finding, the worst first. Raises ConnectionFailed; everything else that is wrong is a finding."""
    chosen = limits or Limits()
    with connect(settings, "doctor") as conn:
        looks: list[Look] = [
            foreign_script,
            lambda: pooler(pooled=is_pooled(conn)),
            lambda: standby(conn),
            lambda: missing_roles(conn),
            lambda: pinned_horizon(conn, chosen.rotation),
            lambda: swollen_catalog(conn),
        ]
        found = list(_schema(conn))
        if not any(finding.severity == "error" for finding in found):
            looks += [
                lambda: unpinned_functions(conn),
                lambda: search_paths(conn),
                lambda: _log(settings, chosen, wait, conn),
            ]
        for look in looks:
            found += _attempt(look, conn)
    return sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))


def _attempt(look: Look, conn: Connection[Any]) -> list[Finding]:
    try:
        return list(look())
    except ConnectionFailed:
        raise
    except PermissionDenied as exc:
        role = conn.info.user
        return [
            Finding(
                "error", "rights", f"role {role}", f"it may not look: {exc.message}", f'grant pgq_admin to "{role}"'
            )
        ]
    except (PgqError, psycopg.Error) as exc:
        return [Finding("error", "doctor", "a check", f"it failed: {str(exc).splitlines()[0]}", "pgq upgrade")]


def _schema(conn: Connection[Any]) -> Iterable[Finding]:
    """An old schema, or one that is complete but of another build, or lacks grants."""
    subject = f"database {conn.info.dbname}"
    try:
        schema.check(conn)
        steps = schema.plan(conn).steps
    except SchemaMissing as exc:
        yield Finding("error", "schema", subject, exc.message, "pgq install")
    except SchemaOutdated as exc:
        newer = exc.advice != SchemaOutdated.default_advice
        yield Finding(
            "error", "schema", subject, exc.message, "pip install --upgrade pgq-py" if newer else "pgq upgrade"
        )
    except PgqError as exc:
        yield Finding("error", "schema", subject, exc.message, "alter schema pgq rename to pgq_old")
    except psycopg.errors.InsufficientPrivilege:
        return  # the ledger may be read by administrators; another check will say so
    else:
        if [step.title for step in steps] == ["grants.sql"]:
            yield Finding("warning", "rights", subject, "roles lack the rights that belong to them", "pgq upgrade")
        elif steps:
            what = f"its functions are of another build than this package: {len(steps)} steps would be applied"
            yield Finding("warning", "schema", subject, what, "pgq upgrade")


def _log(settings: Settings, limits: Limits, wait: Callable[[float], None], conn: Connection[Any]) -> Iterable[Finding]:
    with Client(settings=settings) as client:
        health = examine(client, limits, wait=wait)
        of_jobs = list(job_findings(client, health.jobs, limits.jobs))
    foreign = calls.values(conn, queries.FOREIGN_QUEUES)
    leaders = calls.rows(conn, queries.TICKER)
    yield from (_restored(queue) for queue in foreign)
    yield from (_problem(problem, leaders) for problem in health.problems if problem.queue not in foreign)
    if health.queues and not leaders and not any(problem.kind == "ticker" for problem in health.problems):
        what = "none is running: consumers tick by themselves, later, and no slot is emptied"
        yield Finding("warning", "ticker", "ticker", what, "pgq ticker")
    yield from _paused(health)
    yield from _given_up(health)
    yield from of_jobs


def _restored(queue: str) -> Finding:
    return Finding(
        "error",
        "restored",
        f"queue {queue}",
        "its positions are of another cluster (a restored dump): every event is kept, none is delivered, and the queue "
        "has to be started anew",
        f"pgq queue drop {quoted(queue)} --force && pgq queue create {quoted(queue)}",
    )


def _problem(problem: Problem, leaders: list[tuple[Any, ...]]) -> Finding:
    subject = f"{'queue' if problem.kind in ('ticker', 'jobs') else problem.kind} {problem.subject}"
    if problem.kind != "ticker":
        return Finding("error", problem.kind, subject, problem.message, problem.mend)
    subject = f"queue {problem.queue}"
    if not leaders:
        return Finding("error", "ticker", subject, problem.message, problem.mend)
    pid, application = leaders[0]
    what = f"{problem.message}, although process {pid} ({application}) leads the ticking; its log says why"
    return Finding("error", "ticker", subject, what, f"select pg_terminate_backend({pid})")


def _paused(health: Health) -> Iterable[Finding]:
    for queue in health.queues:
        if queue.queue_ticker_paused and health.waiting(queue):
            what = f"it is paused, and about {health.waiting(queue)} events wait"
            mend = f"pgq queue resume {quoted(queue.queue_name)}"
            yield Finding("warning", "paused", f"queue {queue.queue_name}", what, mend)


def _given_up(health: Health) -> Iterable[Finding]:
    """Consumers that were removed, and events that their consumers gave up."""
    for gone in health.evictions:
        names = quoted(gone.queue_name, gone.consumer_name)
        what = (
            f"it was evicted at {gone.evicted_at.astimezone():%Y-%m-%d %H:%M:%S} for lagging; what came after tick "
            f"{gone.last_tick} was not delivered to it"
        )
        subject = f"consumer {gone.queue_name}/{gone.consumer_name}"
        yield Finding("warning", "evicted", subject, what, f"pgq consumer register {names}")
    of_jobs = {stats.queue_name: stats.dead for stats in health.jobs.stats}
    for delay in health.delays:
        of_events = delay.dead_letters - of_jobs.get(delay.queue_name, 0)
        if of_events > 0:
            what = f"it has {of_events} dead letter" + ("s" if of_events > 1 else "")
            mend = f"pgq dlq ls {quoted(delay.queue_name)}"
            yield Finding("warning", "dead_letters", f"queue {delay.queue_name}", what, mend)
