"""Any command-line coding agent as a persona: one command, one journaled step.

It gets the envelope and the workspace, does what it does with its own tools and its own account, and leaves the
artifact. Its calls are its own: what is journaled is that it ran, what it printed and how it ended.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest

from holdfast.agents.calls.gate import Usage
from holdfast.agents.calls.middleware import JournalMiddleware
from holdfast.agents.coding_agent.output import OutputEvents
from holdfast.agents.coding_agent.sandbox import to_own_shell
from holdfast.agents.coding_agent.usage import VARIABLE, find_usage_in_output, read_usage_file
from holdfast.agents.redaction import SECRETS, read_key
from holdfast.agents.tools.shell import granted_shell, open_shell
from holdfast.config import Config
from holdfast.errors import AgentFailed, BackendUnavailable
from holdfast.persona import AgentPersona
from holdfast.runtime.step import step_key
from holdfast.workspace import CommandState, Outcome, find_command, is_lost
from holdfast.workspace.files import write_whole

TOOL = "agent"
MAX_S = 4 * 3600.0  # the phase's own time-out is usually shorter
_TAIL_CHARS = 4000
_SIGNS_OF_THE_SANDBOX = ("Read-only file system", "EROFS", "Permission denied", "EACCES", "No such file")
_ABOUT_THE_SANDBOX = (
    "It ran in a sandbox that lets it write to the workspace only and hides other programs' keys: name the folders it "
    "needs in the persona (sandbox: {write: [~/.its-folder]}), or set sandbox: false."
)
_Handler = Callable[[ToolCallRequest], Awaitable[Any]]


class CommandAgent:
    """A command behind the interface of an agent: `await agent.ainvoke({"messages": […]})`."""

    def __init__(
        self, persona: AgentPersona, config: Config, *, root_dir: Path, middleware: Sequence[Any], scratch_dir: Path
    ) -> None:
        assert persona.argv is not None, "a command persona has one"
        self._persona = persona
        self._argv = persona.argv
        self._root_dir = root_dir
        self._middleware = list(middleware)
        self._scratch_dir = scratch_dir
        self._shell = open_shell(root_dir, data_dir=config.data_dir)
        self._env = _find_variables(persona)
        self._journal = next((part for part in middleware if isinstance(part, JournalMiddleware)), None)
        if self._journal is not None:
            self._journal.price_tool(TOOL, _to_micros(persona.cost_per_run_usd), model=persona.model or persona.name)
        if shutil.which(self._argv[0]) is None:
            raise BackendUnavailable(
                f"Persona {persona.name} needs the command {self._argv[0]!r}, which is not installed here.",
                hint="Install it and sign in with it, or bind the role to another persona.",
                persona=persona.name,
            )

    async def ainvoke(self, state: Mapping[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
        """Run the command to its end and return what it printed last. Raises `AgentFailed`."""
        messages = list(state["messages"])
        text = "\n\n".join([self._persona.system_prompt.strip(), *map(_text_of, messages)]).strip()
        digest = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
        args = {"argv": list(self._argv), "model": self._persona.model, "envelope": digest[:16]}
        request = ToolCallRequest(
            tool_call={"name": TOOL, "args": args, "id": TOOL, "type": "tool_call"},
            tool=None,
            state={},
            runtime=None,  # type: ignore[arg-type]  # nothing of the framework runs here
        )
        answer = await self._through_middleware(lambda _request: self._run(text, digest))(request)
        return {"messages": [*messages, AIMessage(content=_text_of(answer))]}

    def _through_middleware(self, handler: _Handler) -> _Handler:
        for part in reversed(self._middleware):
            handler = _wrapped(part, handler)
        return handler

    async def _run(self, text: str, digest: str) -> ToolMessage:
        usage_file = self._prepare_usage_file(digest)
        envelope_file = self._scratch_dir / f"envelope-{digest[:16]}.md"
        has_envelope_file = any("{envelope_file}" in word for word in self._argv)
        if has_envelope_file:
            write_whole(envelope_file, text, mode=0o600)
        places = {"envelope_file": envelope_file, "usage_file": usage_file, "workspace": self._root_dir}
        values = {**{name: str(path) for name, path in places.items()}, "model": self._persona.model}
        argv = [_fill(word, values) for word in self._argv]
        shell = to_own_shell(
            granted_shell() or self._shell,
            self._persona,
            env={**self._env, VARIABLE: str(usage_file)},
            readable=[envelope_file] if has_envelope_file else [],
            writable=[usage_file.parent],
        )
        async with OutputEvents(self._journal, shell.spool_dir):
            outcome = await shell.run(argv, timeout_s=MAX_S, stdin=None if has_envelope_file else text.encode())
        tail = SECRETS.scrub_text(outcome.output)[-_TAIL_CHARS:]
        usage = find_usage_in_output(outcome.output) if self._persona.cost_from == "output" else None
        usage = usage or read_usage_file(usage_file)
        if outcome.state is not CommandState.EXITED or outcome.exit_code != 0:
            raise _failure(self._argv[0], outcome, tail, usage, is_contained=shell.sandbox is not None)
        facts = {"exit_code": outcome.exit_code} | ({} if usage is None else {"usage": usage.to_dict()})
        return ToolMessage(content=tail, name=TOOL, tool_call_id=TOOL, artifact=facts)

    def _prepare_usage_file(self, digest: str) -> Path:
        """Make a folder that the command can write to, without the report of an earlier run for the same envelope."""
        folder = self._scratch_dir / f"usage-{digest[:16]}"
        folder.mkdir(parents=True, exist_ok=True)
        key, spool_dir = step_key(), self._shell.spool_dir
        if find_command(key, spool_dir=spool_dir) is None or is_lost(key, spool_dir=spool_dir):
            (folder / "usage.json").unlink(missing_ok=True)
        return folder / "usage.json"


def _wrapped(part: Any, handler: _Handler) -> _Handler:
    async def call(request: ToolCallRequest) -> Any:
        return await part.awrap_tool_call(request, handler)

    return call


def _find_variables(persona: AgentPersona) -> dict[str, str]:
    """Return the one variable that the persona names. Nothing else of our environment is the command's business."""
    name = persona.api_key_env
    if name is None:
        return {}
    return {name: os.environ.get(name) or read_key(name, persona=persona.name)}


def _to_micros(usd: float | None) -> int:
    return round((usd or 0.0) * 1_000_000)


def _fill(word: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\{([a-z_]+)\}", lambda found: values.get(found[1], found[0]), word)


def _text_of(message: Any) -> str:
    content = message.get("content", "") if isinstance(message, dict) else getattr(message, "content", "")
    return content if isinstance(content, str) else str(content)


def _failure(program: str, outcome: Outcome, tail: str, usage: Usage | None, *, is_contained: bool) -> AgentFailed:
    ends = {
        CommandState.TIMED_OUT: f"took longer than {MAX_S:g} s",
        CommandState.OUTPUT_LIMIT: "printed too much",
        CommandState.CANCELLED: "was stopped",
    }
    how = ends.get(outcome.state, f"ended with exit code {outcome.exit_code}")
    last = next((line for line in reversed(tail.splitlines()) if line.strip()), "it printed nothing")
    hint = "See its output with holdfast runs logs RUN; try the command by hand in the worktree; then retry."
    if is_contained and any(word in tail for word in _SIGNS_OF_THE_SANDBOX):
        hint = f"{_ABOUT_THE_SANDBOX} {hint}"
    return AgentFailed(
        f"The command {program!r} {how}; its last words: {last.strip()[:300]}",
        hint=hint,
        output=tail,
        exit_code=outcome.exit_code,
        usage={} if usage is None else usage.to_dict(),
    )
