#!/usr/bin/env bash
# All tests. The order is from quick to slow, so that a plain mistake is seen first.
set -euo pipefail
seed=${1:-}
export HOLDFAST_SEED=${seed:-${HOLDFAST_SEED:-$((RANDOM * 32768 + RANDOM))}}
echo "crash points, orders and stores are sampled with seed $HOLDFAST_SEED (repeat with: make test seed=$HOLDFAST_SEED)"
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
# Four workers more than cores, since many tests wait for processes, disks and terminals; each has a Postgres of its own
# and, with a browser, takes about a gigabyte. A plugin that comes with the agent framework and serves no test here would
# take each of them a second to load.
workers=$(($(nproc) + 4))
gigabytes=$(awk '/^MemAvailable:/ {print int($2 / 1048576)}' /proc/meminfo 2>/dev/null || true)
for most in 8 "${gigabytes:-8}"; do workers=$((workers < most ? workers : most)); done
exec "$bin/python" -m pytest -q -n "$((workers > 1 ? workers : 1))" --dist=worksteal -p no:langsmith_plugin tests
