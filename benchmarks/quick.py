"""This project's own three benchmarks in a short form, for a first look and for continuous integration: two minutes.

    python -m benchmarks                  the ratios, and the promises
    python -m benchmarks --json DIR       also writes DIR/cycle.json and so on, complete

The promises are the same as in a full run; short runs scatter more. Exit status 1 when one is broken.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from pgq_py.bench import (
    ConsumeParameters,
    CycleParameters,
    ProduceParameters,
    Result,
    run_consume,
    run_cycle,
    run_produce,
)

SHORT: dict[str, Callable[[], Result]] = {
    "cycle": lambda: run_cycle(CycleParameters(cycles=1_200, pin_xmin=True, rotation_seconds=1, slot_kib=256)),
    "produce": lambda: run_produce(ProduceParameters(rounds=5)),
    "consume": lambda: run_consume(ConsumeParameters(rounds=5)),
}


def main(directory: Path | None) -> int:
    """Run them; complete results go to `directory`. 1 when a promise was broken."""
    ok = True
    for name, run in SHORT.items():
        print(f"{name} ...", file=sys.stderr)
        result = run()
        ok = ok and result.ok
        _show(result)
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / f"{name}.json").write_text(json.dumps(result.as_json(), indent=2) + "\n")
    return 0 if ok else 1


def _show(result: Result) -> None:
    for line in result.lines():
        if line.unit == "ratio":
            spread = "" if line.low is None else f"   ({line.low:.3g} to {line.high:.3g})"
            print(f"  {line.figure:58} {line.value:8.3g}{spread}")
    for promise in result.promises:
        print(f"  {'kept  ' if promise.kept else 'BROKEN'} {promise}")
