"""`pgq demo`: the log's main job on real traffic, proved at the end."""

from __future__ import annotations

from pgq_py.demo.proof import Promise
from pgq_py.demo.result import Options, Result, Sample
from pgq_py.demo.run import run_demo

__all__ = ["Options", "Promise", "Result", "Sample", "run_demo"]
