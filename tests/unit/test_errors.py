"""Errors: the class comes from the SQLSTATE a real server sends, and every class can be acted upon."""

from __future__ import annotations

import pickle

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import TupleRow

from pgq_py import errors
from tests.clusters import Database

pytestmark = pytest.mark.newest

CLASSES = sorted(
    (cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, errors.PgqError)),
    key=lambda cls: cls.__name__,
)
OWN_CODES = {
    "PQ001": errors.QueueNotFound,
    "PQ002": errors.ConsumerNotRegistered,
    "PQ003": errors.BatchNotFound,
    "PQ004": errors.QueuePaused,
    "PQ005": errors.InsertDisabled,
    "PQ006": errors.InvalidArgument,
    "PQ007": errors.WrongIsolationLevel,
    "PQ008": errors.PositionGone,
    "PQ009": errors.ConsumersAttached,
    "PQ010": errors.ForeignCluster,
    "PQ011": errors.ExternalTicker,
    "PQ012": errors.EngineInconsistent,
    "PQ020": errors.ClaimLost,
    "PQ021": errors.ScheduleNotFound,
    "PQ022": errors.WorkerEnded,
    "PQ023": errors.NotAJobQueue,
    "PQ024": errors.KeyTaken,
    "PQ025": errors.ResultExpired,
    "40001": errors.SlotClosed,
}


@pytest.fixture
def conn(empty_db: Database) -> psycopg.Connection[TupleRow]:
    return empty_db.connect()


def raising(code: str, hint: str = "") -> sql.Composed:
    """A statement that fails with that code, as the engine's do."""
    body = "begin raise exception 'boom' using errcode = {}, hint = {}; end"
    return sql.SQL("do $$ " + body + " $$").format(sql.Literal(code), sql.Literal(hint))


@pytest.mark.parametrize(("code", "cls"), OWN_CODES.items())
def test_each_code_has_its_class(conn: psycopg.Connection[TupleRow], code: str, cls: type[errors.PgqError]) -> None:
    with pytest.raises(cls) as caught, errors.translate():
        conn.execute(raising(code))
    assert type(caught.value) is cls
    assert caught.value.sqlstate == code
    assert caught.value.message == "boom"
    assert isinstance(caught.value.__cause__, psycopg.Error)


def test_the_engine_s_hint_replaces_the_general_advice(conn: psycopg.Connection[TupleRow]) -> None:
    with pytest.raises(errors.QueueNotFound) as caught, errors.translate():
        conn.execute(raising("PQ001", hint="did you mean orders?"))
    assert str(caught.value) == "boom\ndid you mean orders?"


@pytest.mark.parametrize(
    ("statement", "cls"),
    [
        ("select pgq.version()", errors.SchemaMissing),
        ("select from pgq.queue", errors.SchemaMissing),
        ("create schema pgq; select pgq.version()", errors.SchemaOutdated),
    ],
)
def test_a_missing_or_old_schema(
    conn: psycopg.Connection[TupleRow], statement: str, cls: type[errors.PgqError]
) -> None:
    with pytest.raises(cls) as caught, errors.translate():
        conn.execute(statement.encode())
    assert type(caught.value) is cls
    assert caught.value.exit_code == 4
    assert "pgq " in caught.value.advice


@pytest.mark.parametrize(
    "statement",
    [
        "select 1/0",
        "do $$ begin perform from no_such_table; end $$",  # somebody's trigger
        "do $$ begin perform no_such_function(); end $$",
    ],
)
def test_other_errors_stay_psycopg_s(conn: psycopg.Connection[TupleRow], statement: str) -> None:
    with pytest.raises(psycopg.Error) as caught, errors.translate():
        conn.execute(statement.encode())
    assert errors.map_error(caught.value) is None


def test_the_server_s_own_serialization_failure_stays_psycopg_s(empty_db: Database) -> None:
    one, two = empty_db.connect(autocommit=False), empty_db.connect()
    two.execute("create table t (n int); insert into t values (0)")
    one.execute("set transaction isolation level repeatable read")
    one.execute("select from t")
    two.execute("update t set n = 1")
    with pytest.raises(psycopg.errors.SerializationFailure), errors.translate():
        one.execute("update t set n = 2")


@pytest.mark.parametrize("dbname", ["no_such_database", "postgres"])
def test_no_connection(empty_db: Database, dbname: str) -> None:
    user = "postgres" if dbname != "postgres" else "no_such_role"
    with pytest.raises(errors.ConnectionFailed) as caught, errors.translate():
        psycopg.connect(empty_db.server.dsn(dbname, user))
    assert caught.value.exit_code == 3


def test_nobody_listening() -> None:
    with pytest.raises(errors.ConnectionFailed), errors.translate():
        psycopg.connect("host=/nonexistent")


def test_a_lost_connection(empty_db: Database) -> None:
    victim = empty_db.connect()
    empty_db.rows("select pg_terminate_backend(%s)", [victim.info.backend_pid])
    for _ in range(2):  # the first statement finds out, the second knows
        with pytest.raises(errors.ConnectionFailed), errors.translate():
            victim.execute("select 1")


@pytest.mark.parametrize("cls", CLASSES)
def test_every_class_says_what_it_is_and_what_to_do(cls: type[errors.PgqError]) -> None:
    assert cls.__name__ in errors.__all__
    assert cls.__name__ in str(errors.__doc__)
    assert str(cls.__doc__).strip()
    assert cls.exit_code in {1, 3, 4}
    if cls is not errors.PgqError:
        assert cls.default_advice.endswith((".", "`."))


@pytest.mark.parametrize("cls", CLASSES)
def test_errors_survive_pickling(cls: type[errors.PgqError]) -> None:
    error = cls("what", advice="then", sqlstate="PQ999")
    twin = pickle.loads(pickle.dumps(error))
    assert (type(twin), twin.message, twin.advice, twin.sqlstate) == (cls, "what", "then", "PQ999")


def test_an_invalid_argument_is_a_value_error() -> None:
    assert issubclass(errors.InvalidArgument, ValueError)
