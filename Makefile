# `make` prints what there is. Everything needs Python 3.11 or later (PYTHON=… names another) and nothing else.

PYTHON ?= python3
BIN := $(CURDIR)/.venv/bin

.PHONY: help .venv tools run test faults scale cluster model evidence evidence-check bench check schema

help:
	@echo "make run      start everything: http://127.0.0.1:8000, PORT=… for another port"
	@echo "make test     run the tests"
	@echo "make faults   run the whole fault table, with the long waits, side by side"
	@echo "make scale    run the tests of several hosts, of PgBouncer, and of upgrades, side by side"
	@echo "make cluster  kill, freeze and switch over three servers under Patroni, with the service under load"
	@echo "make model    search the protocol's model, and walk it against the real functions"
	@echo "make tools    install what some tests need of the system's packages (Debian, as root)"
	@echo "make evidence run the fault table and KILLS=200 kills against an unpacked source archive, and keep what was seen"
	@echo "make evidence-check DIR=evidence/…   verify such a run from its files alone"
	@echo "make bench    measure everything, other task queues too, and write docs/performance.md: half an hour"
	@echo "make check    all that a change must pass: format, lint, types, schema, tests on two PostgreSQL versions"
	@echo "make schema   write sql/schema.sql from the migrations"
	@echo "make .venv    make the environment alone"

.venv: .venv/installed

.venv/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=…")'
	test -x .venv/bin/python || $(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch .venv/installed

# honcho gives the others 5 seconds once one process has ended: a drain has to fit in. It reads .env, so the
# database that is migrated is asked for through it.
run: export PATH := $(BIN):$(PATH)
run: .venv/installed
	@.venv/bin/honcho run sh -c 'test -z "$$DATABASE_URL" || exec python -m sql migrate'
	@export TALLY_DRAIN_SECONDS="$${TALLY_DRAIN_SECONDS:-4}" \
	        TALLY_DRAIN_RESERVE_SECONDS="$${TALLY_DRAIN_RESERVE_SECONDS:-1}" && \
	exec .venv/bin/honcho start --port "$${PORT:-8000}"

test: .venv/installed
	.venv/bin/python -m pytest -n 3

faults: .venv/installed
	.venv/bin/python -m pytest tests/faults -m 'long or not long' -n 4

scale: .venv/installed
	.venv/bin/python -m pytest -m scale -n 4

cluster: .venv/installed
	.venv/bin/python -m pytest -m cluster

model: .venv/installed
	.venv/bin/python -m pytest -m model -n 2

# None of them is started: the tests start their own, and stop only those.
tools:
	apt-get update --quiet
	RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --no-install-recommends \
	    pgbouncer etcd-server iproute2 wrk

KILLS ?= 200

evidence: .venv/installed
	.venv/bin/python -m evidence run --kills $(KILLS)

evidence-check: .venv/installed
	.venv/bin/python -m evidence check $(DIR)

bench: .venv/installed
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,bench]'
	.venv/bin/python -m bench --out docs/performance
	.venv/bin/python -m bench peers peer_pickup --peers-in bench/runs/peers --out docs/performance
	.venv/bin/python -m bench report docs/performance

check: .venv/installed
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/python -m tests.support.schema --check
	.venv/bin/python -m pytest -n 3
	TALLY_TEST_PG_BIN="$$(.venv/bin/python -c 'from sql.binaries import wheel_binaries; print(wheel_binaries())')" \
	    .venv/bin/python -m pytest -n 3 tests/sql tests/lifecycle

schema: .venv/installed
	.venv/bin/python -m tests.support.schema
