# Every target sets up what it needs; a second run starts within seconds.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Tests at a time: on 2 cores there is always one that waits for something.
AT_ONCE ?= 3

unexport PYTHONDONTWRITEBYTECODE  # or every process of the tests compiles everything anew

.DEFAULT_GOAL := help
.PHONY: help demo up check test coverage test-full bench lock clean

help: ## show this list
	@echo "Tidemill: a persist-first bulk job engine on PostgreSQL"
	@echo
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY) ## import three files of 100,000 rows into tables of an embedded PostgreSQL
	@$(BIN)/tidemill demo

up: $(READY) ## start the database, the HTTP API and a worker for the demo app, until Ctrl-C
	@$(BIN)/tidemill up

check: $(READY) ## ruff, mypy strict, import-linter
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check ## check, then the tests
	$(BIN)/pytest -n $(AT_ONCE) --dist worksteal -m "not full"

coverage: $(READY) ## the same tests, and how much of the code they reach
	@rm -f .coverage .coverage.*
	$(BIN)/pytest -n $(AT_ONCE) --dist worksteal -m "not full" --cov --cov-report=
	@$(BIN)/coverage report --fail-under=85

test-full: $(READY) ## the slow suites at their full size (minutes of chaos, a million rows)
	$(BIN)/pytest -m full

bench: $(READY) ## measure the engine against bare COPY in one run
	@$(BIN)/tidemill bench items

lock: $(READY) ## resolve requirements.lock anew (hashes, no index address)
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --extra dev --extra build --universal --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-header --quiet --upgrade -o requirements.lock

clean: ## remove the virtual environment and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.*

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Tidemill needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Say which: make PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing the locked dependencies into $(VENV) ..."
# The lock names everything, so pip has nothing to resolve (--no-deps): asked to, it prefers a newer release than the locked one
# where a package is wanted with an extra, and then refuses it for want of a hash. `pip check` says if the lock lacks something.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m pip --disable-pip-version-check check >/dev/null || { $(BIN)/python -m pip check; exit 1; }
	@touch $@
