"""The command `pgq`.

One module per noun; a verb parses its options, makes one call of the package and shows the answer. What all verbs have
in common is in four places: the options `--dsn` and `--json` (`_options`), the way answers are written (`_output`), the
way errors are (`_boundary`), and the tree of verbs (`_main`).

Exit status: 0 done, 1 failed or unhealthy, 2 wrong usage, 3 no connection, 4 schema missing or old, 130 interrupted.
"""

from __future__ import annotations

from pgq_py.cli._main import main

__all__ = ["main"]
