"""Benchmark runs: what to run, and how to read it, is in README.md beside this file. The harness is `pgq_py.bench`."""
