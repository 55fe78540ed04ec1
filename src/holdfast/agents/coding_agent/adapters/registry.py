"""The coding agents that holdfast knows, by the name that a persona's `adapter` gives them.

A program that is not here is run as its `argv` says, with the envelope on standard input; its output is plain text.
To add one: a module beside this one, a line in the table, its name in `persona.ADAPTERS`, and a shipped persona.
"""

from collections.abc import Mapping

from holdfast.agents.coding_agent.adapters.aider import Aider
from holdfast.agents.coding_agent.adapters.base import Adapter
from holdfast.agents.coding_agent.adapters.claude_code import ClaudeCode
from holdfast.agents.coding_agent.adapters.codex import Codex
from holdfast.agents.coding_agent.adapters.continue_cli import ContinueCli
from holdfast.agents.coding_agent.adapters.gemini import GeminiCli
from holdfast.agents.coding_agent.adapters.opencode import OpenCode
from holdfast.agents.coding_agent.adapters.pi import Pi
from holdfast.agents.coding_agent.adapters.qwen import QwenCode
from holdfast.persona import AgentPersona

_KNOWN = (Aider(), ClaudeCode(), Codex(), ContinueCli(), GeminiCli(), OpenCode(), Pi(), QwenCode())
TABLE: Mapping[str, Adapter] = {adapter.name: adapter for adapter in _KNOWN}


def find_adapter(persona: AgentPersona) -> Adapter | None:
    """Return the adapter that a persona names; `None` for a program of which nothing is known."""
    return None if persona.adapter is None else TABLE[persona.adapter]
