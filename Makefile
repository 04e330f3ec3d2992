# Works with nothing but Python 3.11 or later and make. Everything is installed into .venv, nothing beside it.
# Another Python: make PYTHON=python3.13 setup
# Uses uv if it is on the PATH, else pip. To use pip in any case: make UV= setup

PYTHON ?= python3
UV ?= $(shell command -v uv 2>/dev/null)
PYTEST_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
SMOKE := .smoke

# $(call venv,DIRECTORY) creates an environment; $(call install,DIRECTORY) begins the command that installs into it.
# The versions are those of constraints/, so an installation resolves nothing and a new release breaks no clone.
ifneq ($(UV),)
venv = $(UV) venv --quiet --seed --python $(PYTHON) $(1)
install = $(UV) pip install --python $(1)/bin/python
DURATION := "with uv: half a minute"
else
venv = $(PYTHON) -m venv $(1)
install = $(1)/bin/python -m pip --disable-pip-version-check install --progress-bar off
DURATION := "with pip: about two minutes (half a minute if uv is installed)"
endif

# A stamp is touched after its installation has succeeded: each runs once, and again if pyproject.toml or its
# constraints change.
INSTALLED := $(VENV)/.installed
INSTALLED_DEV := $(VENV)/.installed-dev

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-lowest check fmt lock docs sizes smoke package clean

help: ## List the targets; the times are for two cores
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(INSTALLED_DEV) ## Create .venv with everything development needs (half a minute with uv, two with pip)

demo: $(INSTALLED) ## Play a recorded session through a context window: no key, no network
	@$(BIN)/buoyline demo

test: $(INSTALLED_DEV) ## Run the tests on all cores (four minutes)
	@$(BIN)/pytest -n auto --dist=worksteal $(PYTEST_ARGS)

test-slow: $(INSTALLED_DEV) ## Run all tests, the slow ones too, with more generated examples (20 minutes)
	@$(BIN)/pytest -n auto --dist=worksteal -m "slow or not slow" --hypothesis-profile=ci --timeout=1800 $(PYTEST_ARGS)

test-lowest: ## Run the tests with the oldest versions that pyproject.toml allows (five minutes)
	$(call venv,.venv-lowest)
	$(call install,.venv-lowest) --constraint constraints/lowest.txt --editable '.[test-integrations]'
	.venv-lowest/bin/pytest -n auto --dist=worksteal $(PYTEST_ARGS)

check: $(INSTALLED_DEV) ## Check format, lint, types, floors, constraints and budgets (a minute)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/basedpyright
	$(BIN)/lint-imports --no-logo
	$(BIN)/python scripts/check_constraints.py
	$(BIN)/python scripts/sizes.py

fmt: $(INSTALLED_DEV) ## Format, and fix what ruff can fix by itself
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

LOCKING := $(or $(UV),$(BIN)/uv)
COMPILE = $(LOCKING) pip compile --quiet --upgrade --universal --python-version 3.11 --no-annotate \
	--custom-compile-command "make lock" pyproject.toml

# The core takes its versions from dev.txt: both environments hold the same ones.
lock: $(LOCKING) ## Renew the versions in constraints/ (ten seconds)
	$(COMPILE) --extra dev --output-file constraints/dev.txt
	$(COMPILE) --extra test --constraint constraints/dev.txt --output-file constraints/core.txt
	$(COMPILE) --extra test-integrations --resolution lowest-direct --output-file constraints/lowest.txt

docs: $(BIN)/python ## Build the site from docs/ into site/ (half a minute)
	$(call install,$(VENV)) --quiet '.[docs]'
	$(BIN)/mkdocs build --quiet
	@echo "open site/index.html"

sizes: $(INSTALLED_DEV) ## Print the sizes of the source beside their budgets, and the calls of one result
	@$(BIN)/python scripts/sizes.py
	@$(BIN)/python scripts/sizes.py --one-result

# Installs as a user does: from the built wheel, without the tools for development. So a dependency or a file
# that the package lacks is found here. The first line fails if a name in the root shadows one of Python's.
smoke: ## Check that the package works when installed on its own (20 seconds)
	$(PYTHON) -c "import gzip, tarfile, zipfile"
	rm -rf $(SMOKE)
	$(call venv,$(SMOKE))
	$(call install,$(SMOKE)) --constraint constraints/core.txt .
	$(SMOKE)/bin/buoyline --help > /dev/null
	$(SMOKE)/bin/buoyline demo > /dev/null
	sed -n '/^```python$$/,/^```$$/{/^```/d;p;}' README.md > $(SMOKE)/readme.py
	cd $(SMOKE) && bin/python readme.py > /dev/null && bin/python readme.py > /dev/null
	rm -rf $(SMOKE)

package: ## Build the wheel and the sdist into dist/, and check them and the workflows (a minute)
	rm -rf dist $(SMOKE)
	$(call venv,$(SMOKE))
	$(call install,$(SMOKE)) --quiet build check-jsonschema twine
	$(SMOKE)/bin/python -m build > /dev/null
	$(SMOKE)/bin/twine check --strict dist/*
	$(SMOKE)/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	rm -rf $(SMOKE)

clean: ## Remove caches and build results; .venv stays
	rm -rf $(SMOKE) .venv-lowest build dist site .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -path ./$(VENV) -prune -o -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "buoyline needs Python 3.11 or later; name one as in: make PYTHON=python3.11" >&2; exit 1; }
	$(call venv,$(VENV))

$(BIN)/uv: | $(BIN)/python
	$(BIN)/python -m pip install --quiet uv

$(INSTALLED): pyproject.toml constraints/core.txt | $(BIN)/python
	@echo "Installing buoyline into $(VENV) (ten seconds with uv, half a minute with pip)"
	$(call install,$(VENV)) --constraint constraints/core.txt --editable .
	@touch $@

$(INSTALLED_DEV): pyproject.toml constraints/dev.txt | $(BIN)/python
	@echo "Installing buoyline and its tools for development into $(VENV)," $(DURATION)
	$(call install,$(VENV)) --constraint constraints/dev.txt --editable '.[dev]'
	@touch $(INSTALLED) $@
