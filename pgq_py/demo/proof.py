"""What the demo promises, and the proof of it: SQL over what has been committed, not counters of the processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from pgq_py.demo import statements
from pgq_py.demo.subscribers import COUNTER, MIRROR

__all__ = ["Facts", "Promise", "dead_tuples", "gather", "promises"]


@dataclass(frozen=True, slots=True)
class Facts:
    """What the database says when all traffic is over.

    `transfers` are pgbench's transactions by its own history, `applied` the events that each consumer committed,
    `differences` the rows that are in the accounts or in the mirror, and not in both. `jobs` are those that took
    effect, `job_differences` those that should have and did not, or did too often.
    """

    accounts: int
    transfers: int
    applied: dict[str, int]
    differences: int
    dead_tuples: int
    dead_tuples_elsewhere: int
    jobs: int
    job_differences: int


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise, whether it held, and the numbers."""

    name: str
    held: bool
    text: str


def dead_tuples(conn: psycopg.Connection[Any]) -> tuple[int, int]:
    """Dead rows in schema pgq, and in all other tables, as far as the sessions have reported them."""
    dead, elsewhere = _row(conn, statements.DEAD_TUPLES)
    return int(dead), int(elsewhere)


def gather(conn: psycopg.Connection[Any], dead_before: int = 0) -> Facts:
    """Ask the database. Dead rows in schema pgq that were there before the first event do not count."""
    applied = {MIRROR: 0, COUNTER: 0, **dict(conn.execute(statements.COUNT_APPLIED).fetchall())}
    dead, elsewhere = dead_tuples(conn)
    return Facts(
        accounts=_row(conn, statements.COUNT_ACCOUNTS)[0],
        transfers=_row(conn, statements.COUNT_TRANSFERS)[0],
        applied=applied,
        differences=_row(conn, statements.COUNT_DIFFERENCES)[0],
        dead_tuples=dead - dead_before,
        dead_tuples_elsewhere=elsewhere,
        jobs=_row(conn, statements.COUNT_RECEIPTS)[0],
        job_differences=_row(conn, statements.COUNT_RECEIPT_DIFFERENCES)[0],
    )


def promises(
    facts: Facts, *, transactions: int, rotations: int, left: int, horizon_age: int | None
) -> tuple[Promise, ...]:
    """Judge. `transactions` is pgbench's own count, `left` the events still in the log, `horizon_age` how many
    transactions the horizon is behind, None when it has moved."""
    counts = ", ".join(f"{name} {count:,}" for name, count in facts.applied.items())
    once = facts.transfers == transactions and all(count == transactions for count in facts.applied.values())
    pinned = horizon_age is not None and horizon_age >= transactions
    dead = f"{facts.dead_tuples} (in the other tables: {facts.dead_tuples_elsewhere:,})"
    judged = (
        ("mirror", facts.differences == 0 and facts.accounts > 0, "the mirror equals pgbench_accounts, row by row: "
         f"{facts.differences} of {facts.accounts:,} differ"),
        ("delivery", once and transactions > 0, f"each of {transactions:,} transactions came once: {counts}"),
        ("jobs", facts.job_differences == 0 and facts.jobs > 0, f"each of {facts.jobs:,} jobs took effect once: "
         f"{facts.job_differences} differ from pgbench_history, row by row"),
        ("rotation", rotations >= 1, f"the log rotated: {rotations} times"),
        ("space", left == 0, f"what was delivered takes no space: {left} events left in the log"),
        ("bloat", facts.dead_tuples == 0, f"no dead tuples in schema pgq: {dead}"),
        ("horizon", pinned, f"the xmin horizon was pinned all the while: {horizon_age or 0:,} transactions"),
    )  # fmt: skip
    return tuple(Promise(*one) for one in judged)


def _row(conn: psycopg.Connection[Any], query: Any) -> Sequence[Any]:
    row: Sequence[Any] | None = conn.execute(query).fetchone()
    assert row is not None
    return row
