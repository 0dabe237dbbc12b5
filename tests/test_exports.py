"""What is public: the names, and what is in the wheel."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import pgq_py
from pgq_py import errors, types

ROOT = Path(__file__).parent.parent

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(pgq_py.__path__, "pgq_py.")
    if not any(part.startswith("_") for part in module.name.split("."))
)


def test_the_list_is_sorted_and_every_name_is_there() -> None:
    assert pgq_py.__all__ == sorted(set(pgq_py.__all__))
    assert [name for name in pgq_py.__all__ if not hasattr(pgq_py, name)] == []


def test_every_error_and_type_is_public() -> None:
    helpers = {"map_error", "translate"}
    assert set(errors.__all__) - helpers <= set(pgq_py.__all__)
    public = {name for name in types.__all__ if getattr(types, name).__module__ == "pgq_py.types"}
    assert public <= set(pgq_py.__all__)


def test_nothing_public_is_left_out_of_the_list() -> None:
    modules = {name.split(".")[1] for name in MODULES}
    # with "@": what pytest leaves in modules that it rewrites, as a plugin of its own
    names = {name for name in vars(pgq_py) if not name.startswith(("_", "@"))} - modules - {"annotations"}
    assert names == set(pgq_py.__all__) - {"__version__"}


@pytest.mark.parametrize("name", MODULES)
def test_every_module_says_what_it_is_and_what_it_exports(name: str) -> None:
    module = importlib.import_module(name)
    assert (module.__doc__ or "").strip()
    assert [entry for entry in getattr(module, "__all__", []) if not hasattr(module, entry)] == []


def test_the_wheel_has_the_sql_and_no_file_twice(tmp_path: Path) -> None:
    """The links at the repository's root lead into the package; they must not bring its files in a second time."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names} == {"pgq_py", f"pgq_py-{pgq_py.__version__}.dist-info"}
    on_disk = {path.relative_to(ROOT).as_posix() for path in (ROOT / "pgq_py").rglob("*.sql")}
    assert on_disk
    assert on_disk <= set(names)
    assert "pgq_py/py.typed" in names


@pytest.mark.parametrize("link", ["schema", "ticker", "consumers"])
def test_the_links_at_the_root_lead_into_the_package(link: str) -> None:
    assert (ROOT / link).is_symlink()
    assert (ROOT / link).resolve() == ROOT / "pgq_py" / link
