"""The template's commands before and after tool calls, each of them a durable step of the call's lane."""

import json
from collections.abc import Sequence

from holdfast.agents.tools.rules import ToolCall
from holdfast.engine.phase.command_shell import CommandKind
from holdfast.engine.phase.commands import TemplateCommand, run_command
from holdfast.engine.scope import RunScope
from holdfast.workflow import Hook, Phase

_MAX_OUTPUT_CHARS = 4000
_MAX_ARGS_CHARS = 16_000  # of an environment variable, well below what a system takes


class PhaseHooks:
    """Runs the hooks of a template around the tool calls of one phase.

    A hook is found again after a crash like every command of the template, and a recorded one is not run again.
    """

    def __init__(self, scope: RunScope, phase: Phase, attempt: int) -> None:
        self._scope = scope
        self._phase = phase
        self._attempt = attempt

    async def before(self, key: str, lane_id: str, call: ToolCall) -> str | None:
        """Run what comes before a call; return why it must not be made, in the words of the hook that failed."""
        for number, hook in enumerate(self._scope.template.hooks, 1):
            if call.name in hook.before:
                note = await self._run(hook, f"{key}.before{number}", lane_id, call)
                if note.startswith(_FAILED):
                    return note
        return None

    async def after(self, key: str, lane_id: str, call: ToolCall) -> str:
        """Run what comes after a call; return what its agent should know of it."""
        notes = [
            await self._run(hook, f"{key}.after{number}", lane_id, call)
            for number, hook in enumerate(self._scope.template.hooks, 1)
            if call.name in hook.after
        ]
        return "\n".join(note for note in notes if note)

    async def _run(self, hook: Hook, key: str, lane_id: str, call: ToolCall) -> str:
        command = TemplateCommand(
            CommandKind.HOOKS,
            lane_id,
            key.removeprefix(f"{lane_id}/"),
            hook.run,
            self._phase,
            self._attempt,
            env=_to_environment(call),
            more=self._scope.record_files,
        )
        result = await run_command(self._scope, command)
        output = str(result["output"]).strip()[-_MAX_OUTPUT_CHARS:]
        return _describe(hook.run, result["exit_code"], str(result["outcome"]), output)


_FAILED = "The hook failed"


def _describe(argv: Sequence[str], exit_code: int | None, outcome: str, output: str) -> str:
    """Describe a hook's outcome for the agent; one that ended well and said nothing is not worth a word."""
    name = " ".join(argv)
    if exit_code != 0:
        return f"{_FAILED}: `{name}` ended with {outcome}.\n{output}".rstrip()
    return f"The hook `{name}` says:\n{output}" if output else ""


def _to_environment(call: ToolCall) -> dict[str, str]:
    args = json.dumps(dict(call.args), ensure_ascii=False, default=str)
    path = call.text("file_path").lstrip("/")
    return {
        "HOLDFAST_TOOL": call.name,
        "HOLDFAST_TOOL_ARGS": args if len(args) <= _MAX_ARGS_CHARS and "\0" not in args else "",
        "HOLDFAST_TOOL_PATH": path if "\0" not in path else "",
    }
