"""Any command-line coding agent as a persona: one command, one journaled step.

It gets the envelope and the workspace, does what it does with its own tools and its own account, and leaves the
artifact. Its calls are its own: what is journaled is that it ran, what it printed and how it ended.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest

from holdfast.agents.command_output import OutputTeller
from holdfast.agents.journaling import JournalMiddleware
from holdfast.agents.secrets import SECRETS, read_key
from holdfast.agents.shell import Shell, granted_shell, open_shell
from holdfast.config import Config
from holdfast.errors import AgentFailed, BackendUnavailable
from holdfast.persona import AgentPersona, Verdict
from holdfast.workspace import CommandState, Outcome
from holdfast.workspace.files import write_whole

TOOL = "agent"
MAX_S = 4 * 3600.0  # the phase's own time-out is usually shorter
_TAIL_CHARS = 4000
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
        shell = self._to_own(granted_shell() or self._shell)
        envelope_file = self._scratch_dir / f"envelope-{digest[:16]}.md"
        is_file_wanted = any("{envelope_file}" in word for word in self._argv)
        if is_file_wanted:
            envelope_file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(envelope_file, text, mode=0o600)
        values = {"envelope_file": envelope_file, "workspace": self._root_dir, "model": self._persona.model}
        argv = [_fill(word, {name: str(value) for name, value in values.items()}) for word in self._argv]
        journal = next((part for part in self._middleware if isinstance(part, JournalMiddleware)), None)
        async with OutputTeller(journal, shell.spool_dir):
            outcome = await shell.run(argv, timeout_s=MAX_S, stdin=None if is_file_wanted else text.encode())
        tail = SECRETS.scrub_text(outcome.output)[-_TAIL_CHARS:]
        if outcome.state is not CommandState.EXITED or outcome.exit_code != 0:
            raise _failure(self._argv[0], outcome, tail)
        return ToolMessage(content=tail, name=TOOL, tool_call_id=TOOL, artifact={"exit_code": outcome.exit_code})

    def _to_own(self, shell: Shell) -> Shell:
        """Outside our sandbox: such an agent needs its account, its state in the home folder, and its provider.

        A persona that denies the network is meant to do without all three.
        """
        if self._persona.permissions.network is Verdict.DENY and shell.sandbox is not None:
            return replace(shell, has_network=False)
        return replace(shell, sandbox=None, env=self._env)


def _wrapped(part: Any, handler: _Handler) -> _Handler:
    async def call(request: ToolCallRequest) -> Any:
        return await part.awrap_tool_call(request, handler)

    return call


def _find_variables(persona: AgentPersona) -> dict[str, str]:
    """The one variable that the persona names. Nothing else of our environment is the command's business."""
    name = persona.api_key_env
    if name is None:
        return {}
    return {name: os.environ.get(name) or read_key(name, persona=persona.name)}


def _fill(word: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\{([a-z_]+)\}", lambda found: values.get(found[1], found[0]), word)


def _text_of(message: Any) -> str:
    content = message.get("content", "") if isinstance(message, dict) else getattr(message, "content", "")
    return content if isinstance(content, str) else str(content)


def _failure(program: str, outcome: Outcome, tail: str) -> AgentFailed:
    ends = {
        CommandState.TIMED_OUT: f"took longer than {MAX_S:g} s",
        CommandState.OUTPUT_LIMIT: "printed too much",
        CommandState.CANCELLED: "was stopped",
    }
    how = ends.get(outcome.state, f"ended with exit code {outcome.exit_code}")
    last = next((line for line in reversed(tail.splitlines()) if line.strip()), "it printed nothing")
    return AgentFailed(
        f"The command {program!r} {how}; its last words: {last.strip()[:300]}",
        hint="Look at its output in the events of the phase; try the command by hand in the workspace; then retry.",
        output=tail,
        exit_code=outcome.exit_code,
    )
