#!/usr/bin/env bash
# All tests. The order is from quick to slow, so that a plain mistake is seen first.
set -euo pipefail
seed=${1:-}
export HOLDFAST_SEED=${seed:-${HOLDFAST_SEED:-$((RANDOM * 32768 + RANDOM))}}
echo "crash points and orders are sampled with seed $HOLDFAST_SEED (repeat with: make test seed=$HOLDFAST_SEED)"
bin=.venv/bin
scripts/install-test-tools.sh
"$bin/ruff" format --check --quiet .
"$bin/ruff" check --quiet .
"$bin/mypy" --no-error-summary
PYTHONPATH=src "$bin/lint-imports" --no-cache > .venv/lint-imports.log || { cat .venv/lint-imports.log; exit 1; }
# One worker more than cores, since many tests wait for processes and terminals; each has a Postgres of its own.
workers=$(($(nproc) + 1))
exec "$bin/python" -m pytest -q -n "$((workers < 8 ? workers : 8))" --dist=worksteal tests
