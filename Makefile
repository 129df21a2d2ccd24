# Everything that a developer does, in one place. `make` alone lists it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install java demo test test-core test-spark test-kills test-mechanisms test-threads lint bench-core bench-apps bench-spark bench-continuous compare soak peers simulate docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## create .venv with Peregrine, PySpark and tools; does nothing when it is up to date

# The stamp is written last: an installation that broke off is done again. What pip leaves of itself (tmp*cacert.pem)
# goes with the temporary directory that it is given.
$(STAMP): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: install Python 3.11 or newer, or say make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) ($$($(PYTHON) --version 2>&1)) is too old: Peregrine needs Python 3.11 or newer; say make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) lacks venv: install it first (on Debian and Ubuntu the package python3-venv)" >&2; exit 1; }
	@echo "installing into $(VENV); PySpark is large (about 450 MB), so the first time takes minutes"
	@mkdir -p $(VENV)/tmp
	@TMPDIR=$(CURDIR)/$(VENV)/tmp $(PYTHON) -m venv $(VENV)
	@rm -f $@.failed
	@{ TMPDIR=$(CURDIR)/$(VENV)/tmp PYTHONUNBUFFERED=1 $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --editable '.[dev]' 2>&1 || touch $@.failed; } | awk '$(PIP_NOISE) {next} {print "  " $$0; fflush()}'
	@test ! -e $@.failed || { rm -f $@.failed; echo "the installation failed: see above" >&2; exit 1; }
	@rm -rf $(VENV)/tmp
	@touch $@

# What pip says of every package that is there already; what it downloads and builds is worth telling.
PIP_NOISE := /^ *(Requirement already|Looking in|Collecting|Obtaining|Using cached|Preparing|Getting|Installing build|Installing backend|Checking if|Created wheel|Stored in|Attempting|Found existing|Uninstalling|Successfully uninstalled)/

java: install ## find the Java that Spark needs; root installs it where apt-get is
	@$(BIN)/python -m peregrine.spark.java >/dev/null

demo: java ## watch two reconfigurations on routers and Spark, and the proof (about 90 s)
	@$(BIN)/peregrine demo

# Files of tests/spark go first, each to one worker, and all others fill up what is left of the workers' time. There is one
# worker more than two cores would have: tests with processes wait for these most of their time.
test: java ## run all tests
	@$(BIN)/python -m pytest -n 3 --dist loadgroup

test-core: install ## run the tests that need nothing but Python
	@$(BIN)/python -m pytest -n 2 --dist worksteal --ignore tests/spark

test-spark: java ## run the tests on Spark, in two sessions
	@$(BIN)/python -m pytest -n 2 --dist loadfile tests/spark

test-kills: java ## kill every part in every phase of a migration or a tree change, on Spark; takes half an hour or more
	@PEREGRINE_KILLS=all $(BIN)/python -m pytest tests/spark/test_kills.py tests/spark/test_per_site.py tests/spark/test_tree_changes.py tests/spark/test_tree_changes_faults.py tests/spark/test_roaming.py

test-mechanisms: java ## move the applications by each mechanism that fits them, on Spark; takes a quarter of an hour
	@PEREGRINE_MECHANISMS=all $(BIN)/python -m pytest tests/spark/test_mechanisms.py

test-threads: install ## read placements for a minute while plans are checked and carried out
	@PEREGRINE_THREADS_S=60 $(BIN)/python -m pytest -s tests/control/test_driver_threads.py

lint: install ## check style, format and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy --strict src

bench-core: install ## measure the core on this machine
	@$(BIN)/python -m peregrine.bench

bench-apps: install ## measure applications on the host, without Spark; takes two minutes
	@$(BIN)/python -m peregrine.bench.apps --json build/bench-apps.json

bench-spark: java ## measure the data plane on this machine against its targets; takes half an hour
	@$(BIN)/python -m peregrine.bench.spark --json build/bench-spark.json

bench-continuous: java ## measure the continuous runner against micro-batches; takes six minutes
	@$(BIN)/python -m peregrine.bench.spark --only continuous --json build/bench-continuous.json

compare: java ## is this tree as fast as the commit BASE? Ten pairs of runs that take turns, in about half an hour
	@$(BIN)/python -m peregrine.bench.compare --base $(or $(BASE),$(error say make compare BASE=commit)) --json build/compare.json

soak: java ## half an hour at 5,000 rows/s with a move every 5 s, every result looked at
	@$(BIN)/python -m peregrine.bench.spark.soak --json build/soak.json

peers: install ## install PyFlink and Bytewax beside Peregrine, to be measured in `peregrine bench run peers` (1 GB)
	@$(BIN)/python -m peregrine.bench.peers.build

simulate: install ## search 2000 seeds for a run that differs from one without reconfiguration
	@$(BIN)/peregrine simulate --seeds 2000

# Written aside first: a generator that fails leaves the old page.
docs: install ## regenerate docs/mechanisms.md from the code
	@mkdir -p docs
	@$(BIN)/python -m peregrine.core.mechanisms > docs/mechanisms.md.new && mv docs/mechanisms.md.new docs/mechanisms.md || { rm -f docs/mechanisms.md.new; exit 1; }

clean: ## remove .venv, caches and build output
	@rm -rf $(VENV) .venv-peers build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -path ./.git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
