"""How many jobs a second does a loop of plain SQL get done? Beside the table that everybody builds first.

Eight clients of pgbench complete what they have and claim the next n jobs, again and again, every commit durable; a job
is nothing but its payload of 120 bytes. Two ways lead through the log: `procedure` (what `worker_procedure` names, in
two transactions) and `function` (`complete_and_claim`, in one). The third is the table: claimed with `for update skip
locked` over a partial index, n rows at a time, and deleted when they are done.

More jobs wait than are done, so no round ends early. What was done is counted in the database.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from pgq_py import embedded
from pgq_py._binaries import environ
from pgq_py.bench.job_ways import BASELINE
from pgq_py.bench.live import QUEUE
from pgq_py.bench.results import Line, Promise, Result, Spread
from pgq_py.bench.rounds import Progress, alternate, silent
from pgq_py.bench.targets import connect, target
from pgq_py.errors import PgqError

__all__ = ["BOUNDS", "LoopParameters", "LoopResult", "run_loop"]

BOUNDS: Final = {1: 1.2, 10: 1.5, 100: 4.0}
"""What the procedure gets done of what the table gets done, by jobs per claim."""

_ENOUGH: Final = {1: 20_000, 10: 110_000, 100: 600_000}
"""Jobs that wait for each second of a round, by jobs per claim; several times what has been seen."""

_SCRIPTS: Final = {
    "procedure": "call pgq.{procedure}(nullif(:c, 0), nullif(:t, 0), null, 'bench', {n}) \\gset r_\n"
    "\\set c :r_claim_id\n\\set t :r_token\n",
    "function": "select coalesce(claim_id, 0) as c, coalesce(token, 0) as t"
    " from pgq.complete_and_claim(nullif(:c, 0), nullif(:t, 0), '" + QUEUE + "', 'bench', {n}) \\gset\n",
    "table": "with taken as (update public.jobs"
    " set status = 'running', locked_by = 'bench', locked_at = now(), attempts = attempts + 1"
    " where id in (select id from public.jobs where status = 'pending' and visible_at <= now()"
    " order by priority desc, visible_at, id limit {n} for update skip locked) returning id)"
    " select quote_literal(coalesce(array_agg(id), '{{}}')) as ids from taken \\gset\n"
    "delete from public.jobs where id = any (:ids::bigint[]);\n",
}


@dataclass(frozen=True, slots=True)
class LoopParameters:
    """Each round lasts `seconds`. Without `bounds`, only jobs that are lost or done twice break a promise."""

    clients: int = 8
    seconds: int = 4
    rounds: int = 3
    claims: tuple[int, ...] = (1, 10, 100)
    bounds: bool = True


@dataclass(frozen=True, slots=True)
class LoopResult(Result):
    """Jobs per second by way and jobs per claim ("procedure, n = 10"), and the ratios to the table of the same turn."""

    jobs_per_second: dict[str, Spread]
    ratios: dict[str, Spread]

    def lines(self) -> list[Line]:
        return [
            *(Line.of(name, spread, "jobs/s") for name, spread in self.jobs_per_second.items()),
            *(Line.of(name, spread, "ratio") for name, spread in self.ratios.items()),
        ]


def run_loop(
    parameters: LoopParameters | None = None, *, dsn: str | None = None, progress: Progress = silent
) -> LoopResult:
    """Run the benchmark on a server of its own, or in a new database on the server of `dsn`."""
    chosen = parameters or LoopParameters()
    program = _pgbench()
    rates: dict[str, Spread] = {}
    ratios: dict[str, Spread] = {}
    promises: list[Promise] = []
    with target(dsn) as place, connect(place.dsn) as conn:
        conn.execute(BASELINE.prepare)
        loop = _Loop(conn, place.dsn, program, chosen)
        for n in chosen.claims:
            ways: dict[str, Callable[[], float]] = {way: partial(loop.rate, way, n) for way in _SCRIPTS}
            taken = alternate(ways, chosen.rounds, f"n = {n}", progress)
            rates |= {f"{way}, n = {n}": Spread.of(runs) for way, runs in taken.items()}
            for way in ("procedure", "function"):
                ratios[f"{way} / table, n = {n}"] = Spread.of_ratio(taken[way], taken["table"])
            bound = BOUNDS.get(n, 0.0) if chosen.bounds else 0.0
            ratio = ratios[f"procedure / table, n = {n}"].median
            promises.append(Promise(f"procedure / table, n = {n}", ratio, bound, at_least=True))
        accounts = "jobs known of those enqueued"
        promises += [Promise(accounts, loop.found, loop.enqueued, at_least=at_least) for at_least in (True, False)]
        return LoopResult(
            place.record("loop", asdict(chosen)), promises=tuple(promises), jobs_per_second=rates, ratios=ratios
        )


def _pgbench() -> Path:
    """That of the embedded server, else the first on the PATH."""
    own = embedded.Server().tool("pgbench")
    found = own if own.exists() else shutil.which("pgbench")
    if found is None:
        raise PgqError("pgbench was not found", advice="Install PostgreSQL's programs; on Debian: postgresql-contrib.")
    return Path(found)


class _Loop:
    """Rounds of pgbench. `enqueued` counts the jobs of the log in all rounds, `found` those that the database knew
    afterwards: done, claimed or waiting."""

    def __init__(self, conn: psycopg.Connection[Any], dsn: str, pgbench: Path, parameters: LoopParameters) -> None:
        self.enqueued = self.found = 0
        self._conn, self._dsn, self._pgbench, self._parameters = conn, dsn, pgbench, parameters

    def rate(self, way: str, n: int) -> float:
        """Fill a new queue, or the table, and work at it. Jobs done a second."""
        waiting = int(_ENOUGH.get(n, 4_500 * n) * self._parameters.seconds / 1000 + 1) * 1000
        done = self._table(n, waiting) if way == "table" else self._log(way, n, waiting)
        return done / self._parameters.seconds

    def _table(self, n: int, waiting: int) -> int:
        conn = self._conn
        conn.execute("truncate public.jobs")
        conn.execute(
            "insert into public.jobs (type, payload)"
            " select 'bench', to_jsonb(repeat('x', 118)) from generate_series(1, %s)",
            [waiting],
        )
        conn.execute("vacuum analyze public.jobs")
        self._run(_SCRIPTS["table"].format(n=n))
        ((left,),) = conn.execute("select count(*) from public.jobs").fetchall()
        return waiting - int(left)

    def _log(self, way: str, n: int, waiting: int) -> int:
        conn = self._conn
        conn.execute("select pgq.drop_queue(queue_name, true) from pgq.queue where queue_name = %s", [QUEUE])
        conn.execute("select pgq.create_job_queue(%s)", [QUEUE])
        for _ in range(0, waiting, 1000):
            conn.execute(
                "select count(*) from pgq.enqueue_many(%s, (select jsonb_agg(jsonb_build_object("
                "'type', 'bench', 'payload', repeat('x', 118))) from generate_series(1, 1000)))",
                [QUEUE],
            )
        conn.execute("select pgq.ticker(%s)", [QUEUE])
        ((procedure,),) = conn.execute("select pgq.worker_procedure(%s)", [QUEUE]).fetchall()
        self._run(_SCRIPTS[way].format(n=n, procedure=procedure))
        stats = "select completed, completed + pending + running from pgq.get_job_stats(%s)"
        ((done, known),) = conn.execute(stats, [QUEUE]).fetchall()
        self.enqueued += waiting
        self.found += int(known)
        return int(done)

    def _run(self, script: str) -> None:
        """For some seconds. The DSN goes through the environment, where `ps` does not show it."""
        clients = self._parameters.clients
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "loop.sql"
            path.write_text(script)
            command = [
                str(self._pgbench),
                "--no-vacuum",
                f"--file={path}",
                f"--client={clients}",
                f"--jobs={min(clients, 2)}",
            ]
            command += [f"--time={self._parameters.seconds}", "--define=c=0", "--define=t=0"]
            done = subprocess.run(command, env=self._environment(), capture_output=True, text=True, check=False)
        if done.returncode:
            # a claim of nothing leaves its script without numbers, which is a syntax error to it
            advice = f"If it ran out of jobs, measure for fewer seconds. It said: {done.stderr[-2000:]}"
            raise PgqError("pgbench failed", advice=advice)

    def _environment(self) -> dict[str, str]:
        names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "dbname": "PGDATABASE", "password": "PGPASSWORD"}
        known = conninfo_to_dict(self._dsn)
        return {**environ(self._pgbench.parent), **{names[key]: str(known[key]) for key in names if known.get(key)}}
