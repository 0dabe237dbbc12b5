"""The twins are what the tool makes of their sources, and the tool does what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.async_to_sync import transform

ROOT = Path(__file__).parents[2]


def test_no_twin_is_stale() -> None:
    command = [sys.executable, "tools/async_to_sync.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("source", "twin"),
    [
        ("async def f():\n    await g()  # await it\n", "def f():\n    g()  # it\n"),
        ("async with (a, b) as c:\n    pass\n", "with (a, b) as c:\n    pass\n"),
        ("x = [y async for y in z]\n", "x = [y for y in z]\n"),
        ("from p._async.m import AsyncThing, connect_async\n", "from p._sync.m import Thing, connect\n"),
        ('"""An AsyncThing; async with it."""\n', '"""An Thing; with it."""\n'),
        ("class _AsyncX:\n\n    # kept\n\n    a = 1\n", "class _X:\n\n    # kept\n\n    a = 1\n"),
        ("await_count = asynchronous = 1\n", "await_count = asynchronous = 1\n"),
        ("if x:\n    if y:\n        await z\n    await w\n", "if x:\n    if y:\n        z\n    w\n"),
    ],
)
def test_the_rules(source: str, twin: str) -> None:
    assert transform(source) == twin
