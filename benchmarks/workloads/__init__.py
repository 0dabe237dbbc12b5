"""One module a question. Each has `run(parameters, request)`, which returns an `Outcome` with its checks and ratios."""

from __future__ import annotations

from typing import Final

__all__ = ["QUESTIONS"]

QUESTIONS: Final = {
    "produce": "How fast do messages get in: one by one, pipelined, in bulk?",
    "consume": "How fast do they get out, to 1, 3 and 10 consumers?",
    "jobs": "How fast are no-op jobs done, by one worker process and by two, claiming 1, 10, 100 at a time?",
    "latency": "How long from the moment a message was meant to be sent to its handler?",
    "idle": "What does it cost when nothing happens?",
    "wal": "How much WAL does a message cost, and a job?",
    "bloat": "What does an old snapshot do to it, and how does it recover?",
    "scale": "What do a tick, a claim and a batch cost with many queues, many consumers, a large backlog?",
}
