"""`python -m pgq_py` is the command `pgq`: unmistakably this package's, where another puts a script of that name on
PATH."""

from __future__ import annotations

from pgq_py.cli import main

if __name__ == "__main__":
    main()
