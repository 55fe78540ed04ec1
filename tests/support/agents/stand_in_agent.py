"""A shell script in the place of Claude Code or Codex: the same options, lines and session files, and bad manners.

What it does is `body`: shell code that sees `$session`, `$resumed` (empty at first), and functions that print lines.
Each start leaves a line in `starts.txt` of the workspace.
"""

from pathlib import Path
from typing import Any

from holdfast.enums import Backend
from holdfast.persona import AgentPersona

_HEAD = """#!/bin/sh
session= resumed=
while [ $# -gt 0 ]; do
  case $1 in
    --session-id) session=$2; shift ;;
    --resume) session=$2 resumed=1; shift ;;
    resume) resumed=1 ;;
    thread-*) session=$1 ;;
  esac
  shift
done
cat > "task${resumed}.txt"
echo "start${resumed:+ again}" >> starts.txt
"""
_CLAUDE = """
used='"usage":{"input_tokens":100,"output_tokens":20}'
total='"total_cost_usd":0.5,"usage":{"input_tokens":300,"output_tokens":60}'
message() { printf '{"type":"assistant","message":{"id":"%s","content":[%s],%s}}\\n' "$1" "$2" "$used"; }
store() { mkdir -p "$HOME/.claude/projects/p"; echo turn >> "$HOME/.claude/projects/p/$session.jsonl"; }
begin() { printf '{"type":"system","subtype":"init","session_id":"%s"}\\n' "$session"; store; }
say() { message "$1" '{"type":"text","text":"'"$2"'"}'; }
use() { message "$1" '{"type":"tool_use","name":"Bash","input":{"command":"'"$2"'"}}'; }
finish() { printf '{"type":"result","is_error":false,"result":"%s",%s}\\n' "$1" "$total"; }
"""
_CODEX = """
session=${session:-thread-1}
store() { mkdir -p "$HOME/.codex/sessions/2026"; echo turn >> "$HOME/.codex/sessions/2026/rollout-$session.jsonl"; }
begin() { printf '{"type":"thread.started","thread_id":"%s"}\\n' "$session"; store; }
finish() {
  printf '{"type":"item.completed","item":{"type":"agent_message","text":"%s"}}\\n' "$1"
  printf '{"type":"turn.completed","usage":{"input_tokens":300,"output_tokens":60}}\\n'
}
"""


def make_agent(folder: Path, body: str, *, adapter: str = "claude-code", **fields: Any) -> AgentPersona:
    """Write the script, and return the persona that runs it."""
    program = folder / adapter
    program.write_text(_HEAD + (_CODEX if adapter == "codex" else _CLAUDE) + body)
    program.chmod(0o755)
    known = {"name": "stand-in", "version": 1, "backend": Backend.COMMAND, "capabilities": ["code_write"]}
    return AgentPersona.model_validate({**known, "adapter": adapter, "argv": [str(program)], **fields})
