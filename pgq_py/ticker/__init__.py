"""The process behind `pgq ticker`: ticks, and maintenance."""

from __future__ import annotations

from pgq_py.ticker.loop import Ticker

__all__ = ["Ticker"]
