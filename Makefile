# Works with nothing but Python 3.11 or later and make. Everything is installed into .venv, nothing beside it.
# Another Python: make PYTHON=python3.13 setup

PYTHON ?= python3
PYTEST_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
SMOKE := .smoke
INSTALL := -m pip --disable-pip-version-check install --quiet

# A stamp is touched when its installation has ended well: each runs once, and again after pyproject.toml.
INSTALLED := $(VENV)/.installed
INSTALLED_DEV := $(VENV)/.installed-dev

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow check fmt smoke clean

help: ## List what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(INSTALLED_DEV) ## Create .venv with all that development needs

demo: $(INSTALLED) ## Run a whole session on this machine's own tool outputs: no key, no network
	@$(BIN)/buoyline demo

test: $(INSTALLED_DEV) ## Run the tests
	@$(BIN)/pytest $(PYTEST_ARGS)

test-slow: $(INSTALLED_DEV) ## Run all tests, the slow ones too, with many more generated examples
	@$(BIN)/pytest -m "slow or not slow" --hypothesis-profile=ci --timeout=1800 $(PYTEST_ARGS)

check: $(INSTALLED_DEV) ## Check format, lint, types and floors
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/basedpyright
	$(BIN)/lint-imports --no-logo

fmt: $(INSTALLED_DEV) ## Format, and fix what can be fixed without asking
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Installs as a user does: from the built wheel, without the tools for development. So a dependency or a file
# that the package lacks is found here. The first line fails where a name in the root shadows one of Python's.
smoke: ## Check that the package works when installed on its own
	$(PYTHON) -c "import gzip, tarfile, zipfile"
	rm -rf $(SMOKE)
	$(PYTHON) -m venv $(SMOKE)
	$(SMOKE)/bin/python $(INSTALL) .
	$(SMOKE)/bin/buoyline --help > /dev/null
	$(SMOKE)/bin/buoyline preview LICENSE > /dev/null
	rm -rf $(SMOKE)

clean: ## Remove caches and what was built; .venv stays
	rm -rf $(SMOKE) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -path ./$(VENV) -prune -o -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "buoyline needs Python 3.11 or later; name one as in: make PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(INSTALLED): pyproject.toml | $(BIN)/pip
	$(BIN)/python $(INSTALL) --editable .
	@touch $@

$(INSTALLED_DEV): pyproject.toml | $(BIN)/pip
	$(BIN)/python $(INSTALL) --editable '.[dev]'
	@touch $(INSTALLED) $@
