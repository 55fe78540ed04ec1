#!/usr/bin/env bash
# Finds uv or installs it into .tools with whatever this machine's Python offers. Nothing outside the project is changed,
# but for Debian's python3-venv where Python came without pip and this user may install packages.
set -euo pipefail
python=${1:-python3}
command -v uv >/dev/null 2>&1 && exit 0
[ -x .tools/bin/uv ] && exit 0

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "holdfast needs Python 3.11 or later; $("$python" --version) is in use. Try: make setup PY=python3.12" >&2; exit 1; }

make_tools() { "$python" -m venv .tools >/dev/null 2>&1 && .tools/bin/pip install --quiet --disable-pip-version-check uv; }

if ! make_tools; then
  rm -rf .tools
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "Python has no venv here. Installing python3-venv with apt-get …"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y python3-venv >/dev/null
    make_tools
  else
    echo "Could not make a virtual environment: install python3-venv (or uv) and run make again." >&2
    exit 1
  fi
fi
