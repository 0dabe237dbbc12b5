"""The command line of the harness: `python -m benchmarks WORKLOAD [options]`, `all`, `report`, `peers`, `quick`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import quick
from benchmarks.harness.arena import Request
from benchmarks.harness.catalog import PEERS, Absent, resolve
from benchmarks.harness.ground import DEBIAN
from benchmarks.harness.horizons import HORIZONS
from benchmarks.harness.outcome import Outcome
from benchmarks.harness.shows import bars, summary
from benchmarks.workloads import QUESTIONS, bloat, consume, idle, jobs, latency, produce, scale, wal

__all__ = ["main"]

Run = Callable[[argparse.Namespace, Request], Outcome]

_LATENCIES: Final = 500


def _produce(given: argparse.Namespace, request: Request) -> Outcome:
    size = given.messages or 100_000
    parameters = produce.Parameters(size, max(1, size // 5), max(1, size // 100), rounds=given.rounds or 5)
    return produce.run(parameters, request)


def _consume(given: argparse.Namespace, request: Request) -> Outcome:
    return consume.run(consume.Parameters(given.messages or 200_000, rounds=given.rounds or 5), request)


def _jobs(given: argparse.Namespace, request: Request) -> Outcome:
    return jobs.run(jobs.Parameters(given.messages or 20_000, rounds=given.rounds or 3), request)


def _latency(given: argparse.Namespace, request: Request) -> Outcome:
    rates = tuple(given.rates or (20.0, 200.0, 1000.0))
    messages = _LATENCIES if given.messages is None else given.messages
    sizes = latency.Parameters(rates, given.seconds or 20, rounds=given.rounds or 3, messages=messages)
    return latency.run(sizes, request)


def _idle(given: argparse.Namespace, request: Request) -> Outcome:
    return idle.run(idle.Parameters(given.seconds or 60, rounds=given.rounds or 1), request)


def _wal(given: argparse.Namespace, request: Request) -> Outcome:
    return wal.run(wal.Parameters(given.messages or 4_000, rounds=given.rounds or 3), request)


def _bloat(given: argparse.Namespace, request: Request) -> Outcome:
    horizons = tuple(given.horizons or HORIZONS)
    return bloat.run(bloat.Parameters.of(given.minutes or 2, given.rate or 400, horizons), request)


def _scale(given: argparse.Namespace, request: Request) -> Outcome:
    backlog = (0, 10_000, 100_000, 1_000_000, *((10_000_000,) if given.huge else ()))
    queues = (1, 100, 1000, *((10_000,) if given.huge else ()))
    return scale.run(scale.Parameters(queues=queues, backlog=backlog), request)


RUNS: Final[dict[str, Run]] = {
    "produce": _produce,
    "consume": _consume,
    "jobs": _jobs,
    "latency": _latency,
    "idle": _idle,
    "wal": _wal,
    "bloat": _bloat,
    "scale": _scale,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1: something was lost or doubled, or a peer failed."""
    given = _parser().parse_args(arguments)
    verb: Callable[[argparse.Namespace], int] = given.verb
    return verb(given)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Benchmarks beside the peers.")
    parser.set_defaults(verb=lambda _: quick.main(None), json=None)
    parser.add_argument("--json", type=Path, metavar="DIR", help="with no verb: `quick --json DIR`")
    parser.set_defaults(verb=_quick)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")
    for name, question in QUESTIONS.items():
        one = verbs.add_parser(name, help=question, description=question)
        _common(one)
        _sizes(one, name)
        one.set_defaults(verb=_one, workload=name)
    everything = verbs.add_parser("all", help="every workload, and the report", description="Every workload.")
    _common(everything)
    everything.add_argument("--short", action="store_true", help="ten minutes at most, for a first look")
    everything.add_argument("--only", nargs="+", choices=list(RUNS), metavar="WORKLOAD", help="these alone")
    everything.set_defaults(verb=_all)
    report = verbs.add_parser("report", help="pictures and HTML from results", description="Make the report anew.")
    report.add_argument("results", type=Path, help="a directory of results")
    report.add_argument("--into", type=Path, metavar="PAGE.md", help="put tables of the results into this page as well")
    report.set_defaults(verb=_report)
    peers = verbs.add_parser(
        "peers", help="who can be measured here", description="Makes environments, says who is there."
    )
    _places(peers)
    peers.set_defaults(verb=_peers)
    fast = verbs.add_parser("quick", help="this project's own benchmarks in a short form, without peers")
    fast.add_argument("--json", type=Path, metavar="DIR", help="write complete results there")
    fast.set_defaults(verb=_quick)
    return parser


def _places(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--peers", nargs="+", metavar="NAME", help=f"default: all of {', '.join(PEERS)}")
    parser.add_argument("--dsn", help="this server, in new databases, instead of a private one (over TCP)")
    parser.add_argument("--pg-bin", type=Path, metavar="DIR", help="PostgreSQL of the private server")
    parser.add_argument("--pgque-sql", default="", metavar="PATH", help="PgQue's SQL file; absent without")
    parser.add_argument("--pgmq-sql", default="", metavar="PATH", help="PGMQ's SQL file, instead of its client's own")


def _common(parser: argparse.ArgumentParser) -> None:
    _places(parser)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/bench/last"), metavar="DIR", help="where results go")


def _sizes(parser: argparse.ArgumentParser, name: str) -> None:
    if name in ("produce", "consume", "jobs", "wal"):
        parser.add_argument("--messages", type=int, help="messages of the largest turn")
    if name == "latency":
        parser.add_argument("--messages", type=int, help=f"messages at each rate, at least (default {_LATENCIES})")
    if name not in ("bloat", "scale"):
        parser.add_argument("--rounds", type=int, help="turns that count")
    if name in ("latency", "idle"):
        parser.add_argument("--seconds", type=float, help="how long to measure")
    if name == "latency":
        parser.add_argument("--rates", type=float, nargs="+", help="messages a second")
    if name == "bloat":
        parser.add_argument("--minutes", type=float, help="how long the horizon is held")
        parser.add_argument("--rate", type=float, help="messages a second")
        parser.add_argument("--horizons", nargs="+", choices=HORIZONS, metavar="HORIZON", help=", ".join(HORIZONS))
    if name == "scale":
        parser.add_argument("--huge", action="store_true", help="10,000 queues and a backlog of 10 million as well")


def _request(given: argparse.Namespace, progress: Any) -> Request:
    options = {"pgque_sql": given.pgque_sql, "pgmq_sql": given.pgmq_sql}
    found = {name: str(Path(path).resolve()) for name, path in options.items() if path}
    return Request(given.peers, given.dsn, given.pg_bin, found, getattr(given, "seed", 1), progress)


def _one(given: argparse.Namespace) -> int:
    with bars() as progress:
        outcome = RUNS[given.workload](given, _request(given, progress))
    _save(given.out, outcome)
    summary(outcome.as_json())
    return 0 if outcome.ok else 1


def _all(given: argparse.Namespace) -> int:
    from benchmarks.short import SHORT

    ok = True
    for name, run in (SHORT if given.short else RUNS).items():
        if given.only and name not in given.only:
            continue
        print(f"{name}: {QUESTIONS[name]}", file=sys.stderr)
        with bars() as progress:
            outcome = run(_defaults(given, name), _request(given, progress))
        _save(given.out, outcome)
        summary(outcome.as_json())
        ok = ok and outcome.ok
    _make_report(given.out)
    return 0 if ok else 1


def _defaults(given: argparse.Namespace, name: str) -> argparse.Namespace:
    """The options of a workload that `all` does not have."""
    parser = argparse.ArgumentParser()
    _sizes(parser, name)
    return argparse.Namespace(**{**vars(parser.parse_args([])), **vars(given)})


def _save(directory: Path, outcome: Outcome) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{outcome.workload}.json").write_text(json.dumps(outcome.as_json(), separators=(",", ":")) + "\n")


def _report(given: argparse.Namespace) -> int:
    _make_report(given.results)
    if given.into is not None:
        from benchmarks.pictures.markdown import replace
        from benchmarks.pictures.report import read_results

        given.into.write_text(replace(given.into.read_text(), read_results(given.results)))
    return 0


def _make_report(directory: Path) -> None:
    from benchmarks.pictures.report import write_report

    print(f"report: {write_report(directory)}", file=sys.stderr)


def _peers(given: argparse.Namespace) -> int:
    with bars() as progress:
        request = _request(given, progress)
    debian = request.server_binaries() == DEBIAN
    options = {**request.options, "server_major": "15" if debian else "18"}
    for name in given.peers or PEERS:
        found = resolve(name, options)
        print(f"{name:18} {'absent: ' + found.reason if isinstance(found, Absent) else found.python}")
    return 0


def _quick(given: argparse.Namespace) -> int:
    return quick.main(given.json)
