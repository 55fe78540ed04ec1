"""pi: `pi --print --mode json`. Run with 0.73.1."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from holdfast.agents.coding_agent.adapters.base import (
    Adapter,
    AgentCall,
    Needs,
    OutputItem,
    to_activity,
    to_text,
    to_usage,
)


class Pi(Adapter):
    """It names its session in its first line and asks for no permissions. Each message has its tokens and its cost."""

    name: ClassVar[str] = "pi"
    session_files: ClassVar[tuple[str, ...]] = (".pi/agent/sessions/*/*{session}.jsonl",)
    needs: ClassVar[Needs] = Needs(
        variables=(
            *("ANTHROPIC_API_KEY", "ANTHROPIC_OAUTH_TOKEN", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"),
            *("GROQ_API_KEY", "CEREBRAS_API_KEY", "XAI_API_KEY", "MISTRAL_API_KEY", "ZAI_API_KEY", "DEEPSEEK_API_KEY"),
            *("AI_GATEWAY_API_KEY", "KIMI_API_KEY", "MOONSHOT_API_KEY"),
        ),
        fixed={"PI_OFFLINE": "1", "PI_TELEMETRY": "0"},
        hosts=("api.anthropic.com", "api.openai.com", "generativelanguage.googleapis.com", "openrouter.ai"),
        settings=(".pi/agent/settings.json", ".pi/agent/models.json", ".pi/agent/AGENTS.md"),
        account=(".pi/agent/auth.json",),
    )

    def start(self, call: AgentCall) -> list[str]:
        return [call.argv[0], *call.options, "--print", "--mode", "json", *call.with_model("--model")]

    def resume(self, call: AgentCall) -> list[str]:
        return [*self.start(call), "--session", call.session]

    def read(self, record: Mapping[str, Any]) -> Iterator[OutputItem]:
        kind, message = record.get("type"), record.get("message") or {}
        if kind == "session":
            yield OutputItem(session=str(record.get("id") or ""))
        elif kind == "message_end" and message.get("role") == "assistant":
            if text := to_text(message.get("content")):
                yield OutputItem(text=text)
            used = message.get("usage") or {}
            cached, cost = used.get("cacheRead"), (used.get("cost") or {}).get("total")
            extra = (cached, used.get("cacheWrite"))
            call = to_usage(used.get("input"), used.get("output"), cached=cached, cost_usd=cost, extra_input=extra)
            yield OutputItem(usage=call, error=str(message.get("errorMessage") or ""))
        elif kind == "tool_execution_start":
            yield OutputItem(tool=str(record.get("toolName")), activity=to_activity(record.get("args")))
