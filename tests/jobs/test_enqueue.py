"""Enqueueing: what arrives in the queue, in whose transaction, and what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import psycopg
import pytest
from psycopg.errors import UniqueViolation

from pgq_py import InvalidArgument, JobContext, NewJob, NotAJobQueue, QueueNotFound
from pgq_py.app import AsyncPgQ, PgQ
from tests.clusters import Database


def payloads(pgq: PgQ, queue: str = "emails") -> list[object]:
    return [json.loads(job.payload) for job in reversed(pgq.list_jobs(queue))]


def test_a_call_becomes_a_job(pgq: PgQ) -> None:
    @pgq.job("emails", max_attempts=5, timeout=2.5, tags=["mail"], result_retention=timedelta(hours=1))
    def welcome(address: str, copies: int = 1) -> None: ...

    handle = welcome.enqueue("a@b.c", copies=2)
    assert handle.created
    status = handle.status()
    assert status is not None
    assert (status.id, status.type, status.state, status.queue_name) == (handle.id, "welcome", "pending", "emails")
    assert json.loads(status.payload) == {"address": "a@b.c", "copies": 2}
    assert status.options == {"max_attempts": 5, "timeout": 2.5, "tags": ["mail"], "result_retention": 3600}
    assert (status.attempt, status.max_attempts, status.priority) == (1, 5, 100)


def test_the_function_can_still_be_called(pgq: PgQ) -> None:
    @pgq.job("emails")
    def double(number: int) -> int:
        """Twice."""
        return 2 * number

    assert double(21) == 42
    assert (vars(double)["__name__"], double.__doc__) == ("double", "Twice.")
    assert payloads(pgq) == []


def test_the_context_is_no_argument(pgq: PgQ) -> None:
    @pgq.job("emails")
    def mail(ctx: JobContext, address: str) -> None: ...

    mail.enqueue("a@b.c")
    assert payloads(pgq) == [{"address": "a@b.c"}]
    with pytest.raises(InvalidArgument):
        mail.with_options().enqueue(address="a@b.c", ctx=1)  # type: ignore[call-arg]


def test_options_of_one_call(pgq: PgQ) -> None:
    @pgq.job("emails", max_attempts=5, priority=30)
    def mail(address: str) -> None: ...

    later = datetime.now(UTC) + timedelta(hours=1)
    urgent = mail.with_options(priority=150, max_attempts=2, tags=["a", "b"], meta={"by": "test"}, traceparent="00-1")
    status = urgent.enqueue("x").status()
    assert status is not None
    assert (status.priority, status.max_attempts) == (150, 2)
    assert status.options == {"max_attempts": 2, "tags": ["a", "b"], "meta": {"by": "test"}, "traceparent": "00-1"}
    at = mail.with_options(run_at=later).enqueue("x").status()
    delayed = urgent.with_options(delay=timedelta(hours=2)).enqueue("x").status()
    assert at is not None
    assert delayed is not None
    assert (at.state, at.run_at, at.priority) == ("scheduled", later, 30)
    assert (delayed.state, delayed.priority) == ("scheduled", 150)
    assert delayed.run_at is not None
    assert timedelta(hours=1, minutes=59) < delayed.run_at - delayed.created_at < timedelta(hours=2, minutes=1)


def test_options_that_cannot_be(pgq: PgQ) -> None:
    @pgq.job("emails")
    def mail(address: str) -> None: ...

    for options in (
        {"run_at": datetime(2030, 1, 1)},  # noqa: DTZ001
        {"run_at": datetime.now(UTC), "delay": timedelta(1)},
        {"delay": timedelta(-1)},
        {"priority": 0},
        {"timeout": 0},
        {"max_attempts": 0},
        {"key": "a\0"},
        {"key_window": timedelta(1)},
    ):
        with pytest.raises(InvalidArgument):
            mail.with_options(**options).enqueue("x")
    assert payloads(pgq) == []


def test_many_in_one_statement(pgq: PgQ) -> None:
    @pgq.job("emails", max_attempts=7)
    def mail(address: str, copies: int = 1) -> None: ...

    handles = mail.enqueue_many(["a", ("b", 2), {"address": "c", "copies": 3}, *map(str, range(1200))])
    assert len({handle.id for handle in handles}) == len(handles) == 1203
    assert [handle.id for handle in handles] == sorted(handle.id for handle in handles)
    first = [pgq.get_job("emails", handle.id) for handle in handles[:3]]
    assert [json.loads(job.payload) for job in first if job] == [
        {"address": "a"},
        {"address": "b", "copies": 2},
        {"address": "c", "copies": 3},
    ]
    assert {job.max_attempts for job in first if job} == {7}
    assert pgq.job_stats("emails")[0].pending == 1203
    assert mail.enqueue_many([]) == []
    with pytest.raises(InvalidArgument):
        mail.enqueue_many("abc")


def test_many_for_later(pgq: PgQ) -> None:
    @pgq.job("emails")
    def mail(address: str) -> None: ...

    handles = mail.with_options(delay=timedelta(hours=1), priority=150).enqueue_many(["a", "b"])
    found = [handle.status() for handle in handles]
    assert [(job.state, job.priority) for job in found if job] == [("scheduled", 150)] * 2


def test_a_key_is_for_one_active_job(pgq: PgQ) -> None:
    @pgq.job("emails", key="import:{path}:{full}")
    def load(path: str, full: bool = False) -> None: ...

    first = load.enqueue("/a")
    again = load.enqueue("/a", full=False)
    other = load.enqueue("/b")
    assert (again.id, again.created, other.created) == (first.id, False, True)
    assert again == first
    status = first.status()
    assert status is not None
    assert status.key == "import:/a:False"
    many = load.enqueue_many(["/c", "/c", "/a"])
    assert [handle.created for handle in many] == [True, False, False]
    assert [handle.id for handle in many] == [many[0].id, many[0].id, first.id]
    assert first.cancel() == "cancelled"
    assert load.enqueue("/a").created


def test_a_key_may_be_a_function_and_have_a_window(pgq: PgQ) -> None:
    @pgq.job("emails", key=lambda address: address or None, key_window=timedelta(hours=1))
    def mail(address: str) -> None: ...

    assert [mail.enqueue(address).created for address in ("a", "a", "", "")] == [True, False, True, True]
    assert mail.with_options(key="other").enqueue("a").created


def test_a_key_that_cannot_be_made(pgq: PgQ) -> None:
    @pgq.job("emails", key="{missing}")
    def mail(address: str) -> None: ...

    with pytest.raises(InvalidArgument, match="missing"):
        mail.enqueue("a")


def test_in_the_callers_transaction(pgq: PgQ, db: Database) -> None:
    @pgq.job("emails")
    def mail(address: str) -> None: ...

    with pgq.transaction() as tx:
        kept = mail.with_options(conn=tx).enqueue("kept")
        assert kept.status() is None
    conn = db.connect(autocommit=False)
    session = SimpleNamespace(connection=lambda: SimpleNamespace(connection=SimpleNamespace(driver_connection=conn)))
    mail.with_options(conn=session).enqueue_many(["a", "b"])
    conn.rollback()
    with suppress(UniqueViolation), pgq.transaction() as tx:
        tx.execute("create table t (x int primary key)")
        mail.with_options(conn=tx).enqueue("lost")
        tx.execute("insert into t values (1), (1)")
    assert payloads(pgq) == [{"address": "kept"}]


@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
def test_at_every_isolation_level(pgq: PgQ, db: Database, level: str) -> None:
    conn = db.connect(autocommit=False)
    conn.isolation_level = psycopg.IsolationLevel[level.upper().replace(" ", "_")]
    with pgq.transaction(conn) as tx:
        assert pgq.enqueue("emails", "mail", {"n": 1}, key="k", conn=tx).created
        assert pgq.enqueue_many("emails", [NewJob("mail", {"n": 2})], conn=tx) == 1
    assert payloads(pgq) == [{"n": 1}, {"n": 2}]


def test_an_absent_queue_says_how_to_create_it(pgq: PgQ) -> None:
    @pgq.job("absent")
    def mail(address: str) -> None: ...

    pgq.create_queue("events")
    for enqueue in (lambda: mail.enqueue("a"), lambda: mail.enqueue_many(["a"]), lambda: pgq.enqueue("absent", "mail")):
        with pytest.raises(QueueNotFound, match="create_job_queue") as caught:
            enqueue()
        assert "pgq run" in caught.value.advice
    with pytest.raises(NotAJobQueue):
        pgq.enqueue("events", "mail")


def test_a_queue_that_was_created_anew_is_found_again(pgq: PgQ, db: Database) -> None:
    """Single jobs go through a function of the queue's own, which went with it."""
    pgq.enqueue("emails", "mail", "old")
    pgq.drop_queue("emails", force=True)
    with pytest.raises(QueueNotFound):
        pgq.enqueue("emails", "mail")
    pgq.create_job_queue("emails")
    pgq.enqueue("emails", "mail", "new")
    pgq.drop_queue("emails", force=True)
    pgq.create_job_queue("emails")
    conn = db.connect(autocommit=False)
    with pytest.raises(QueueNotFound, match="created anew"):
        pgq.enqueue("emails", "mail", conn=conn)
    conn.rollback()
    pgq.enqueue("emails", "mail", "again", conn=conn)
    conn.commit()
    assert payloads(pgq) == ["again"]


def test_by_type_and_payload(pgq: PgQ) -> None:
    done = pgq.enqueue("emails", "mail", [1, None], options={"meta": 1}, key="k")
    assert pgq.enqueue("emails", "mail", key="k") == (done.id, False)
    assert pgq.enqueue_many("emails", [NewJob("mail", key="k"), ("mail", {"a": "é"}), NewJob("mail")]) == 2
    pgq.enqueue("emails", "mail", [1e23, 2**63 - 1])
    assert payloads(pgq) == [[1, None], {"a": "é"}, {}, [1e23, 2**63 - 1]]
    for bad in ({"a": "\0"}, {"a": "\ud800"}, {"a": float("nan")}, object(), [2**63]):
        with pytest.raises(InvalidArgument):
            pgq.enqueue("emails", "mail", bad)
    with pytest.raises(InvalidArgument, match="max_attempts"):
        pgq.enqueue("emails", "mail", options={"max_attempts": "many"})
    with pytest.raises(InvalidArgument):
        pgq.enqueue("emails", "")


def test_every_form_of_a_bulk_job(pgq: PgQ) -> None:
    later = datetime.now(UTC) + timedelta(days=1, microseconds=5)
    jobs = [
        NewJob('quote"d', {"n": 1}, 150),
        NewJob("a", {"n": 2}, run_at=later),
        NewJob("a", {"n": 3}, key='k"', key_window=timedelta(days=1, microseconds=7)),
        NewJob("a", {"n": 4}, options={"tags": ["t"], "meta": 'm"'}),
    ]
    assert pgq.enqueue_many("emails", iter(jobs), chunk_size=3) == 4
    found = {json.loads(job.payload)["n"]: job for job in pgq.list_jobs("emails")}
    assert (found[1].type, found[1].priority) == ('quote"d', 150)
    assert (found[2].state, found[2].run_at) == ("scheduled", later)
    assert not pgq.enqueue("emails", "a", key='k"').created
    assert found[4].options == {"tags": ["t"], "meta": 'm"'}


def test_declarations_that_cannot_be(pgq: PgQ) -> None:
    def mail(address: str) -> None: ...

    pgq.job("emails")(mail)
    with pytest.raises(InvalidArgument, match="twice"):
        pgq.job("emails")(mail)
    pgq.job("emails", type="other")(mail)
    pgq.job("elsewhere")(mail)
    with pytest.raises(InvalidArgument, match="JobContext"):
        pgq.job("emails", type="t", transactional=True)(mail)
    with pytest.raises(InvalidArgument, match="either"):
        pgq.job("emails", type="t", retries=3, max_attempts=2)(mail)
    for options in ({"timeout": -1}, {"max_attempts": 0}, {"retries": "x"}, {"no_retry": [1]}, {"priority": True}):
        with pytest.raises(InvalidArgument):
            pgq.job("emails", type="t", **options)(mail)
    assert set(pgq.job_specs) == {("emails", "mail"), ("emails", "other"), ("elsewhere", "mail")}


def test_a_coroutine_function_on_an_async_facade(db: Database, pgq: PgQ) -> None:
    async def main() -> list[object]:
        async with AsyncPgQ(db.dsn) as facade:

            @facade.job("emails")
            async def mail(ctx: JobContext, address: str) -> None: ...

            one = await mail.enqueue("a")
            many = await mail.with_options(priority=150).enqueue_many(["b", "c"])

            async def calls() -> AsyncIterator[dict[str, str]]:
                yield {"address": "d"}

            more = await mail.enqueue_many(calls())
            async with facade.transaction() as tx:
                await mail.with_options(conn=tx).enqueue("e")
            status = await one.status()
            assert status is not None
            assert facade.job_handle("emails", one.id) == one == mail.handle(one.id)
            return [status.state, len(many), more[0].created]

    assert asyncio.run(main()) == ["pending", 2, True]
    assert sorted(map(str, payloads(pgq))) == sorted(str({"address": letter}) for letter in "abcde")
