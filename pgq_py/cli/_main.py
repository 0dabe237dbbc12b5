"""The tree of verbs, and the entry point."""

from __future__ import annotations

from typing import Annotated

import typer

from pgq_py import __version__
from pgq_py.cli import bench_compare, capture, config, consumer, cron, dlq, jobs, queue, worker
from pgq_py.cli._boundary import boundary
from pgq_py.cli._options import Dsn, Given, Json
from pgq_py.cli.adopt import adopt
from pgq_py.cli.demo import demo
from pgq_py.cli.dev import dev
from pgq_py.cli.doctor import doctor
from pgq_py.cli.install import install, uninstall, upgrade
from pgq_py.cli.run import run
from pgq_py.cli.send import send
from pgq_py.cli.status import status
from pgq_py.cli.tail import tail
from pgq_py.cli.ticker import ticker

__all__ = ["app", "main"]

app = typer.Typer(
    name="pgq",
    help="An event log and queue inside PostgreSQL.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for verb in (install, upgrade, uninstall, adopt, status, doctor, ticker, run, dev, demo, send, tail):
    app.command()(verb)
app.add_typer(queue.app, name="queue")
app.add_typer(consumer.app, name="consumer")
app.add_typer(jobs.app, name="jobs")
app.add_typer(cron.app, name="cron")
app.add_typer(worker.app, name="worker")
app.add_typer(dlq.app, name="dlq")
app.add_typer(capture.app, name="capture")
app.add_typer(config.app, name="config")
app.add_typer(bench_compare.app, name="bench")


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"pgq {__version__}")
        raise typer.Exit


@app.callback()
def _before_the_verb(
    ctx: typer.Context,
    dsn: Dsn = None,
    json: Json = False,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and end.")
    ] = False,
) -> None:
    ctx.obj = Given(dsn, json)


def main() -> None:
    """Run `pgq` with the process's arguments, and end the process with its exit status."""
    with boundary():
        app(prog_name="pgq")
