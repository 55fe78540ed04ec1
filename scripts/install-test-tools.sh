#!/usr/bin/env bash
# What the tests use and pip does not bring. Missing tools make tests be skipped, never fail, so this never fails either.
set -uo pipefail

works() { bwrap --ro-bind / / --dev /dev --unshare-pid true 2> /dev/null; }

install_bubblewrap() {
  command -v bwrap > /dev/null && return
  if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
    echo "bubblewrap is missing and cannot be installed without root and apt-get: sandbox tests are skipped."
    return
  fi
  apt-get install -y -q bubblewrap > /dev/null 2>&1 ||
    { apt-get update -q > /dev/null 2>&1 && apt-get install -y -q bubblewrap > /dev/null 2>&1; } ||
    echo "bubblewrap could not be installed: sandbox tests are skipped."
}

install_bubblewrap
if command -v bwrap > /dev/null && ! works; then
  echo "bubblewrap is installed and not allowed to work here: sandbox tests are skipped."
fi
exit 0
