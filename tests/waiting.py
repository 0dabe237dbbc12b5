"""Waiting for a condition with a deadline: the only way in which a test waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg

T = TypeVar("T")


def wait_until(condition: Callable[[], T], timeout: float = 30.0, what: str = "the condition") -> T:
    """Call until the result is true, and return it; fail with `what` at the deadline.

    A test that passes never waits for it, and machines stall for many seconds: it is long.
    """
    deadline = time.monotonic() + timeout
    while True:
        if result := condition():
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not hold within {timeout:g} s")
        time.sleep(0.005)


def wait_blocked(observer: psycopg.Connection[Any], pid: int, timeout: float = 30.0) -> list[int]:
    """Wait until the backend `pid` waits for a lock; return who holds it. `observer` must be in autocommit mode."""

    def blockers() -> list[int]:
        row = observer.execute("select pg_blocking_pids(%s)", [pid]).fetchone()
        return list(row[0]) if row else []

    return wait_until(blockers, timeout, f"backend {pid} waiting for a lock")
