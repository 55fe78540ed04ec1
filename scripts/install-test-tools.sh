#!/usr/bin/env bash
# What the tests use and pip does not bring. Where a tool is missing its tests are skipped with the reason, so this never
# fails; in CI (CI=true) a test that is skipped is a failure.
set -uo pipefail

has() { for name in "$@"; do command -v "$name" > /dev/null && return; done; return 1; }
sandbox_works() { bwrap --ro-bind / / --dev /dev --unshare-pid true 2> /dev/null; }
# The node that Playwright brings needs a library that a bare Debian lacks.
node_works() { .venv/lib/python3*/site-packages/playwright/driver/node --version > /dev/null 2>&1; }

# What the tests of a package are, for the message about them.
declare -A tests=([bubblewrap]=sandbox [chromium]=browser [libatomic1]="browser and page module" [systemd]="systemd unit")
missing=()
has bwrap || missing+=(bubblewrap)
has faketime || missing+=(faketime)
has chromium chromium-browser google-chrome || missing+=(chromium)
node_works || missing+=(libatomic1)
has systemd-analyze || missing+=(systemd)

apt_install() { DEBIAN_FRONTEND=noninteractive apt-get install -qq -y "$@" > /dev/null 2>&1; }

skip() {
  for package in "$@"; do
    if [ "$package" = faketime ]; then
      echo "A wrong clock is tested in Python alone: faketime is not installed."
    else
      echo "The ${tests[$package]} tests will be skipped: $package is not installed."
    fi
  done
}

if [ ${#missing[@]} -gt 0 ]; then
  listed=$(printf '%s, ' "${missing[@]}")
  if [ "$(id -u)" != 0 ] || ! has apt-get; then
    echo "Missing: ${listed%, }. Installing them needs root and apt-get: apt-get install ${missing[*]}"
    skip "${missing[@]}"
  else
    echo "Installing ${listed%, } with apt-get, for the tests …"
    if ! apt_install "${missing[@]}"; then
      apt-get update -qq > /dev/null 2>&1
      for package in "${missing[@]}"; do apt_install "$package" || skip "$package"; done
    fi
  fi
fi
if has bwrap && ! sandbox_works; then
  echo "The sandbox tests will be skipped: bubblewrap is installed and is not allowed to work here."
fi
exit 0
