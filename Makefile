# Everything that a developer does, in one place. `make` alone lists it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install install-spark demo demo-spark test test-spark lint bench-core simulate docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## create .venv with Peregrine and its tools; does nothing when it is up to date

# The stamp is written last: an installation that broke off is done again.
$(STAMP): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: install Python 3.11 or newer, or say make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) ($$($(PYTHON) --version 2>&1)) is too old: Peregrine needs Python 3.11 or newer; say make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) lacks venv: install it first (on Debian and Ubuntu the package python3-venv)" >&2; exit 1; }
	@echo "installing into $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# Spark is large (about 450 MB): until the demonstration and the tests of every day run on it, it is asked for.
install-spark: $(VENV)/.installed-spark ## add PySpark to .venv; Java 17 or 21 must be on the machine

$(VENV)/.installed-spark: $(STAMP)
	@echo "installing PySpark into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,spark]'
	@touch $@

demo: install ## run the demonstration in the simulator
	@$(BIN)/peregrine demo

demo-spark: install-spark ## run the demonstration on router processes and Spark
	@$(BIN)/peregrine demo --spark

test: install ## run the tests that need nothing but Python
	@$(BIN)/python -m pytest -n 2

test-spark: install-spark ## run the tests of the Spark layer, in one session
	@$(BIN)/python -m pytest tests/spark

lint: install ## check style, format and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy --strict src

bench-core: install ## measure the core on this machine
	@$(BIN)/python -m peregrine.bench

simulate: install ## search 2000 seeds for a run that differs from one without reconfiguration
	@$(BIN)/peregrine simulate --seeds 2000

# Written aside first: a generator that fails leaves the old page.
docs: install ## regenerate docs/mechanisms.md from the code
	@mkdir -p docs
	@$(BIN)/python -m peregrine.core.mechanisms > docs/mechanisms.md.new && mv docs/mechanisms.md.new docs/mechanisms.md || { rm -f docs/mechanisms.md.new; exit 1; }

clean: ## remove .venv, caches and build output
	@rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -path ./.git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
