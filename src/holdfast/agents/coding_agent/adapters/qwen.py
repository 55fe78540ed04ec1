"""Qwen Code: `qwen --output-format stream-json`, with lines as Claude Code prints them. Run with 0.15.10."""

from typing import ClassVar

from holdfast.agents.coding_agent.adapters.base import AgentCall, Needs
from holdfast.agents.coding_agent.adapters.claude_code import ClaudeCode


class QwenCode(ClaudeCode):
    """With an OpenAI key it takes that way to sign in, else the account it has. It reports no cost."""

    name: ClassVar[str] = "qwen"
    is_total_of_session: ClassVar[bool] = True
    session_files: ClassVar[tuple[str, ...]] = (".qwen/projects/*/chats/{session}.jsonl",)
    needs: ClassVar[Needs] = Needs(
        variables=(
            *("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "DASHSCOPE_API_KEY", "BAILIAN_CODING_PLAN_API_KEY"),
            *(
                "ANTHROPIC_API_KEY",
                "ANTHROPIC_BASE_URL",
                "GEMINI_API_KEY",
                "OPENROUTER_API_KEY",
                "QWEN_DEFAULT_AUTH_TYPE",
            ),
        ),
        hosts=("dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com", "chat.qwen.ai", "portal.qwen.ai"),
        base_urls=("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"),
        settings=(".qwen/settings.json", ".qwen/QWEN.md"),
        account=(".qwen/oauth_creds.json",),
        # Under Landlock it has no terminals of its own to run commands in: /dev/pts has the user's, too.
        seeds={".qwen/settings.json": '{"tools": {"shell": {"enableInteractiveShell": false}}}'},
    )

    def _command(self, call: AgentCall) -> list[str]:
        own = ["--output-format", "stream-json", "--approval-mode", "yolo"]
        return [call.argv[0], *call.options, *own, *call.with_model("--model")]
