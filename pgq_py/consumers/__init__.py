"""Fan-out consumers: what `@pgq.consumer` declares, and the workers that run it."""

from __future__ import annotations

from pgq_py.consumers.runner import AsyncRunner, Runner
from pgq_py.consumers.spec import ConsumerSpec, consumer_spec

__all__ = ["AsyncRunner", "ConsumerSpec", "Runner", "consumer_spec"]
