#!/usr/bin/env bash
# The tests that depend on Python's own behaviour (units, contracts, interrupts) on each supported version that is here.
# A version that cannot be found is a failure: what was not run must not look as if it had been.
set -euo pipefail
uv=$(command -v uv || echo .tools/bin/uv)
tests=(tests/unit tests/conformance tests/integration/engine/run/test_interrupts.py)
missing=()
# pyenv's own commands only find the version that is chosen; its versions lie beside each other.
if command -v pyenv > /dev/null; then
  for folder in "$(pyenv root)"/versions/*/bin; do PATH=$folder:$PATH; done
fi
for version in "$@"; do
  folder=.venv-pythons/$version
  if ! [ -x "$folder/bin/python" ] && ! "$uv" venv --quiet --no-python-downloads --python "$version" "$folder"; then
    missing+=("$version")
    continue
  fi
  "$uv" pip install --quiet --python "$folder/bin/python" --constraint constraints.txt --compile-bytecode --group dev --editable '.[all]'
  echo "$("$folder/bin/python" --version): ${tests[*]}"
  "$folder/bin/python" -m pytest -q -n 2 -p no:langsmith_plugin "${tests[@]}"
done
[ ${#missing[@]} = 0 ] || { echo "not found, so not tested: Python ${missing[*]}" >&2; exit 1; }
