"""SIGTERM and SIGINT ask a long-running command to stop; a second one insists, in the way the process was used to."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["stop_on_signals"]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_on_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` on the first signal within the block.

    Handlers belong to the process's main thread; in any other one the block changes nothing. `stop` runs between two
    bytecodes of the main thread, so it may set an event but take no lock.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous: dict[signal.Signals, Any] = {}

    def restore() -> None:
        while previous:
            signal.signal(*previous.popitem())

    def handle(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
        restore()
        stop()

    for number in _SIGNALS:
        previous[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        restore()
