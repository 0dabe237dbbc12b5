"""The worker: claims jobs, runs them, says what became of them, and keeps its lease while it does.

    feeding     which queue to claim from, when, and how many
    claiming    the connection that claims and listens
    running     slots: coroutines in the event loop, plain functions in threads
    finishing   the connection that says what became of jobs, many at a time
    leasing     the thread that says that the worker is alive, whatever the event loop does

`worker` puts them together.
"""

from pgq_py.jobs.worker.worker import Worker

__all__ = ["Worker"]
