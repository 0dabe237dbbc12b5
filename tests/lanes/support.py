"""The vocabulary of the tests of jobs: short names for the SQL functions."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.engine.support import Conn, column, rows, step_until, value

QUEUE = "work"


class Claim(NamedTuple):
    """What claim() returns; `id` is None when there was no job."""

    id: int | None
    token: int
    jobs: list[int]


def create(conn: Conn, *, lease: str | None = None) -> None:
    """A job queue with the usual priorities: 150, 100, 30."""
    assert value(conn, "select pgq.create_job_queue(%s)", QUEUE) == 1
    if lease:
        configure(conn, "lease", lease)


def configure(conn: Conn, name: str, setting: str) -> None:
    assert value(conn, "select pgq.set_job_config(%s, %s, %s)", QUEUE, name, setting) == 1


def enqueue(
    conn: Conn, *types: str, priority: int | None = None, key: str | None = None, **options: object
) -> list[int]:
    """Enqueue jobs; return their ids."""
    query = "select id from pgq.enqueue(%s, %s, '{}', %s, key := %s)"
    return [value(conn, query, QUEUE, kind, priority, key) for kind in types]


def enqueue_many(conn: Conn, n: int, *, priority: int = 100) -> None:
    """So many jobs in one transaction."""
    conn.execute(
        "select count(*) from pgq.enqueue_many(%s, (select jsonb_agg(jsonb_build_object("
        " 'type', g::text, 'priority', %s::int)) from generate_series(1, %s) g))",
        (QUEUE, priority, n),
    )


def claim(conn: Conn, n: int = 1, worker: str | None = None, *, idle: bool = True) -> Claim:
    return Claim(*rows(conn, "select * from pgq.claim(%s, %s, %s, %s)", QUEUE, worker, n, idle)[0])


def claimed(conn: Conn, c: Claim) -> list[tuple[int, str, int, int]]:
    """Id, type, attempt, losses of what is left of a claim."""
    return rows(conn, "select job_id, type, attempt, losses from pgq.claimed(%s, %s)", c.id, c.token)


def types(conn: Conn, c: Claim) -> list[str]:
    return column(conn, "select type from pgq.claimed(%s, %s)", c.id, c.token)


def complete(conn: Conn, c: Claim, *jobs: int) -> int:
    return int(value(conn, "select pgq.complete(%s, %s, %s::bigint[])", c.id, c.token, list(jobs) or None))


def fail(
    conn: Conn, c: Claim, job: int, error: str = "boom", retry_in: str | None = None, *, retryable: bool = True
) -> Any:
    return value(conn, "select pgq.fail(%s, %s, %s, %s, %s, %s)", c.id, c.token, job, error, retry_in, retryable)


def release(conn: Conn, c: Claim, *jobs: int) -> int:
    return int(value(conn, "select pgq.release(%s, %s, %s::bigint[])", c.id, c.token, list(jobs) or None))


def beat(conn: Conn, worker: str, *held: int | None, lease: str = "10 seconds") -> list[tuple[int, int]]:
    """A heartbeat; what somebody wants to cancel."""
    return rows(conn, "select * from pgq.heartbeat(%s, %s::bigint[], %s)", worker, list(held), lease)


def recover(conn: Conn) -> int:
    return int(value(conn, "select pgq.recover()"))


def state(conn: Conn, job: int) -> str | None:
    found: str | None = value(conn, "select (pgq.get_job(%s, %s)).state", QUEUE, job)
    return found


def cancel(conn: Conn, *jobs: int) -> dict[int, str | None]:
    return dict(rows(conn, "select * from pgq.cancel(%s, %s)", QUEUE, list(jobs)))


def drain(conn: Conn, n: int = 100) -> list[str]:
    """Types of all jobs that are ready, in the order in which they come; they are completed."""
    done: list[str] = []
    while (c := claim(conn, n)).id is not None:
        done += types(conn, c)
        complete(conn, c)
    return done


def set_clock(conn: Conn) -> None:
    """Let this database's clock stand still, at what `at` says from now on."""
    conn.execute("create table public.clock (at timestamptz not null)")
    conn.execute("insert into public.clock values (clock_timestamp())")
    conn.execute(
        "create or replace function pgq._clock() returns timestamptz language plpgsql as"
        " $$ begin return (select at from public.clock); end $$"
    )


def pass_time(conn: Conn, seconds: float) -> None:
    conn.execute("update public.clock set at = at + make_interval(secs => %s)", (seconds,))


def watch(conn: Conn, seconds: float, every: float = 2, beating: tuple[str, ...] = ()) -> int:
    """Let time pass while recover() looks, and these workers beat; how many jobs were given back."""
    given_back = 0
    for _ in range(round(seconds / every)):
        pass_time(conn, every)
        for worker in beating:
            conn.execute("select * from pgq.heartbeat(%s)", (worker,))
        given_back += recover(conn)
    return given_back


def rotate_events(conn: Conn) -> None:
    """Take the queue's current slot out of use, with all that is in it: closed, left, truncated."""
    ring = f"event_{value(conn, 'select queue_id from pgq.queue where queue_name = %s', QUEUE)}"
    step_until(conn, ring, "switched")
    value(conn, "select pgq.force_tick(%s)", QUEUE)
    step_until(conn, ring, "closed")
    value(conn, "select pgq.force_tick(%s)", QUEUE)
    step_until(conn, ring, "truncated")
