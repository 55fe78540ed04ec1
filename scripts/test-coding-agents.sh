#!/usr/bin/env bash
# Installs real coding agents into a folder, from the npm registry and PyPI, and tests their adapters against stand-ins
# for their providers, in a network that has loopback alone. What cannot be installed is skipped, with the reason.
set -euo pipefail
folder=$(realpath -m "${1:-.coding-agents}")
uv=$(command -v uv || echo .tools/bin/uv)
packages=(@anthropic-ai/claude-code @openai/codex @google/gemini-cli opencode-ai @qwen-code/qwen-code
  @mariozechner/pi-coding-agent @continuedev/cli)

mkdir -p "$folder/npm" "$folder/aider"
[ -f "$folder/npm/package.json" ] || echo '{"private": true}' > "$folder/npm/package.json"
for package in "${packages[@]}"; do
  [ -d "$folder/npm/node_modules/$package" ] && continue
  npm install --prefix "$folder/npm" --no-audit --no-fund --loglevel=error "$package" || echo "not installed: $package" >&2
done
# Two of them link a program of their own after they are installed, which npm may be told not to let them do.
for step in @anthropic-ai/claude-code/install.cjs opencode-ai/postinstall.mjs; do
  file="$folder/npm/node_modules/$step"
  [ -f "$file" ] && (cd "$(dirname "$file")" && node "$file" > /dev/null) || true
done
if [ ! -x "$folder/aider/venv/bin/aider" ]; then
  { "$uv" venv --quiet --python 3.11 "$folder/aider/venv" &&
    "$uv" pip install --quiet --python "$folder/aider/venv/bin/python" aider-chat; } || echo "not installed: aider" >&2
fi

tests=(env HOLDFAST_CODING_AGENTS="$folder" .venv/bin/python -m pytest -q -rA
  tests/integration/agents/coding_agent/test_products.py)
# Without a /proc of its own: bubblewrap inside bubblewrap, which the agents run in, cannot be made with one.
if bwrap --unshare-net --dev-bind / / true 2>/dev/null; then
  exec bwrap --unshare-net --dev-bind / / -- "${tests[@]}"
fi
if [ "${ALLOW_NETWORK:-}" = 1 ]; then exec "${tests[@]}"; fi
echo "bubblewrap does not work here, so the agents could reach the network. To run them all the same: ALLOW_NETWORK=1" >&2
exit 1
