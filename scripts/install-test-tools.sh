#!/usr/bin/env bash
# What the tests use and pip does not bring. Missing tools make tests be skipped, never fail, so this never fails either.
set -uo pipefail

works() { bwrap --ro-bind / / --dev /dev --unshare-pid true 2> /dev/null; }

# install PACKAGE WHICH-TESTS COMMAND...: unless one of the commands is there already
install() {
  local package=$1 tests=$2
  shift 2
  for name in "$@"; do command -v "$name" > /dev/null && return; done
  if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
    echo "$package is missing and cannot be installed without root and apt-get: $tests tests are skipped."
    return
  fi
  apt-get install -y -q "$package" > /dev/null 2>&1 ||
    { apt-get update -q > /dev/null 2>&1 && apt-get install -y -q "$package" > /dev/null 2>&1; } ||
    echo "$package could not be installed: $tests tests are skipped."
}

install bubblewrap sandbox bwrap
install chromium browser chromium chromium-browser google-chrome
if command -v bwrap > /dev/null && ! works; then
  echo "bubblewrap is installed and not allowed to work here: sandbox tests are skipped."
fi
exit 0
