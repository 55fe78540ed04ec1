#!/usr/bin/env bash
# All tests. The order is from quick to slow, so that a plain mistake is seen first.
set -euo pipefail
seed=${1:-}
export HOLDFAST_SEED=${seed:-${HOLDFAST_SEED:-$((RANDOM * 32768 + RANDOM))}}
echo "crash points and orders are sampled with seed $HOLDFAST_SEED (repeat with: make test seed=$HOLDFAST_SEED)"
bin=.venv/bin
# Where Python is told to write no bytecode, every process would compile pytest and its plugins anew: for seconds.
if [ -n "${PYTHONDONTWRITEBYTECODE:-}" ]; then
  unset PYTHONDONTWRITEBYTECODE
  export PYTHONPYCACHEPREFIX=$PWD/.pytest_cache/bytecode
fi
scripts/install-test-tools.sh
"$bin/ruff" format --check --quiet .
"$bin/ruff" check --quiet .
"$bin/mypy" --no-error-summary > .venv/mypy.log 2>&1 &
mypy=$!
PYTHONPATH=src "$bin/lint-imports" --no-cache > .venv/lint-imports.log || { cat .venv/lint-imports.log; exit 1; }
"$bin/python" scripts/check-layout.py
wait "$mypy" || { cat .venv/mypy.log; exit 1; }
# Two workers more than cores, since many tests wait for processes and terminals; each has a Postgres of its own. A plugin
# that comes with the agent framework and serves no test here would take each of them a second to load.
workers=$(($(nproc) + 2))
exec "$bin/python" -m pytest -q -n "$((workers < 8 ? workers : 8))" --dist=worksteal -p no:langsmith_plugin tests
