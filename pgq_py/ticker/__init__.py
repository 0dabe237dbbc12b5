"""The process behind `pgq ticker`: ticks, releases, and maintenance."""

from __future__ import annotations

from pgq_py.ticker.everywhere import TickerEverywhere
from pgq_py.ticker.loop import Ticker

__all__ = ["Ticker", "TickerEverywhere"]
