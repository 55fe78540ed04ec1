# The front door. `make help` lists the targets; CI runs the same ones and nothing else.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PY ?= python3
BIN := .venv/bin
UV = $(shell command -v uv 2>/dev/null || echo .tools/bin/uv)
seed ?=
minutes ?= 15
pythons ?= 3.12 3.13 3.14

.PHONY: help setup run test check fmt torture chaos test-pythons agents-test bench constraints clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: .venv/.ready ## make .venv with the package, the holdfast command and the test tools

.venv/.ready: pyproject.toml constraints.txt
	@echo "Installing holdfast into .venv; this takes about half a minute the first time."
	@scripts/get-uv.sh "$(PY)"
	@test -x $(BIN)/python || $(UV) venv --quiet --python "$(PY)" .venv
	@$(UV) pip install --quiet --python $(BIN)/python --constraint constraints.txt --compile-bytecode \
	  --group dev --editable '.[all]'
	-@$(BIN)/python -m compileall -q src
	@touch $@
	@echo "Ready. To use it: source .venv/bin/activate"

run: setup ## the main job on the embedded default: a run is killed, resumed and shown
	@$(BIN)/python -m holdfast.cli.demo

test: setup ## every test; crash points, and the stores of tests for several, are sampled with a printed seed (seed=7 repeats one)
	@scripts/test.sh "$(seed)"

check: setup ## format, lint, types, layers, layout, unit and conformance tests
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@PYTHONPATH=src $(BIN)/lint-imports --no-cache > .venv/lint-imports.log || { cat .venv/lint-imports.log; exit 1; }
	@$(BIN)/python scripts/check-layout.py
	@$(BIN)/python -m pytest -q -n 2 tests/unit tests/conformance

fmt: setup ## format and fix what can be fixed
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

torture: setup ## every crash point on every store (long)
	@HOLDFAST_TORTURE=1 $(BIN)/python -m pytest -q -n 2 --timeout=7200 tests/crash tests/integration/agents/calls/test_crash.py tests/integration/agents/tools/test_crash.py tests/integration/agents/coding_agent/test_crash.py tests/integration/agents/calls/test_served_crash.py tests/conformance tests/integration/engine tests/integration/workspace/test_kill.py tests/integration/workspace/test_merge_kill.py tests/integration/workspace/test_merge_options.py tests/integration/api/live/test_feed.py tests/integration/api/live/test_torture.py

chaos: setup ## three machines that die, stop and lose the network, and a Postgres that crashes (minutes=15, seed=7)
	@HOLDFAST_SEED=$(or $(seed),$$RANDOM) HOLDFAST_TEST_CHAOS_MINUTES=$(minutes) $(BIN)/python -m pytest -q -s --timeout=7200 tests/chaos

test-pythons: setup ## units, contracts and interrupts on other versions of Python (pythons="3.12 3.13 3.14")
	@scripts/test-pythons.sh $(pythons)

agents-test: setup ## install real coding agents into .coding-agents and test them against fakes of their providers
	@scripts/test-coding-agents.sh .coding-agents

bench: setup ## measure against peers and the disk's raw limits, and write the README's table
	@scripts/bench.sh

constraints: setup ## resolve the pinned versions anew, the bench's peers with them
	@$(UV) pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-header --no-annotate \
	  --group dev --extra all pyproject.toml --upgrade -o constraints.txt
	@$(UV) pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-header --no-annotate \
	  --constraint constraints.txt --extra all pyproject.toml benchmarks/peers.in --upgrade -o benchmarks/requirements.txt
	@$(UV) pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-header --no-annotate \
	  benchmarks/programs/prefect.in --upgrade -o benchmarks/programs/requirements.txt

clean: ## remove what setup made
	rm -rf .venv .tools .bench-venv .bench-venv-prefect .coding-agents .venv-pythons
