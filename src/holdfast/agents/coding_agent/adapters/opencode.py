"""opencode: `opencode run --format json`. Run with 1.18.33."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from holdfast.agents.coding_agent.adapters.base import (
    Adapter,
    AgentCall,
    Needs,
    OutputItem,
    ToolState,
    to_activity,
    to_usage,
)


class OpenCode(Adapter):
    """Each line names the session. A tool is reported when it has ended; cost and tokens come with each step."""

    name: ClassVar[str] = "opencode"
    session_files: ClassVar[tuple[str, ...]] = (".local/share/opencode/opencode.db",)
    needs: ClassVar[Needs] = Needs(
        variables=(
            *("OPENCODE_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY"),
            *("GOOGLE_GENERATIVE_AI_API_KEY", "GROQ_API_KEY", "MISTRAL_API_KEY", "DEEPSEEK_API_KEY", "XAI_API_KEY"),
            *("GITHUB_TOKEN", "OPENCODE_CONFIG_CONTENT"),
        ),
        fixed={"OPENCODE_DISABLE_AUTOUPDATE": "1"},
        hosts=("opencode.ai", "models.dev", "api.openai.com", "api.anthropic.com", "openrouter.ai"),
        settings=(".config/opencode/opencode.json", ".config/opencode/opencode.jsonc", ".config/opencode/AGENTS.md"),
        account=(".local/share/opencode/auth.json",),
    )

    def start(self, call: AgentCall) -> list[str]:
        own = ["run", "--format", "json", "--auto"]
        return [call.argv[0], *own, *call.options, *call.with_model("--model")]

    def resume(self, call: AgentCall) -> list[str]:
        return [*self.start(call), "--session", call.session]

    def read(self, record: Mapping[str, Any]) -> Iterator[OutputItem]:
        kind, part = record.get("type"), record.get("part") or {}
        if record.get("sessionID"):
            yield OutputItem(session=str(record["sessionID"]))
        if kind == "text":
            yield OutputItem(text=str(part.get("text") or ""))
        elif kind == "tool_use":
            state = part.get("state") or {}
            name, about = str(part.get("tool")), to_activity(state.get("input"))
            yield OutputItem(
                tool=name,
                activity=about,
                state=ToolState.FAILED if state.get("status") == "error" else ToolState.COMPLETED,
            )
        elif kind == "step_finish":
            tokens = part.get("tokens") or {}
            cache = tokens.get("cache") or {}
            extra = (cache.get("read"), cache.get("write"))
            output = (tokens.get("output") or 0) + (tokens.get("reasoning") or 0)
            cost, cached = part.get("cost"), cache.get("read")
            used = to_usage(tokens.get("input"), output, cached=cached, cost_usd=cost, extra_input=extra)
            yield OutputItem(usage=used)
        elif kind == "error":
            error = record.get("error") or {}
            data = error.get("data") or {}
            yield OutputItem(error=str(data.get("message") or error.get("message") or error.get("name") or ""))
