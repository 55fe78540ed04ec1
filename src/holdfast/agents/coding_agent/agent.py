"""Any command-line coding agent as a persona: one command, one journaled step.

It gets the envelope and the workspace, does what it does with its own tools and its own account, and leaves the
artifact. Its calls are its own: what is journaled is that it ran, what it said and did, and how it ended. A known agent
that was killed is continued in its session, on the files as they are.
"""

import asyncio
import hashlib
import os
import re
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest

from holdfast.agents.calls.gate import Usage
from holdfast.agents.calls.middleware import JournalMiddleware
from holdfast.agents.coding_agent.adapters.base import AgentCall, add_usage, find_variables, to_text
from holdfast.agents.coding_agent.adapters.registry import find_adapter
from holdfast.agents.coding_agent.agent_home import PrivateHome
from holdfast.agents.coding_agent.agent_session import (
    CONTINUE,
    MAX_PARTS,
    SessionState,
    choose_session,
    identify_command,
    read_session,
    session_file,
    write_session,
)
from holdfast.agents.coding_agent.output import OutputEvents
from holdfast.agents.coding_agent.sandbox import changes_worktree_only, to_own_shell
from holdfast.agents.coding_agent.summary import OutputSummary, summarize
from holdfast.agents.coding_agent.usage import VARIABLE, estimate_cost, find_usage_in_output, read_usage_file
from holdfast.agents.image_blocks import find_label, list_references
from holdfast.agents.redaction import SECRETS, read_key
from holdfast.agents.tools.rules import CommandSpool, ToolRule
from holdfast.agents.tools.shell import Shell, granted_shell, open_shell
from holdfast.catalog.model_table import load_model_table
from holdfast.config import Config
from holdfast.errors import AgentFailed, BackendUnavailable
from holdfast.images import ImageLabel
from holdfast.persona import AgentPersona
from holdfast.runtime.step import Suspended, step_key
from holdfast.workspace import CommandState, Outcome, find_command, is_lost, remove_spooled, spool_folder
from holdfast.workspace.files import write_whole

TOOL = "agent"
MAX_S = 4 * 3600.0  # the phase's own time-out is usually shorter
_TAIL_CHARS = 4000
_SIGNS_OF_THE_SANDBOX = ("Read-only file system", "EROFS", "Permission denied", "EACCES", "No such file")
_ABOUT_THE_SANDBOX = (
    "It ran in a sandbox that lets it write to the workspace only and hides other programs' keys: name the folders it "
    "needs in the persona (sandbox: {write: [~/.its-folder]}), or set sandbox: false."
)
_ABOUT_THE_NETWORK = (
    "It could not reach {}: it reaches its provider and what the persona lists (permissions: {{network: [host]}})."
)
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_Handler = Callable[[ToolCallRequest], Awaitable[Any]]


@dataclass(frozen=True)
class _SessionSpool(CommandSpool):
    """Where the command of a known agent is begun: of a lost one a person is asked only if no session is there."""

    agent: "CommandAgent | None" = None

    def is_lost(self, key: str) -> bool:
        return super().is_lost(key) and not self._can_continue(key)

    def is_gone(self, key: str) -> bool:
        return super().is_gone(key) and not self._can_continue(key)

    def _can_continue(self, key: str) -> bool:
        return self.agent is not None and self.agent.can_continue(key)


class CommandAgent:
    """A command behind the interface of an agent: `await agent.ainvoke({"messages": […]})`."""

    def __init__(
        self, persona: AgentPersona, config: Config, *, root_dir: Path, middleware: Sequence[Any], scratch_dir: Path
    ) -> None:
        assert persona.argv is not None, "a command persona has one"
        self._persona = persona
        self._argv = persona.argv
        self._adapter = find_adapter(persona)
        self._root_dir = root_dir
        self._config_dir = config.config_dir
        self._middleware = list(middleware)
        self._scratch_dir = scratch_dir
        self._journal = next((part for part in middleware if isinstance(part, JournalMiddleware)), None)
        granted = None if self._journal is None else self._journal.shell
        self._shell = granted or open_shell(root_dir, data_dir=config.data_dir)
        self._env = self._find_environment()
        self._home = self._find_home()
        if self._journal is not None:
            self._journal.price_tool(TOOL, _to_micros(persona.cost_per_run_usd), model=persona.model or persona.name)
            place = (self._shell.spool_dir, persona.on_lost, changes_worktree_only(persona, self._shell))
            spool = _SessionSpool(*place, agent=self if self._adapter else None)
            self._journal.set_rule(TOOL, ToolRule("reattach", spool=spool, is_of_engine=True))
        if shutil.which(self._argv[0]) is None:
            raise BackendUnavailable(
                f"Persona {persona.name} needs the command {self._argv[0]!r}, which is not installed here.",
                hint="Install it and sign in with it, or bind the role to another persona.",
                persona=persona.name,
            )

    async def ainvoke(self, state: Mapping[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
        """Run the command to its end and return what it said last. Raises `AgentFailed`."""
        messages = list(state["messages"])
        text = "\n\n".join([self._persona.system_prompt.strip(), *map(_text_of, messages)]).strip()
        images = await self._write_images(messages)
        digest = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
        args = {"argv": list(self._argv), "model": self._persona.model, "envelope": digest[:16]}
        request = ToolCallRequest(
            tool_call={"name": TOOL, "args": args, "id": TOOL, "type": "tool_call"},
            tool=None,
            state={},
            runtime=None,  # type: ignore[arg-type]  # nothing of the framework runs here
        )
        answer = await self._through_middleware(lambda _request: self._run(text, digest, images))(request)
        return {"messages": [*messages, AIMessage(content=_text_of(answer))]}

    async def _write_images(self, messages: Sequence[Any]) -> dict[ImageLabel, Path]:
        """Write the images of messages to files that the command can read, beside the worktree."""
        labels = [label for block in list_references(messages) if (label := find_label(block)) is not None]
        read_image = None if self._journal is None else self._journal.read_image
        if read_image is None:
            return {}
        files = {label: self._scratch_dir / "images" / label.file_name for label in labels}
        for label, path in files.items():
            if not path.is_file() or path.stat().st_size != label.size:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, await read_image(label.digest), mode=0o600)
        return files

    def _through_middleware(self, handler: _Handler) -> _Handler:
        for part in reversed(self._middleware):
            handler = _wrapped(part, handler)
        return handler

    # -- what it gets -------------------------------------------------------------------------------------------------

    def _find_environment(self) -> dict[str, str]:
        """Return the variables that the persona and its adapter name; nothing else of ours is its business."""
        persona = self._persona
        env = {} if self._adapter is None else find_variables(self._adapter.needs.variables)
        env |= find_variables(persona.env)
        if name := persona.api_key_env:
            env[name] = os.environ.get(name) or read_key(name, persona=persona.name)
        return env if self._adapter is None else {**self._adapter.needs.fixed, **env}

    def _find_home(self) -> PrivateHome | None:
        """Return the home of a known agent in the sandbox; without a sandbox it is the user's own."""
        if self._adapter is None or self._shell.sandbox is None or not self._persona.sandbox.is_on:
            return None
        folder = self._scratch_dir / f"home-{self._adapter.name}"
        return PrivateHome(folder, self._adapter.needs, Path.home())

    @property
    def _home_folder(self) -> Path:
        return Path.home() if self._home is None else self._home.folder

    def _open_shell(self, usage_file: Path, readable: Sequence[Path]) -> Shell:
        env = {**self._env, VARIABLE: str(usage_file)}
        writable = [usage_file.parent]
        if self._home is not None:
            env["HOME"] = str(self._home.folder)
            writable.append(self._home.folder)
        readable = [path for path in readable if path.exists()]
        return to_own_shell(
            granted_shell() or self._shell,
            self._persona,
            env=env,
            readable=readable,
            writable=writable,
            hosts=self._find_hosts(),
        )

    def _find_hosts(self) -> tuple[str, ...]:
        """Return the hosts of a known agent's provider. Of another agent nothing is known; nor where a persona lets its
        agent use the user's own proxy, which a proxy of ours would take the place of.
        """
        if self._adapter is None or any(name in self._env for name in _PROXIES):
            return ()
        needs = self._adapter.needs
        return (*needs.find_hosts(self._env), *needs.find_own_hosts(self._env, Path.home()))

    def _prepare_usage_file(self, digest: str) -> Path:
        """Make a folder that the command can write to, without the report of an earlier run for the same envelope."""
        folder = self._scratch_dir / f"usage-{digest[:16]}"
        folder.mkdir(parents=True, exist_ok=True)
        if not self._is_running(step_key()):
            (folder / "usage.json").unlink(missing_ok=True)
        return folder / "usage.json"

    def _is_running(self, key: str) -> bool:
        """Tell whether a command of this step runs or has ended: it is found, not started."""
        spool_dir = self._shell.spool_dir
        return find_command(key, spool_dir=spool_dir) is not None and not is_lost(key, spool_dir=spool_dir)

    # -- the run, in one part or several ------------------------------------------------------------------------------

    async def _run(self, text: str, digest: str, images: Mapping[ImageLabel, Path]) -> ToolMessage:
        usage_file = self._prepare_usage_file(digest)
        state, unfenced = await self._find_state(), self._shell.unfenced & {step_key()}
        while True:
            self._shell.unfenced.update(unfenced)  # each part of it: where one ends, it is taken out
            words = CONTINUE if state.part else _with_files(text, images)
            try:
                outcome, is_contained = await self._run_part(state, words, digest, usage_file, [*images.values()])
            except Suspended:  # it was lost while we waited
                if (following := await self._find_following()) is None:
                    raise
            else:
                is_killed = outcome.state is CommandState.EXITED and (outcome.exit_code or 0) > 128
                if not is_killed or (following := await self._find_following()) is None:
                    break
            state = self._begin_next(following)
        return await self._to_answer(state, outcome, usage_file, is_contained=is_contained)

    async def _run_part(
        self, state: SessionState, text: str, digest: str, usage_file: Path, images: Sequence[Path]
    ) -> tuple[Outcome, bool]:
        envelope_file = self._scratch_dir / f"envelope-{digest[:16]}{f'-{state.part}' if state.part else ''}.md"
        has_file = any("{envelope_file}" in word for word in self._argv)
        has_file = has_file or (self._adapter is not None and self._adapter.has_envelope_file)
        if has_file:
            write_whole(envelope_file, text, mode=0o600)
        if self._home is not None and not self._is_running(step_key()):
            await asyncio.to_thread(self._home.prepare)
        shell = self._open_shell(usage_file, [envelope_file, *images])
        argv = self._to_argv(state, envelope_file, usage_file)
        events = OutputEvents(self._journal, shell.spool_dir, adapter=self._adapter, part=state.part)
        async with events:
            if state.session and not self._is_running(step_key()):
                await events.report_session(state.session)
            outcome = await shell.run(argv, timeout_s=MAX_S, stdin=None if has_file else text.encode())
        if self._home is not None:
            await asyncio.to_thread(self._home.close)
        return outcome, shell.sandbox is not None

    def _to_argv(self, state: SessionState, envelope_file: Path, usage_file: Path) -> list[str]:
        places = {"envelope_file": envelope_file, "usage_file": usage_file, "workspace": self._root_dir}
        values = {**{name: str(path) for name, path in places.items()}, "model": self._persona.model}
        argv = [_fill(word, values) for word in self._argv]
        if self._adapter is None:
            return argv
        call = AgentCall(argv, self._persona.model, state.session, envelope_file, self._home_folder)
        return self._adapter.resume(call) if state.part else self._adapter.start(call)

    # -- its session --------------------------------------------------------------------------------------------------

    def _state_file(self, key: str) -> Path:
        return session_file(self._scratch_dir, key)

    def _find_spool(self, key: str) -> Path:
        return spool_folder(self._shell.spool_dir, key)

    def can_continue(self, key: str) -> bool:
        """Tell whether the session of a command that is lost can be continued."""
        return self._find_continuation(key) is not None

    async def _find_state(self) -> SessionState:
        """Return the part that runs, ran or is to be started. A lost one is continued, if it can be."""
        key = step_key()
        state = read_session(self._state_file(key))
        if self._adapter is None:
            return state
        if state.after and state.after == identify_command(self._find_spool(key)):
            return self._begin_next(state)  # crash: the process before this one was about to
        if is_lost(key, spool_dir=self._shell.spool_dir):
            following = await self._find_following()
            async with OutputEvents(self._journal, self._shell.spool_dir, adapter=self._adapter, part=state.part):
                pass  # what it printed before it was lost
            if following is not None:
                return self._begin_next(following)
            state = SessionState()
        if not state.session and self._adapter.chooses_session:
            state = SessionState(choose_session(key))
            if not self._is_running(key) and self._adapter.find_session(self._home_folder, state.session) is not None:
                # The run was here before, and what it left was forgotten: no agent begins a session that it has.
                state = SessionState(state.session, 1)
                write_session(self._state_file(key), state)
        return state

    async def _find_following(self) -> SessionState | None:
        return await asyncio.to_thread(self._find_continuation, step_key())

    def _find_continuation(self, key: str) -> SessionState | None:
        """Return the part after the one that ended, if its session was stored where the next one finds it."""
        if self._adapter is None:
            return None
        state = read_session(self._state_file(key))
        spool = self._find_spool(key)
        after = identify_command(spool)
        if state.after and state.after == after:
            return state
        summary = summarize(self._adapter, spool / "out")
        session = summary.session or state.session or (choose_session(key) if self._adapter.chooses_session else "")
        if state.part >= MAX_PARTS or self._adapter.find_session(self._home_folder, session) is None:
            return None
        used = None if self._adapter.is_total_of_session else add_usage(state.usage, summary.usage)
        return SessionState(session, state.part + 1, used, after)

    def _begin_next(self, state: SessionState) -> SessionState:
        key = step_key()
        write_session(self._state_file(key), state)
        # crash: the spool still has the command that ended; the state says that it was accounted for.
        remove_spooled(key, spool_dir=self._shell.spool_dir)
        # crash: nothing is in the spool, and the state says which session to continue.
        return state

    # -- its end ------------------------------------------------------------------------------------------------------

    async def _to_answer(
        self, state: SessionState, outcome: Outcome, usage_file: Path, *, is_contained: bool
    ) -> ToolMessage:
        summary = OutputSummary()
        tail = SECRETS.scrub_text(outcome.output)[-_TAIL_CHARS:]
        if self._adapter is not None:
            summary = await asyncio.to_thread(summarize, self._adapter, outcome.log_path)
            tail = SECRETS.scrub_text(summary.answer)[-_TAIL_CHARS:] or tail
        table = load_model_table(self._config_dir)
        card = table.find_named(summary.model) or table.find_named(self._persona.model)
        usage = estimate_cost(self._find_usage(state, outcome, summary, usage_file), card)
        if outcome.state is not CommandState.EXITED or outcome.exit_code != 0 or (summary.error and not summary.answer):
            words = SECRETS.scrub_text(summary.error or summary.words)
            raise _failure(self._argv[0], outcome, words or tail, usage, is_contained=is_contained)
        session = summary.session or state.session
        facts: dict[str, Any] = {"exit_code": outcome.exit_code} | ({"session": session} if session else {})
        facts |= {"continued": state.part} if state.part else {}
        facts |= {} if usage is None else {"usage": usage.to_dict()}
        return ToolMessage(content=tail, name=TOOL, tool_call_id=TOOL, artifact=facts)

    def _find_usage(
        self, state: SessionState, outcome: Outcome, summary: OutputSummary, usage_file: Path
    ) -> Usage | None:
        if self._adapter is not None:
            return add_usage(state.usage, summary.usage) or read_usage_file(usage_file)
        used = find_usage_in_output(outcome.output) if self._persona.cost_from == "output" else None
        return used or read_usage_file(usage_file)


def _wrapped(part: Any, handler: _Handler) -> _Handler:
    async def call(request: ToolCallRequest) -> Any:
        return await part.awrap_tool_call(request, handler)

    return call


def _to_micros(usd: float | None) -> int:
    return round((usd or 0.0) * 1_000_000)


def _fill(word: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\{([a-z_]+)\}", lambda found: values.get(found[1], found[0]), word)


def _text_of(message: Any) -> str:
    content = message.get("content", "") if isinstance(message, dict) else getattr(message, "content", "")
    if isinstance(content, list):
        labels = [f"[{label}]" for block in content if (label := find_label(block)) is not None]
        return "\n\n".join([to_text(content), *labels])
    return content if isinstance(content, str) else str(content)


def _with_files(text: str, images: Mapping[ImageLabel, Path]) -> str:
    """Say where the images are. Not part of what is recorded of the call: elsewhere they lie elsewhere."""
    lines = [f"- {label}: {path}" for label, path in images.items()]
    return "\n".join([text, "", "The images are in these files:", *lines]) if lines else text


def _failure(program: str, outcome: Outcome, tail: str, usage: Usage | None, *, is_contained: bool) -> AgentFailed:
    ends = {
        CommandState.TIMED_OUT: f"took longer than {MAX_S:g} s",
        CommandState.OUTPUT_LIMIT: "printed too much",
        CommandState.CANCELLED: "was stopped",
    }
    how = ends.get(outcome.state, f"ended with exit code {outcome.exit_code}")
    last = next((line for line in reversed(tail.splitlines()) if line.strip()), "it printed nothing")
    hint = "See its output with holdfast runs logs RUN; try the command by hand in the worktree; then retry."
    if refused := [f"{request.host}:{request.port}" for request in outcome.requests if request.reason]:
        hint = f"{_ABOUT_THE_NETWORK.format(', '.join(refused[:10]))} {hint}"
    if is_contained and any(word in tail for word in _SIGNS_OF_THE_SANDBOX):
        hint = f"{_ABOUT_THE_SANDBOX} {hint}"
    return AgentFailed(
        f"The command {program!r} {how}; its last words: {last.strip()[:300]}",
        hint=hint,
        output=tail,
        exit_code=outcome.exit_code,
        usage={} if usage is None else usage.to_dict(),
    )
