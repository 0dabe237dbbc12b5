"""A peer's process: obeys one JSON command a line, answers with one line each.

    BENCH_DSN=... BENCH_OPTIONS='{...}' python -P serve.py benchmarks.peers.pgmq:Pgmq

It runs in the peer's own environment, so this file knows the standard library alone. A command is `{"do": NAME,
...arguments}`, an answer `{"ok": ...}` or `{"error": ...}`. Everything else that is written to stdout goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from importlib import import_module
from pathlib import Path
from time import monotonic, perf_counter
from typing import IO, Any

# At the end of the path: nothing of this project shall hide a library of the peer's.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks.peers.adapter import Adapter
from benchmarks.peers.load import Message, messages, summary

__all__ = ["Commands", "main"]

LANES = 8
PER_LANE = 150
"""So many messages a second are sent by one session at most."""


class Recorder:
    """What a receiver was handed, and when. What must be parsed is parsed afterwards.

    It keeps nothing that the garbage collector has to walk through: thousands of dictionaries that no real receiver
    would keep make a collection of some ten ms, in the middle of a peer that hands over dictionaries.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[Any, float | None, float]] = []

    def __call__(self, payload: Any) -> None:
        at = monotonic()
        self.seen.append((payload["nr"], payload["due"], at) if type(payload) is dict else (payload, None, at))


class Running:
    """A method that runs in a thread until it is stopped: a worker, or what runs in the background."""

    def __init__(self, call: Any) -> None:
        self.stop, self.ready, self.error = threading.Event(), threading.Event(), ""
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Any) -> None:
        try:
            call(self.stop, self.ready)
        except BaseException:
            self.error = traceback.format_exc()
        self.ready.set()

    def await_ready(self, seconds: float) -> None:
        if not self.ready.wait(seconds):
            raise TimeoutError(f"not ready within {seconds} s")
        self.check()

    def check(self) -> None:
        if self.error:
            raise RuntimeError(self.error)

    def wait(self, seconds: float) -> None:
        """For its end, however that is."""
        self._thread.join(seconds)

    def join(self) -> None:
        """Wait for its own end."""
        self._thread.join()
        self.check()

    def end(self, seconds: float = 20) -> None:
        self.stop.set()
        self._thread.join(seconds)
        self.check()


class Commands:
    """The commands of one process."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._made: dict[int, list[Message]] = {}
        self._recorder = Recorder()
        self._running: Running | None = None
        self._sending: Running | None = None
        self._sent: dict[str, Any] = {}
        self._lanes: list[Adapter] = []

    def versions(self) -> dict[str, str]:
        return {"python": sys.version.split()[0], **self._adapter.versions()}

    def install(self) -> None:
        self._adapter.install()

    def prepare(self, consumers: int) -> None:
        self._adapter.prepare(consumers)

    def make(self, first: int, count: int, seed: int) -> None:
        """Render messages for a later `send`, outside its time."""
        self._made = {first: messages(first, count, seed)}

    def send(self, first: int, how: str) -> float:
        """Send what was made for `first`: `single`, `pipelined` or `bulk`. Seconds."""
        batch = self._made.pop(first)
        call = getattr(self._adapter, f"send_{how}")
        begin = perf_counter()
        call(batch)
        return perf_counter() - begin

    def contents(self) -> dict[str, Any]:
        found = [self._adapter.decode(payload)["nr"] for payload in self._adapter.contents()]
        self._adapter.clear()
        return summary(found)

    def seal(self) -> None:
        self._adapter.seal()

    def read(self, consumer: int) -> dict[str, Any]:
        begin = perf_counter()
        payloads = self._adapter.read(consumer)
        seconds = perf_counter() - begin
        return {"seconds": seconds, **summary(self._adapter.decode(payload)["nr"] for payload in payloads)}

    def unfinished(self) -> bool:
        return self._adapter.unfinished()

    def work(self, batch: int) -> None:
        """Start to receive."""
        self._recorder = recorder = Recorder()
        self._running = Running(lambda stop, ready: self._adapter.work(recorder, stop, ready, batch))
        self._running.await_ready(60)

    def background(self) -> list[int]:
        """Start what runs beside producers and consumers; the processes that do it."""
        self._running = Running(self._adapter.background)
        self._running.await_ready(60)
        return [os.getpid(), *children(os.getpid())]

    def progress(self) -> int:
        """How many messages were handed over so far."""
        if self._running is not None:
            self._running.check()
        return len(self._recorder.seen)

    def stop(self) -> None:
        if self._running is not None:
            self._running.end()
            self._running = None

    def leave(self) -> None:
        """Nobody asks any more: end what runs, as far as it ends within a second or two."""
        for running in (self._running, self._sending):
            if running is not None:
                running.stop.set()
                running.wait(2)
        for lane in self._lanes:
            lane.close()

    def received(self) -> dict[str, Any]:
        """What was handed over, and when: numbers, and pairs of intended and actual time."""
        times, numbers = [], []
        for seen, due, at in self._recorder.seen:
            data = {"nr": seen, "due": due} if due is not None else self._adapter.decode(seen)
            numbers.append(data["nr"])
            times.append([data["due"], at])
        return {**summary(numbers), "times": times}

    def schedule(self, first: int, seed: int, start: float, offsets: list[float]) -> None:
        """Send on time, whatever happens, from several sessions; `sent` tells how that went. They stay for the next."""
        due = [start + offset for offset in offsets]
        batch = messages(first, len(due), seed, due)
        rate = len(due) / max(offsets[-1], 0.001) if offsets else 1
        lanes = max(1, min(LANES, round(rate / PER_LANE + 0.5)))
        spent: list[tuple[float, float]] = []
        errors: list[str] = []
        while len(self._lanes) < lanes:
            self._lanes.append(type(self._adapter)(self._adapter.dsn, self._adapter.options))

        def run(stop: threading.Event, ready: threading.Event) -> None:
            ready.set()
            threads = [
                threading.Thread(target=send_lane, args=(self._lanes[nth], batch[nth::lanes], spent, stop, errors))
                for nth in range(lanes)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self._sent = {"sent": len(spent), "spent": spent, "errors": errors}

        self._sending = Running(run)

    def sent(self) -> dict[str, Any]:
        """Wait for the end of the schedule: how many were sent, and intended time and seconds of each call."""
        if self._sending is not None:
            self._sending.join()
            self._sending = None
        return self._sent

    def break_off(self) -> None:
        """Send no more."""
        if self._sending is not None:
            self._sending.stop.set()

    def populate(self, queues: int, consumers: int, backlog: int) -> None:
        self._adapter.populate(queues, consumers, backlog)

    def steps(self, first: int, count: int, seed: int) -> list[dict[str, float]]:
        return [self._adapter.step(message) for message in messages(first, count, seed)]

    def pids(self) -> list[int]:
        return [os.getpid(), *children(os.getpid())]


def send_lane(
    adapter: Adapter, batch: list[Message], spent: list[Any], stop: threading.Event, errors: list[str]
) -> None:
    """One session's part of the schedule."""
    try:
        for message in batch:
            due = message.data["due"]
            if (ahead := due - monotonic()) > 0:
                time.sleep(ahead)
            if stop.is_set():
                break
            begin = monotonic()
            adapter.send(message)
            spent.append((due, monotonic() - begin))
    except Exception:
        errors.append(traceback.format_exc())


def children(pid: int) -> list[int]:
    """Direct children, from /proc; none where there is no /proc."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(status.parent.name))
    return found


def load(name: str) -> type[Adapter]:
    """`package.module:Class`."""
    module, _, cls = name.partition(":")
    found: type[Adapter] = getattr(import_module(module), cls)
    return found


def serve(commands: Commands, answers: IO[str]) -> None:
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"ok": getattr(commands, request.pop("do"))(**request)}
        except Exception as exc:
            answer = {"error": f"{type(exc).__name__}: {exc}", "traceback": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def main(name: str) -> None:
    answers, sys.stdout = sys.stdout, sys.stderr
    adapter = load(name)(os.environ["BENCH_DSN"], json.loads(os.environ.get("BENCH_OPTIONS", "{}")))
    commands = Commands(adapter)
    try:
        serve(commands, answers)
    finally:
        commands.leave()
        adapter.close()
    os._exit(0)  # whatever threads a peer has left behind


if __name__ == "__main__":
    main(sys.argv[1])
