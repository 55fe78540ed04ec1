"""Gemini CLI: `gemini --output-format stream-json`. Run with 0.61.0."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from holdfast.agents.coding_agent.adapters.base import Adapter, AgentCall, Needs, OutputItem, to_activity, to_usage

# With a key and an address of one's own it would choose a way to sign in that it refuses itself.
_SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
    "telemetry": {"enabled": False},
}


class GeminiCli(Adapter):
    """It trusts the folder (`--skip-trust`) and asks nobody (`--approval-mode yolo`) inside our sandbox."""

    name: ClassVar[str] = "gemini"
    chooses_session: ClassVar[bool] = True
    session_files: ClassVar[tuple[str, ...]] = (".gemini/tmp/*/chats/*{session8}*",)
    needs: ClassVar[Needs] = Needs(
        variables=(
            *("GEMINI_API_KEY", "GEMINI_MODEL", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_CLOUD_PROJECT"),
            *("GOOGLE_CLOUD_LOCATION", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA"),
        ),
        fixed={"NO_COLOR": "1"},
        hosts=("generativelanguage.googleapis.com", "cloudcode-pa.googleapis.com", "oauth2.googleapis.com"),
        base_urls=("GOOGLE_GEMINI_BASE_URL",),
        settings=(".gemini/settings.json", ".gemini/GEMINI.md", ".gemini/google_accounts.json"),
        account=(".gemini/oauth_creds.json",),
        seeds={".gemini/settings.json": json.dumps(_SETTINGS)},
    )

    def start(self, call: AgentCall) -> list[str]:
        return [*self._command(call), "--session-id", call.session]

    def resume(self, call: AgentCall) -> list[str]:
        return [*self._command(call), "--resume", call.session]

    def _command(self, call: AgentCall) -> list[str]:
        own = ["--output-format", "stream-json", "--approval-mode", "yolo", "--skip-trust"]
        return [call.argv[0], *call.options, *own, *call.with_model("--model")]

    def read(self, record: Mapping[str, Any]) -> Iterator[OutputItem]:
        kind = record.get("type")
        if kind == "init":
            yield OutputItem(session=str(record.get("session_id") or ""), model=str(record.get("model") or ""))
        elif kind == "message" and record.get("role") == "assistant":
            yield OutputItem(text=str(record.get("content") or ""))
        elif kind == "tool_use":
            yield OutputItem(tool=str(record.get("tool_name")), activity=to_activity(record.get("parameters")))
        elif kind == "error":
            yield OutputItem(error=str(record.get("message") or ""))
        elif kind == "result":
            used = record.get("stats") or {}
            total = to_usage(used.get("input_tokens"), used.get("output_tokens"), cached=used.get("cached"))
            error = record.get("error") or {}
            yield OutputItem(total=total, error=str(error.get("message") or ""))
