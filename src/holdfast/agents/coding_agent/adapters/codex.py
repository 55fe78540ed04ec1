"""Codex: `codex exec --json`. Run with 0.166.0."""

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


class Codex(Adapter):
    """It runs its commands without a sandbox of its own, which would not start inside ours.

    It names its session in its first line. What it reports is the total of the session.
    """

    name: ClassVar[str] = "codex"
    is_total_of_session: ClassVar[bool] = True
    session_files: ClassVar[tuple[str, ...]] = (".codex/sessions/**/*{session}.jsonl",)
    needs: ClassVar[Needs] = Needs(
        variables=("CODEX_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORGANIZATION", "OPENAI_PROJECT"),
        hosts=("api.openai.com", "chatgpt.com", "auth.openai.com"),
        base_urls=("OPENAI_BASE_URL",),
        settings=(".codex/config.toml", ".codex/AGENTS.md"),
        account=(".codex/auth.json",),
    )

    def start(self, call: AgentCall) -> list[str]:
        return [call.argv[0], "exec", *self._options(call), "-"]

    def resume(self, call: AgentCall) -> list[str]:
        return [call.argv[0], "exec", "resume", *self._options(call), call.session, "-"]

    def _options(self, call: AgentCall) -> list[str]:
        own = ["--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        return [*own, *call.options, *call.with_model("--model")]

    def read(self, record: Mapping[str, Any]) -> Iterator[OutputItem]:
        kind = record.get("type")
        if kind == "thread.started":
            yield OutputItem(session=str(record.get("thread_id") or ""))
        elif kind == "turn.completed":
            used = record["usage"]
            cached = used.get("cached_input_tokens")
            yield OutputItem(total=to_usage(used.get("input_tokens"), used.get("output_tokens"), cached=cached))
        elif kind in ("error", "turn.failed"):
            error = record.get("error") or record
            yield OutputItem(error=str(error.get("message") or ""))
        elif kind in ("item.started", "item.completed"):
            yield from self._read_item(record["item"], is_over=kind == "item.completed")

    def _read_item(self, item: Mapping[str, Any], *, is_over: bool) -> Iterator[OutputItem]:
        kind = item.get("type")
        if kind == "agent_message":
            if is_over:
                yield OutputItem(text=str(item.get("text") or ""))
        elif kind not in ("reasoning", "error", "todo_list"):
            changes = [change.get("path") for change in item.get("changes") or ()]
            about = item.get("command") or " ".join(map(str, changes)) or item.get("query") or item.get("tool") or ""
            is_failed = item.get("status") in ("failed", "declined") or item.get("exit_code") not in (None, 0)
            end = ToolState.FAILED if is_failed else ToolState.COMPLETED
            state = end if is_over else ToolState.STARTED
            yield OutputItem(tool=str(kind), activity=to_activity(about), state=state)
