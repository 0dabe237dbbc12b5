"""The README's list of what is shown by which test is true: each test named there exists."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent.parent


def test_every_test_that_the_readme_names_exists() -> None:
    named = re.findall(r"`((?:\w+/)?test_\w+\.py)::(test_\w+)`", (TESTS / "README.md").read_text())
    assert len(named) > 60
    missing = []
    for file, test in named:
        path = TESTS / file if "/" in file else TESTS / "engine" / file
        if not path.is_file() or not re.search(rf"^(?:async )?def {test}\(", path.read_text(), re.MULTILINE):
            missing.append(f"{file}::{test}")
    assert missing == []
