"""`pgq worker ls`: who works jobs."""

from __future__ import annotations

import json as jsonlib

import typer

from pgq_py.cli._job_columns import WORKERS
from pgq_py.cli._options import Dsn, Json, client
from pgq_py.cli._output import Column, objects, show_rows, write_json
from pgq_py.job_types import WorkerInfo

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Workers of jobs: list.")

_INFO = Column[WorkerInfo]("info", lambda w: jsonlib.dumps(w.info) if w.info else None)


@app.callback()
def _group() -> None:
    """So that `ls` is a verb of its own, although it is the only one."""


@app.command("ls")
def ls(dsn: Dsn = None, json: Json = False) -> None:
    """List workers that send heartbeats, and those that ended within a day.

    A silent one has missed more than half of its lease; a lost one was declared dead, and others do its jobs.
    """
    with client(dsn) as pgq:
        found = pgq.workers()
    if json:
        write_json([{**facts, "info": w.info} for facts, w in zip(objects(WORKERS, found), found, strict=True)])
    else:
        show_rows((*WORKERS, _INFO), found, as_json=False)
