"""aider: one message from a file, and plain text. Run with 0.86.2."""

import re
from typing import ClassVar

from holdfast.agents.coding_agent.adapters.base import Adapter, AgentCall, Needs, OutputItem, ToolState, to_usage

_TOKENS = re.compile(r"Tokens: ([\d.,]+[km]?) sent,(?: [\d.,]+[km]? cache \w+,)* ([\d.,]+[km]?) received\.")
_COST = re.compile(r"Cost: \$([\d.]+) message")
_EDIT = re.compile(r"(?:Applied edit to|Creating empty file|Added) (.+?)(?: to the chat)?$")
_ERROR = re.compile(r"(litellm\.\w+: .+|.*AuthenticationError.*|API key.*missing.*)")
_SCALES = {"k": 1_000, "m": 1_000_000}


class Aider(Adapter):
    """It works without git, since holdfast commits and `.git` is read-only. Its session is its chat history, a file."""

    name: ClassVar[str] = "aider"
    has_envelope_file: ClassVar[bool] = True
    chooses_session: ClassVar[bool] = True
    session_files: ClassVar[tuple[str, ...]] = (".aider/{session}.md",)
    needs: ClassVar[Needs] = Needs(
        variables=(
            *("OPENAI_API_KEY", "OPENAI_API_BASE", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"),
            *("DEEPSEEK_API_KEY", "GROQ_API_KEY", "XAI_API_KEY", "OLLAMA_API_BASE", "AIDER_MODEL", "AIDER_WEAK_MODEL"),
        ),
        fixed={"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        hosts=("api.openai.com", "api.anthropic.com", "generativelanguage.googleapis.com", "openrouter.ai"),
        base_urls=("OPENAI_API_BASE", "OLLAMA_API_BASE"),
        settings=(".aider.conf.yml", ".aider.model.settings.yml", ".aider.model.metadata.json"),
    )

    def start(self, call: AgentCall) -> list[str]:
        history = call.home / ".aider"
        quiet = [
            "--no-pretty",
            "--no-fancy-input",
            "--no-check-update",
            "--no-show-release-notes",
            "--analytics-disable",
        ]
        own = [
            "--yes-always",
            "--no-git",
            "--no-detect-urls",
            "--no-suggest-shell-commands",
            "--no-show-model-warnings",
        ]
        files = ["--chat-history-file", f"{history / call.session}.md", "--input-history-file", f"{history}/input"]
        message = ["--message-file", str(call.envelope_file)]
        return [call.argv[0], *call.options, *own, *quiet, *files, *call.with_model("--model"), *message]

    def resume(self, call: AgentCall) -> list[str]:
        return [*self.start(call), "--restore-chat-history"]

    def read_line(self, line: str) -> list[OutputItem]:
        if tokens := _TOKENS.search(line):
            cost = _COST.search(line)
            used = to_usage(_to_number(tokens[1]), _to_number(tokens[2]), cost_usd=float(cost[1]) if cost else None)
            return [OutputItem(usage=used)]
        if edit := _EDIT.match(line):
            return [OutputItem(tool="edit", activity=edit[1], state=ToolState.COMPLETED)]
        if error := _ERROR.match(line):
            return [OutputItem(error=error[1])]
        return [OutputItem(text=line + "\n")]


def _to_number(text: str) -> int:
    scale = _SCALES.get(text[-1], 1)
    return round(float(text.rstrip("km").replace(",", "")) * scale)
