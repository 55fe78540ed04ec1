"""Claude Code: `claude --print` with a stream of JSON. Run with 2.1.197."""

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


class ClaudeCode(Adapter):
    """It asks nobody (`--dangerously-skip-permissions`): the sandbox around it says what it may do.

    As root it refuses that unless `IS_SANDBOX` is set. It needs a `/tmp` that can be written.
    """

    name: ClassVar[str] = "claude-code"
    chooses_session: ClassVar[bool] = True
    session_files: ClassVar[tuple[str, ...]] = (".claude/projects/*/{session}.jsonl",)
    needs: ClassVar[Needs] = Needs(
        variables=(
            *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_BASE_URL"),
            *("ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL"),
            *("ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_CUSTOM_HEADERS"),
            *("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "ANTHROPIC_BEDROCK_BASE_URL"),
            *("ANTHROPIC_VERTEX_PROJECT_ID", "CLOUD_ML_REGION", "AWS_REGION", "AWS_BEARER_TOKEN_BEDROCK"),
            *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "MAX_THINKING_TOKENS"),
        ),
        fixed={"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "IS_SANDBOX": "1"},
        hosts=("api.anthropic.com", "console.anthropic.com", "platform.claude.com"),
        base_urls=("ANTHROPIC_BASE_URL", "ANTHROPIC_BEDROCK_BASE_URL"),
        settings=(".claude/settings.json", ".claude/CLAUDE.md", ".claude.json"),
        account=(".claude/.credentials.json",),
    )

    def start(self, call: AgentCall) -> list[str]:
        return [*self._command(call), "--session-id", call.session]

    def resume(self, call: AgentCall) -> list[str]:
        return [*self._command(call), "--resume", call.session]

    def _command(self, call: AgentCall) -> list[str]:
        output = ["--print", "--output-format", "stream-json", "--verbose"]
        own = [] if "--permission-mode" in call.options else ["--dangerously-skip-permissions"]
        return [call.argv[0], *call.options, *output, *own, *call.with_model("--model")]

    def read(self, record: Mapping[str, Any]) -> Iterator[OutputItem]:
        kind = record.get("type")
        if kind == "system":
            yield OutputItem(session=str(record.get("session_id") or ""), model=str(record.get("model") or ""))
        elif kind == "assistant":
            yield from self._read_message(record["message"])
        elif kind == "result":
            used = record.get("usage") or {}
            cached = used.get("cache_read_input_tokens")
            extra = (cached, used.get("cache_creation_input_tokens"))
            cost = record.get("total_cost_usd")
            total = to_usage(
                used.get("input_tokens"), used.get("output_tokens"), cached=cached, cost_usd=cost, extra_input=extra
            )
            words = str(record.get("result") or record.get("errors") or "")
            is_error = bool(record.get("is_error"))
            yield OutputItem(total=total, final="" if is_error else words, error=words if is_error else "")

    def _read_message(self, message: Mapping[str, Any]) -> Iterator[OutputItem]:
        content = message.get("content")
        if text := to_text(content):
            yield OutputItem(text=text)
        for block in content if isinstance(content, list) else ():
            if block.get("type") == "tool_use":
                yield OutputItem(tool=str(block.get("name")), activity=to_activity(block.get("input")))
        used = message.get("usage") or {}
        call_usage = to_usage(used.get("input_tokens"), used.get("output_tokens"))
        yield OutputItem(usage=call_usage, call_id=str(message.get("id") or ""))
