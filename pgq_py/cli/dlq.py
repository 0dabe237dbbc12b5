"""`pgq dlq ls | show | replay | purge`: events that their consumers gave up, and jobs.

Those of jobs have the consumer (jobs), which is not one of the names that consumers can be given by accident.
"""

from __future__ import annotations

from typing import Annotated

import typer

from pgq_py.cli._options import Dsn, Json, Yes, client, confirm
from pgq_py.cli._output import Column, ident, note, show_fields, show_object, show_rows
from pgq_py.cli._times import DURATION, duration_of
from pgq_py.types import DeadLetter, DeadLetterId

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Dead letters: list, show, replay, purge.")

JOBS = "(jobs)"

Queue = Annotated[str | None, typer.Option("--queue", "-q", metavar="QUEUE", help="Only of this queue.")]
Consumer = Annotated[
    str | None,
    typer.Option("--consumer", "-c", metavar="CONSUMER", help=f"Only of this consumer; {JOBS}: only jobs."),
]
Type = Annotated[str | None, typer.Option("--type", "-t", metavar="TYPE", help="Only of this type.")]
Ids = Annotated[
    list[int] | None, typer.Argument(metavar="[ID]...", show_default=False, help="Numbers of dead letters.")
]
All = Annotated[bool, typer.Option("--all", help="All that the filters leave.")]

_COLUMNS = (
    Column[DeadLetter]("id", lambda d: ident(d.dl_id)),
    Column[DeadLetter]("queue", lambda d: d.queue_name),
    Column[DeadLetter]("consumer", lambda d: d.consumer_name or JOBS),
    Column[DeadLetter]("type", lambda d: d.ev_type),
    Column[DeadLetter]("attempts", lambda d: d.attempts),
    Column[DeadLetter]("failed_at", lambda d: d.failed_at),
    Column[DeadLetter]("reason", lambda d: d.reason, lambda text: text.strip().rpartition("\n")[2]),
)
_ALL_COLUMNS = (
    *_COLUMNS[:-1],
    Column[DeadLetter]("reason", lambda d: d.reason),
    Column[DeadLetter]("event_id", lambda d: ident(d.ev_id)),
    Column[DeadLetter]("event_time", lambda d: d.ev_time),
    Column[DeadLetter]("retry", lambda d: d.ev_retry),
    Column[DeadLetter]("data", lambda d: d.ev_data),
    Column[DeadLetter]("extra1", lambda d: d.ev_extra1),
    Column[DeadLetter]("extra2", lambda d: d.ev_extra2),
    Column[DeadLetter]("extra3", lambda d: d.ev_extra3),
    Column[DeadLetter]("extra4", lambda d: d.ev_extra4),
)


@app.command("ls")
def ls(  # noqa: PLR0917 - typer calls it by name
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", show_default=False)] = None,
    consumer: Consumer = None,
    event_type: Type = None,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="At most so many.")] = 100,
    after: Annotated[int | None, typer.Option("--after", metavar="ID", help="Only those behind this one.")] = None,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """List dead letters, the oldest first."""
    with client(dsn) as pgq:
        last = None if after is None else DeadLetterId(after)
        found = pgq.dead_letters(queue, _name(consumer), event_type, limit=limit + 1, after=last)
    show_rows(_COLUMNS, found[:limit], as_json=json)
    if len(found) > limit:
        note(f"there are more: --after {found[limit - 1].dl_id} shows the next ones")


@app.command()
def show(
    dead_letter: Annotated[int, typer.Argument(metavar="ID", show_default=False)], dsn: Dsn = None, json: Json = False
) -> None:
    """Show one dead letter: the event, and the whole reason."""
    with client(dsn) as pgq:
        found = pgq.dead_letter(DeadLetterId(dead_letter))
    show_fields(_ALL_COLUMNS, found, as_json=json)


@app.command()
def replay(  # noqa: PLR0917
    ids: Ids = None,
    queue: Queue = None,
    consumer: Consumer = None,
    event_type: Type = None,
    everything: All = False,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Deliver events again, each to the consumer that gave it up, and run jobs again: by their numbers, or --all of a
    --queue."""
    _check_choice(ids, (queue, consumer, event_type), everything=everything)
    if everything and queue is None:
        raise typer.BadParameter("say of which queue", param_hint="'--queue'")
    with client(dsn) as pgq:
        if ids:
            with pgq.transaction() as conn:
                done = len([pgq.replay(DeadLetterId(number), conn=conn) for number in ids])
        else:
            done = pgq.replay_all(queue or "", _name(consumer), event_type)
    show_object({"replayed": done}, f"replayed {done} dead letter{'' if done == 1 else 's'}", as_json=json)


@app.command()
def purge(  # noqa: PLR0917
    ids: Ids = None,
    queue: Queue = None,
    consumer: Consumer = None,
    event_type: Type = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="DURATION", help=f"Only given up before, {DURATION}.")
    ] = None,
    everything: All = False,
    yes: Yes = False,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Drop dead letters for good: by their numbers, or --all that the filters leave."""
    _check_choice(ids, (queue, consumer, event_type, older_than), everything=everything)
    age = None if older_than is None else duration_of(older_than, "'--older-than'")
    with client(dsn) as pgq:
        what = (
            f"dead letters {', '.join(map(str, ids))}" if ids else _described(queue, consumer, event_type, older_than)
        )
        confirm(f"Drop {what} for good?", yes=yes)
        numbers = None if ids is None else [DeadLetterId(number) for number in ids]
        done = pgq.purge(queue, _name(consumer), event_type, older_than=age, ids=numbers)
    show_object({"purged": done}, f"dropped {done} dead letter{'' if done == 1 else 's'}", as_json=json)


def _name(consumer: str | None) -> str | None:
    """As the log has it."""
    return "" if consumer == JOBS else consumer


def _check_choice(ids: list[int] | None, filters: tuple[str | None, ...], *, everything: bool) -> None:
    """Numbers, or --all with filters: a filter alone might be a forgotten number."""
    if bool(ids) is everything:
        raise typer.BadParameter("give either numbers of dead letters, or --all", param_hint="'[ID]...' / '--all'")
    if ids and any(text is not None for text in filters):
        raise typer.BadParameter("filters go with --all, not with numbers", param_hint="'[ID]...'")


def _described(queue: str | None, consumer: str | None, event_type: str | None, older_than: str | None) -> str:
    parts = {"of queue": queue, "of consumer": consumer, "of type": event_type, "older than": older_than}
    return "all dead letters" + "".join(f" {name} {value}" for name, value in parts.items() if value is not None)
