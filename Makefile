# The one door to every task; CI runs exactly these targets.
SHELL := /bin/bash
PYTHON ?= python3
PY := .venv/bin/python
PYTEST := $(PY) -m pytest
JOBS ?= 2
SEEDS ?= 1-4000

.DEFAULT_GOAL := help
.PHONY: help test check cluster oracle bench format requirements clean

help: ## What each target does
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

.venv/ready: requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "nobiru needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Set PYTHON=/path/to/python3.11"; exit 2; }
	@echo "installing the pinned dependencies into .venv (about a minute, once)"
	$(PYTHON) -m venv .venv
	@# The file names everything that is needed; older pip would else look for extras by itself, and find newer releases.
	.venv/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/dev.txt
	.venv/bin/pip check --quiet
	.venv/bin/pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

test: .venv/ready ## Fast tests: unit, property, docs (no services to install)
	$(PYTEST) tests/unit tests/property tests/docs -n $(JOBS)

check: .venv/ready ## Lint, format, types, import contracts, documentation in step with the code
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	$(PY) -m tests.docs.verify

cluster: .venv/ready ## Build (once, cached) and start a real control plane, and run the tests that need it
	$(PY) -m tests.cluster.controlplane build
	$(PYTEST) tests/cluster --timeout=300

oracle: .venv/ready ## Compare the filters with the real kube-scheduler's, one random case for each of SEEDS=FIRST-LAST
	$(PY) -m tests.oracle $(SEEDS)

bench: .venv/ready ## Time the fast paths against their targets; writes build/bench.json
	$(PY) -m tests.bench

format: .venv/ready ## Format the code and fix what the linter can fix
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

requirements: ## Pin the dependencies again (needs uv)
	uv pip compile --universal --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --no-annotate \
	  --python-version 3.11 --extra sim --group dev pyproject.toml --quiet --output-file requirements/dev.txt

clean: ## Remove what these targets made, but for the control plane's cache
	rm -rf .venv build .pytest_cache .mypy_cache .ruff_cache
