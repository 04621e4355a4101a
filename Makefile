# Two commands matter: `make demo` and `make test`.  Both set up what they need.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# TypeScript peers are tested against where there is Node.
NODE_READY = $(if $(shell command -v npm),tests/node/node_modules/.ready)

.DEFAULT_GOAL := help
.PHONY: help demo test check fix bench clean

help:            ## what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/'

demo: $(VENV)/.demo    ## small MCP servers behind one endpoint, ready to be tried
	$(BIN)/python examples/demo.py

test: check $(VENV)-legacy/.ready $(NODE_READY)    ## everything: lint, types, contracts, tests
	$(BIN)/python -m pytest

check: $(VENV)/.all    ## lint, types and the contracts between the rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fix: $(VENV)/.all      ## format, and mend what the linter can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.all    ## speed and memory, a line of JSON each; needs wrk (docs/operations.md tells more)
	$(BIN)/python -m benchmarks

clean:                 ## remove what was set up
	rm -rf $(VENV) $(VENV)-legacy tests/node/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "mcp-federator needs Python 3.11 or newer; $(PYTHON) is older. Say: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[demo]'
	@touch $@

$(VENV)/.all: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[demo,test,check]'
	@touch $@ $(VENV)/.demo

# The two generations of the SDK cannot share an environment.
$(VENV)-legacy/.ready: Makefile
	$(PYTHON) -m venv $(VENV)-legacy
	$(VENV)-legacy/bin/python -m pip install --quiet --disable-pip-version-check 'mcp>=1.30,<2'
	@touch $@

tests/node/node_modules/.ready: tests/node/package.json
	cd tests/node && npm install --silent --no-audit --no-fund --no-package-lock
	@touch $@
