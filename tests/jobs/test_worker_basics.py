"""What a worker does with jobs that behave, and with those that do not."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from datetime import timedelta
from typing import Any

import pytest

from pgq_py.errors import InvalidArgument, NotAJobQueue, QueueNotFound
from pgq_py.jobs.context import JobContext
from pgq_py.jobs.middleware import Middleware
from pgq_py.jobs.worker import Worker
from pgq_py.outcomes import Discard, Retry
from pgq_py.types import RetryPolicy
from tests.clusters import Database
from tests.jobs.working import QUEUE, drain, enqueue, enqueue_many, make_queue, running, settings, spec, state, status
from tests.waiting import wait_until

COUNTS = "select row(completed, failed, cancelled, retried, running)::text from pgq.get_job_stats(%s)"


def counts(db: Database, queue: str = "jobs") -> str:
    value: str = db.value(COUNTS, [queue])
    return value


def test_functions_and_coroutines_run_each_job_once(db: Database) -> None:
    make_queue(db)
    seen: list[tuple[str, int]] = []

    def plain(n: int) -> None:
        seen.append(("plain", n))

    async def coroutine(n: int) -> None:
        if n % 3 == 0:
            await asyncio.sleep(0)
        seen.append(("coroutine", n))

    enqueue_many(db, "plain", [{"n": n} for n in range(700)])
    enqueue_many(db, "coroutine", [{"n": n} for n in range(700)])
    drain(db, spec(plain), spec(coroutine), slots=50)
    assert sorted(seen) == sorted((kind, n) for kind in ("plain", "coroutine") for n in range(700))
    assert counts(db) == "(1400,0,0,0,0)"


def test_a_drained_worker_also_ran_what_its_jobs_enqueued(db: Database) -> None:
    make_queue(db)
    seen: list[int] = []

    def chain(n: int) -> None:
        seen.append(n)
        if n < 5:
            enqueue(db, "chain", n=n + 1)

    enqueue(db, "chain", n=0)
    drain(db, spec(chain))
    assert seen == [0, 1, 2, 3, 4, 5]


def test_slots_bound_what_runs_and_what_is_claimed(db: Database) -> None:
    make_queue(db)
    at_once, most, lock = 0, 0, threading.Lock()

    def change(n: int) -> None:
        nonlocal at_once, most
        with lock:
            at_once += n
            most = max(most, at_once)

    # When four run, nothing must happen for a while: a fifth would begin meanwhile if it were let in.

    def slow() -> None:
        change(1)
        wait_until(lambda: most >= 4)
        time.sleep(0.01)
        change(-1)

    async def wait() -> None:
        change(1)
        await asyncio.to_thread(wait_until, lambda: most >= 4)
        await asyncio.sleep(0.01)
        change(-1)

    for _ in range(20):
        enqueue(db, "slow")
        enqueue(db, "wait")
    drain(db, spec(slow), spec(wait), slots=4)
    assert most == 4
    claims = db.rows("select cardinality(ev_ids) from pgq.claim_ring where kind = 'q' and ev_ids <> '{}'")
    assert all(size <= 4 for (size,) in claims)


def test_no_job_sees_anothers_context_variable(db: Database) -> None:
    make_queue(db)
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
    seen: list[int] = []

    async def leaky(n: int) -> None:
        seen.append(variable.get())
        variable.set(n)

    def plain(n: int) -> None:
        seen.append(variable.get())
        variable.set(n)

    enqueue_many(db, "leaky", [{"n": n} for n in range(1, 50)])
    enqueue_many(db, "plain", [{"n": n} for n in range(1, 50)])
    drain(db, spec(leaky), spec(plain), slots=50)
    assert seen == [0] * 98


def test_failures_are_retried_with_their_traceback(db: Database) -> None:
    make_queue(db)
    delays: list[tuple[int, str]] = []

    def soon(attempt: int, error: BaseException) -> float:
        delays.append((attempt, type(error).__name__))
        return 0.05

    def flaky(ctx: JobContext) -> None:
        if ctx.attempt < 3:
            raise RuntimeError("bad \0 \ud800 day")

    job = enqueue(db, "flaky")
    with running(db, spec(flaky, retries=soon)):
        wait_until(lambda: state(db, job) == "completed")
    assert delays == [(1, "RuntimeError"), (2, "RuntimeError")]
    (error,) = db.rows("select error from pgq.claim_ring where kind = 'f' and outcome = 'retried' limit 1")
    assert "RuntimeError: bad \N{REPLACEMENT CHARACTER} \N{REPLACEMENT CHARACTER} day" in error[0]
    assert "raise RuntimeError" in error[0]


def test_what_is_not_retried(db: Database) -> None:
    make_queue(db)

    def hopeless(how: str, ctx: JobContext) -> None:
        if how == "discard":
            raise Discard("no such customer")
        if how == "no_retry":
            raise LookupError(how)
        if how == "exit":
            raise SystemExit(3)
        raise ValueError(how)

    jobs = {how: enqueue(db, "hopeless", how=how) for how in ("discard", "no_retry")}
    jobs["undecodable"] = enqueue(db, "hopeless", how=1, what=2)
    jobs["no json"] = db.value("select pgq.insert_event('jobs', 'hopeless', 'this is no JSON')")
    retried = [enqueue(db, "hopeless", how=how) for how in ("value", "exit")]
    drain(db, spec(hopeless, no_retry=[LookupError]))
    assert {how: state(db, job) for how, job in jobs.items()} == dict.fromkeys(jobs, "failed")
    assert "no such customer" in status(db, jobs["discard"])["error"]
    assert [state(db, job) for job in retried] == ["retrying", "retrying"]


def test_attempts_are_bounded_and_policies_reach_the_database(db: Database) -> None:
    make_queue(db)
    policy = RetryPolicy(max_retries=2, kind="fixed", base=timedelta(milliseconds=50))

    async def fails(ctx: JobContext) -> None:
        raise Retry(in_=timedelta(0)) if ctx.attempt == 1 else RuntimeError(f"attempt {ctx.attempt}")

    job = enqueue(db, "fails")
    with running(db, spec(fails, retries=policy)):
        wait_until(lambda: state(db, job) == "failed")
    assert status(db, job)["attempt"] == 3
    assert "attempt 3" in status(db, job)["error"]


def test_snoozing_counts_no_attempt(db: Database) -> None:
    make_queue(db)
    runs: list[int] = []

    def later(ctx: JobContext) -> None:
        runs.append(ctx.attempt)
        if len(runs) < 3:
            ctx.snooze(0.01)

    job = enqueue(db, "later")
    with running(db, spec(later)):
        wait_until(lambda: state(db, job) == "completed")
    assert runs == [1, 1, 1]


def test_an_unknown_type_waits_for_a_newer_worker(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    make_queue(db)

    def known() -> None: ...

    strange = [enqueue(db, "strange") for _ in range(3)]
    job = enqueue(db, "known")
    with caplog.at_level(logging.ERROR, "pgq_py.jobs"):
        drain(db, spec(known), slots=2)
    assert [state(db, one) for one in strange] == ["scheduled"] * 3 or [state(db, one) for one in strange] == [
        "retrying"
    ] * 3
    assert state(db, job) == "completed"
    assert len([record for record in caplog.records if "strange" in record.getMessage()]) == 1


def test_results_are_kept_for_those_who_asked(db: Database) -> None:
    make_queue(db)

    def answer(how: str) -> Any:
        return {"text": "a\0b", "number": 2**62} if how == "fine" else object()

    fine, bad = enqueue(db, "answer", how="fine"), enqueue(db, "answer", how="bad")
    drain(db, spec(answer, result_retention=timedelta(minutes=1)))
    result = db.value("select result from pgq.get_result('jobs', %s)", [fine])
    assert result == {"text": "a\N{REPLACEMENT CHARACTER}b", "number": 2**62}
    assert state(db, bad) == "failed"


def test_a_result_that_is_too_large_fails_its_job_alone(db: Database) -> None:
    make_queue(db)

    def answer(size: int) -> str:
        return "x" * size

    small, large = enqueue(db, "answer", size=10), enqueue(db, "answer", size=300_000)
    drain(db, spec(answer, result_retention=timedelta(minutes=1)))
    assert (state(db, small), state(db, large)) == ("completed", "failed")


def test_progress_is_seen_while_the_job_runs(db: Database) -> None:
    make_queue(db)
    go = threading.Event()

    def report(ctx: JobContext) -> None:
        for percent in range(100):
            ctx.progress(percent, "counting", {"n": percent})
        go.wait(30)

    job = enqueue(db, "report")
    with running(db, spec(report)):
        wait_until(lambda: (status(db, job)["progress"] or {}).get("percent") == 99)
        go.set()
        wait_until(lambda: state(db, job) == "completed")
    said = db.value("select count(*) from pgq.claim_ring where kind = 'p'")
    assert said <= 3, "it is throttled"


def test_effects_outside_of_the_database_happen_once(db: Database) -> None:
    make_queue(db)
    sent: list[str] = []

    def mail(ctx: JobContext) -> None:
        if ctx.once("mail"):
            sent.append("function")
        if ctx.attempt == 1:
            raise Retry(in_=timedelta(0))

    async def post(ctx: JobContext) -> None:
        if await ctx.once_async("post"):
            sent.append("coroutine")
        if ctx.attempt == 1:
            raise Retry(in_=timedelta(0))

    jobs = [enqueue(db, "mail"), enqueue(db, "post")]
    with running(db, spec(mail), spec(post)):
        wait_until(lambda: [state(db, job) for job in jobs] == ["completed"] * 2)
    assert sorted(sent) == ["coroutine", "function"]


def test_middleware_is_around_every_job(db: Database) -> None:
    make_queue(db)
    seen: list[str] = []
    middleware = Middleware()
    middleware.before.append(lambda ctx: seen.append(f"before {ctx.type}"))
    middleware.failure.append(lambda ctx, error: seen.append(f"failure {ctx.type} {error}"))

    def good() -> None: ...

    async def bad() -> None:
        raise ValueError("no")

    enqueue(db, "good")
    enqueue(db, "bad")
    drain(db, spec(good), spec(bad, retries=0), middleware=middleware, slots=1)
    assert seen == ["before good", "before bad", "failure bad no"]


def test_timeouts(db: Database) -> None:
    make_queue(db)
    ended = threading.Event()
    cleaned: list[str] = []

    async def stuck() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append("up")

    def slow(ctx: JobContext) -> None:
        wait_until(lambda: ctx.cancelled)
        ended.set()

    coroutine, function = enqueue(db, "stuck"), enqueue(db, "slow")
    with running(db, spec(stuck, timeout=0.05, retries=0), spec(slow, timeout=0.05, retries=0)):
        wait_until(lambda: (state(db, coroutine), state(db, function)) == ("failed", "failed"))
    assert ended.is_set()
    assert cleaned == ["up"]
    assert "timed out after 0.05 s" in status(db, coroutine)["error"]


def test_a_function_that_takes_too_long_keeps_its_slot(db: Database) -> None:
    make_queue(db)
    go, order, contexts = threading.Event(), list[str](), list[JobContext]()

    def slow(ctx: JobContext, n: int) -> None:
        contexts.append(ctx)
        order.append(f"begin {n}")
        go.wait(30)
        order.append(f"end {n}")

    first = enqueue(db, "slow", n=1)
    with running(db, spec(slow, timeout=0.05, retries=0), slots=1):
        wait_until(lambda: order == ["begin 1"])
        enqueue(db, "slow", n=2)
        wait_until(lambda: contexts[0].cancelled, what="its timeout")
        time.sleep(0.05)  # nothing happens: the second job has no slot, and the first is not given up
        assert (order, state(db, first)) == (["begin 1"], "running")
        go.set()
        wait_until(lambda: state(db, first) == "failed")
        wait_until(lambda: order[1:] == ["end 1", "begin 2", "end 2"])


def test_with_a_pause_between_claims_more_come_at_a_time(db: Database) -> None:
    """Jobs that come one by one, faster than that; none waits much longer than the pause."""
    make_queue(db)
    late: list[float] = []

    async def note(sent: float) -> None:
        late.append(time.time() - sent)

    with running(db, spec(note), slots=100, gather=0.1), db.connect() as conn:
        enqueue(db, "note", sent=time.time())
        wait_until(lambda: late)
        before, begin = int(db.value("select pg_sequence_last_value('pgq.claim_id_seq')")), time.time()
        for _ in range(100):
            conn.execute("select pgq.enqueue(%s, 'note', jsonb_build_object('sent', %s::float8))", [QUEUE, time.time()])
            time.sleep(0.005)  # what the senders do: jobs come one by one
        wait_until(lambda: len(late) == 101)
        claims = int(db.value("select pg_sequence_last_value('pgq.claim_id_seq')")) - before
        took = time.time() - begin
    assert claims <= took / 0.1 + 5
    assert max(late) < 2


def test_several_queues_by_their_weights(db: Database) -> None:
    make_queue(db, "often")
    make_queue(db, "seldom")
    order: list[str] = []

    def often() -> None:
        order.append("often")

    def seldom() -> None:
        order.append("seldom")

    enqueue_many(db, "often", [{}] * 400, "often")
    enqueue_many(db, "seldom", [{}] * 400, "seldom")
    drain(db, spec(often, "often"), spec(seldom, "seldom"), slots=5, queues={"often": 4, "seldom": 1})
    assert 60 <= order[:400].count("seldom") <= 100
    assert len(order) == 800


def test_what_is_wrong_at_the_start_is_raised(db: Database) -> None:
    make_queue(db)
    db.value("select pgq.create_queue('events')")

    def job() -> None: ...

    with pytest.raises(QueueNotFound):
        drain(db, spec(job, "nowhere"))
    with pytest.raises(NotAJobQueue):
        drain(db, spec(job, "events"))
    for options in ({"slots": 0}, {"prefetch": 101}, {"lease": 0.5}, {"queues": {"jobs": 0}}):
        with pytest.raises(InvalidArgument):
            Worker(settings(db), [spec(job)], **options)
    with pytest.raises(InvalidArgument):
        Worker(settings(db), [spec(job), spec(job)])
