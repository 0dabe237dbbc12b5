"""docs/reference/errors.md: the table of errors, from the classes themselves."""

from __future__ import annotations

import inspect
import re

from pgq_py import errors

__all__ = ["page"]

INTRO = """\
# Errors

Every error that pgq-py raises on purpose is a `PgqError`. The database raises a code, and the code alone chooses the
class: message texts are translated by servers, and change. An error that is none of these stays what psycopg made of
it.

`str(error)` shows the message and, on a second line, the advice: what was kept, and what to do. `error.sqlstate` is the
code, or None where the database was not asked. The command line writes the same two lines to stderr and ends with the
exit code. Where the engine knows more than the class, its own hint is the advice.

| exit code | means |
|---|---|
| 0 | done |
| 1 | failed, or unhealthy |
| 2 | wrong usage |
| 3 | no connection |
| 4 | the schema is missing, old, or not ours |
| 130 | interrupted |

```text
{tree}
```
"""

SECTION = """
## {name}

{meaning}

{sqlstate}, exit code {exit_code}. {advice}
"""

RETRYABLE = """
## What to repeat

`SlotClosed` is the one error here after which the same transaction, run again, succeeds: it asks for the current slot
anew. `send` and `send_many` without `conn=` do that by themselves. `ConnectionFailed` may be repeated too, but a COMMIT
that got no answer may have been done: the repeated event is then a second one.
"""


def page() -> str:
    """The page."""
    return INTRO.format(tree=_tree()) + "".join(_section(cls) for cls in _classes()) + RETRYABLE


def _tree() -> str:
    """The drawing at the head of the module."""
    drawing = re.search(r"^    PgqError\n(?:    .*\n)+", inspect.getdoc(errors) or "", re.MULTILINE)
    assert drawing, "pgq_py.errors has no tree in its docstring"
    return inspect.cleandoc(drawing[0])


def _classes() -> list[type[errors.PgqError]]:
    """All but the base, in the order of the module."""
    found = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, errors.PgqError)]
    return [cls for cls in found if cls is not errors.PgqError]


def _section(cls: type[errors.PgqError]) -> str:
    return SECTION.format(
        name=cls.__name__,
        meaning=_one_paragraph(inspect.getdoc(cls) or ""),
        sqlstate=f"SQLSTATE `{cls.default_sqlstate}`" if cls.default_sqlstate else "SQLSTATE of the server, or none",
        exit_code=cls.exit_code,
        advice=_one_paragraph(cls.default_advice),
    )


def _one_paragraph(text: str) -> str:
    return " ".join(text.split())
