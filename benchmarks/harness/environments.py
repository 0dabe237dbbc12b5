"""An environment for each peer, so that its dependencies stay out of ours and out of each other's.

They are made once, with pip from the package index, below PGQ_BENCH_CACHE (default: ~/.cache/pgq-py/peers), named after
what is in them. A peer whose packages or interpreter are not to be had is absent.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.peers.adapter import Adapter

__all__ = ["Unavailable", "cache", "find_python", "interpreter"]

_NEWEST = 15
_PIP_SECONDS = 300


class Unavailable(Exception):
    """Why a peer's environment cannot be made."""


def cache() -> Path:
    """Where environments are kept."""
    chosen = os.environ.get("PGQ_BENCH_CACHE")
    path = Path(chosen) if chosen else Path.home() / ".cache" / "pgq-py" / "peers"
    path.mkdir(parents=True, exist_ok=True)
    return path


def interpreter(cls: type[Adapter]) -> Path:
    """The Python of a peer's environment. Our own for what has no requirements. Raises Unavailable."""
    if not cls.requirements:
        return Path(sys.executable)
    base = find_python(cls.python)
    if base is None:
        raise Unavailable(f"needs Python {'.'.join(map(str, cls.python))}, and none was found")
    wanted = "\n".join([str(base), *sorted(cls.requirements)])
    main = re.sub(r"[^\w.-]+", "-", cls.requirements[-1].partition("[")[0])
    target = cache() / f"{main}-{hashlib.sha256(wanted.encode()).hexdigest()[:10]}"
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / "complete").exists():
            _make(base, target, cls.requirements)
    return target / "bin" / "python"


def _make(base: Path, target: Path, requirements: tuple[str, ...]) -> None:
    shutil.rmtree(target, ignore_errors=True)
    _run([str(base), "-m", "venv", str(target)])
    pip = [str(target / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, *requirements])
    (target / "complete").touch()


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_PIP_SECONDS)
    except subprocess.CalledProcessError as exc:
        lines = [line for line in exc.stderr.splitlines() if line.startswith("ERROR")] or exc.stderr.splitlines()
        raise Unavailable(f"pip failed: {lines[-1] if lines else exc}") from exc
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise Unavailable(f"its environment could not be made: {exc}") from exc


def find_python(least: tuple[int, int]) -> Path | None:
    """An interpreter of at least that version: our own, or one on the PATH or of pyenv's. None when there is none."""
    if sys.version_info[:2] >= least:
        return Path(sys.executable)
    names = [f"python3.{minor}" for minor in range(least[1], _NEWEST)]
    found = [Path(path) for name in names if (path := shutil.which(name))]
    for name in names:
        found += sorted((Path.home() / ".pyenv" / "versions").glob(f"{name.removeprefix('python')}*/bin/python"))
    return next((path for path in found if _runs(path)), None)


def _runs(path: Path) -> bool:
    """A shim on the PATH may stand for an interpreter that is not there."""
    return subprocess.run([path, "-c", ""], check=False, capture_output=True).returncode == 0
